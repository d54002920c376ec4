"""Logs the connections that the broker closes or refuses, with client and reason, at a limited rate.

Keeps true: at most one line per minute for each client software and kind of reason, and at most
            `MAX_LINES_PER_MINUTE` in all, even if clients send many different names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from felice.env.clock import RateLimit

_log = logging.getLogger("felice.server")

_INTERVAL_S = 60.0
MAX_LINES_PER_MINUTE = 60


class Closing(Enum):
    """Why the broker closed a connection."""

    NOT_UNDERSTOOD = "what the client sent cannot be answered"
    NOT_READ = "the client does not read its replies, and memory is short"
    NOT_SENT = "the client does not send the rest of a large request, and memory is short"
    REFUSED = "max.connections or max.connections.per.ip is reached"
    NOT_LOGGED_IN = "the client did not log in"
    OTHER = "the network, a file, or a handler"

    @property
    def level(self) -> int:
        """The level of the log line."""
        return logging.INFO if self is Closing.OTHER else logging.WARNING


class Connection(Protocol):
    """The facts of a connection that log lines contain."""

    peer: str
    address: str
    client_software: str

    @property
    def client_id(self) -> str | None:
        """The client id of the connection's last request; None if it sent none."""


class Closings:
    """Writes the log lines of one broker, and limits their number."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lines = RateLimit(monotonic, _INTERVAL_S)
        self._minute = 0.0
        self._lines_in_minute = 0

    def report(
        self, connection: Connection, kind: Closing, reason: str, message: str = "connection closed"
    ) -> None:
        """Logs that a connection was closed."""
        client = connection.client_software or connection.client_id or connection.peer
        if not _log.isEnabledFor(kind.level) or not self._lines.allows((kind, client)) or not self._may_log():
            return
        extra = {
            "peer": connection.address,
            "client": client,
            "client_id": connection.client_id,
            "reason": reason,
        }
        _log.log(kind.level, message, extra=extra)

    def report_handshake(self, listener: str, peer: str, reason: str) -> None:
        """Logs that a TLS handshake failed, at most once a minute for each address."""
        if self._lines.allows(("handshake", peer.rpartition(":")[0])) and self._may_log():
            extra = {"listener": listener, "peer": peer, "reason": reason}
            _log.warning("TLS handshake failed", extra=extra)

    def report_fault(self, connection: Connection, error: Exception) -> None:
        """Logs an unexpected error with its traceback, at most once per minute for each place in the code."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = None if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
        if self._lines.allows((type(error), place)):
            _log.error("a request failed", exc_info=error, extra={"peer": connection.address})

    def _may_log(self) -> bool:
        now = self._monotonic()
        if now - self._minute >= _INTERVAL_S:
            self._minute, self._lines_in_minute = now, 0
        self._lines_in_minute += 1
        return self._lines_in_minute <= MAX_LINES_PER_MINUTE
