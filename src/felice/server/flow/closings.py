"""Logs the connections that the broker closes or refuses, with client and reason, at the rate of `client_lines`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from felice.env.clock import RateLimit
from felice.server.flow.client_lines import Client, ClientLines, name_of

_log = logging.getLogger("felice.server")

_INTERVAL_S = 60.0


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


class Connection(Client, Protocol):
    """The facts of a connection that log lines contain."""

    address: str


class Closings:
    """Writes the log lines of one broker, and limits their number."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._lines = ClientLines(monotonic)
        self._faults = RateLimit(monotonic, _INTERVAL_S)

    def report(
        self, connection: Connection, kind: Closing, reason: str, message: str = "connection closed"
    ) -> None:
        """Logs that a connection was closed."""
        client = name_of(connection)
        if not _log.isEnabledFor(kind.level) or not self._lines.allow(kind, client):
            return
        extra = {
            "peer": connection.address,
            "client": client,
            "client_id": connection.client_id,
            "reason": reason,
            **self._lines.left_out,
        }
        _log.log(kind.level, message, extra=extra)

    def report_handshake(self, listener: str, peer: str, reason: str) -> None:
        """Logs that a TLS handshake failed, at most once a minute for each address."""
        self._report_peer("TLS handshake failed", peer, listener=listener, reason=reason)

    def report_login(self, listener: str, peer: str, path: str) -> None:
        """Logs that an HTTP request had a wrong user or password, at most once a minute for each address."""
        self._report_peer("log in refused", peer, listener=listener, path=path)

    def _report_peer(self, message: str, peer: str, **facts: str) -> None:
        if self._lines.allow(message, peer.rpartition(":")[0]):
            _log.warning(message, extra={"peer": peer, **facts, **self._lines.left_out})

    def report_fault(self, connection: Connection, error: Exception) -> None:
        """Logs an unexpected error with its traceback, at most once per minute for each place in the code."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = None if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
        if self._faults.allows((type(error), place)):
            _log.error("a request failed", exc_info=error, extra={"peer": connection.address})
