"""How long connections waited lately because too many came, for the metrics of KIP-612."""

from __future__ import annotations

from collections import deque

from felice.env import Clock

_WINDOW_S = 60.0
_MOST = 1024


class RecentWaits:
    """The newest waits; none is older than Kafka's two samples of 30 s when it is read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: deque[tuple[float, float]] = deque(maxlen=_MOST)

    def add(self, wait_s: float) -> None:
        """Adds a wait that is longer than zero."""
        self._waits.append((self._clock.monotonic(), wait_s))

    def average_s(self) -> float:
        """The average in the last minute; 0 if nothing waited."""
        oldest_s = self._clock.monotonic() - _WINDOW_S
        while self._waits and self._waits[0][0] < oldest_s:
            self._waits.popleft()
        return sum(wait_s for _, wait_s in self._waits) / max(1, len(self._waits))
