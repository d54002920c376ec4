"""The clocks of one simulated machine.

Keeps true: monotonic time is the loop's time plus an offset of this machine, so that code that mixes the clocks of
            two machines, or a clock with the loop's time, fails. Wall time differs by the machine's skew and jumps
            only when a test sets it; monotonic time never jumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felice.testing.simulation.loop import SimLoop

# 2023-11-14T22:13:20Z: thirteen digits in milliseconds, as real timestamps have.
EPOCH_MS = 1_700_000_000_000


class SimClock:
    """`felice.env.Clock` on virtual time."""

    def __init__(self, loop: SimLoop, *, skew_ms: int = 0, monotonic_start_s: float = 0.0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms
        self._monotonic_start_s = monotonic_start_s

    @property
    def skew_ms(self) -> int:
        """How far the machine's wall clock is ahead of simulated time, in milliseconds."""
        return self._skew_ms

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970, with the skew of this machine."""
        return EPOCH_MS + int(self._loop.time() * 1000) + self._skew_ms

    def monotonic(self) -> float:
        """The loop's time in seconds, plus the offset of this machine."""
        return self._monotonic_start_s + self._loop.time()

    def jump(self, delta_ms: int) -> None:
        """Set the wall clock forward or back, as an operator may."""
        self._skew_ms += delta_ms
