"""Limits the log lines about clients, so that no client can fill the log.

Keeps true: at most one line per minute for each client software and kind of line, and at most
            `MAX_LINES_PER_MINUTE` in all, even if clients send many different names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from felice.config import shortened
from felice.env.clock import RateLimit

_INTERVAL_S = 60.0
MAX_LINES_PER_MINUTE = 60


class Client(Protocol):
    """A connection, as far as its client is told from others."""

    peer: str
    client_software: str

    @property
    def client_id(self) -> str | None:
        """The client id of the connection's last request; None if it sent none."""


def name_of(connection: Client) -> str:
    """The name of the client's software, or else its client id, or else its address; cut if it is long."""
    return shortened(connection.client_software or connection.client_id or connection.peer)


class ClientLines:
    """Decides which lines are written."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lines = RateLimit(monotonic, _INTERVAL_S)
        self._minute = 0.0
        self._lines_in_minute = 0

    def allow(self, kind: Hashable, client: str) -> bool:
        """Whether a line of this kind may be written about the client now."""
        return self._lines.allows((kind, client)) and self._may_log()

    @property
    def left_out(self) -> dict[str, object]:
        """For the line that was allowed last: the number of lines of its kind and client left out before, if any."""
        return {"left_out": self._lines.refused} if self._lines.refused else {}

    def _may_log(self) -> bool:
        now = self._monotonic()
        if now - self._minute >= _INTERVAL_S:
            self._minute, self._lines_in_minute = now, 0
        self._lines_in_minute += 1
        return self._lines_in_minute <= MAX_LINES_PER_MINUTE
