"""Divides the time of the event loop between the connections of HTTP/2; pure.

Keeps true: in one turn of the event loop all connections together read frames for `TURN_S`, and each for `SHARE_S`.
            Connections that have not read all their frames continue in the next turn, in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.005
SHARE_S: Final = 0.001


class Turns:
    """The turns of one server. `now` is in seconds, and `soon` calls a function in the next turn of the event loop."""

    def __init__(self, now: Callable[[], float], soon: Callable[[Callable[[], None]], object]) -> None:
        self._now, self._soon = now, soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_begun = False
        self._ends = 0.0

    def share_ends(self) -> float:
        """Until when the caller may read now. It may be over."""
        now = self._now()
        if not self._has_begun:
            self._has_begun, self._ends = True, now + TURN_S
            self._soon(self._next)
        return min(self._ends, now + SHARE_S)

    def later(self, work: Callable[[], None]) -> None:
        """Calls `work` in one of the next turns. The caller has asked for `share_ends` in this turn."""
        self._waiting.append(work)

    def _next(self) -> None:
        self._has_begun = False
        for _ in range(len(self._waiting)):
            if self.share_ends() < self._now():
                return
            self._waiting.popleft()()
