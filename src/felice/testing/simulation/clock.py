"""The clocks of one simulated machine.

Keeps true: monotonic time is the loop's, from a start of its own, so that code which mixes the clocks of two
            machines, or a clock with the loop's time, is found out. Wall time is off by the machine's skew, and
            jumps when a test says so; monotonic time never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felice.testing.simulation.loop import SimLoop

# 2023-11-14T22:13:20Z: a time of thirteen digits, as everybody's timestamps have.
EPOCH_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, loop: SimLoop, *, skew_ms: int = 0, monotonic_start_s: float = 0.0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms
        self._monotonic_start_s = monotonic_start_s

    @property
    def skew_ms(self) -> int:
        """How far this machine's wall time is ahead of the world's."""
        return self._skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self._skew_ms

    def monotonic(self) -> float:
        return self._monotonic_start_s + self._loop.time()

    def jump(self, delta_ms: int) -> None:
        """Wall time moves at once, as when somebody sets the clock."""
        self._skew_ms += delta_ms
