"""How long the requests to a metadata store took."""

from __future__ import annotations

from collections import deque

_RECENT = 1024


class RequestLatencies:
    """The number of requests that were answered, and the seconds that the newest ones took."""

    __slots__ = ("count", "recent_s")

    def __init__(self) -> None:
        self.count = 0
        self.recent_s: deque[float] = deque(maxlen=_RECENT)

    def add(self, seconds: float) -> None:
        """Adds one request that was answered."""
        self.count += 1
        self.recent_s.append(seconds)
