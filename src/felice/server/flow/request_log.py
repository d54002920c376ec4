"""Logs slow requests with the parts of their time; at level DEBUG of `kafka.request.logger` every request.

The facts have the names of Kafka's request log. Slow requests are logged at the rate of `client_lines`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol

from felice.config import BrokerConfig
from felice.protocol.api import API
from felice.protocol.connection import Request
from felice.security.principal import Principal
from felice.server.flow.client_lines import Client, ClientLines, name_of
from felice.server.flow.request_times import Times

_log = logging.getLogger("kafka.request.logger")

# These requests wait because their client asks for it: only the time in the queue and on the event loop counts.
_WAITING = frozenset((API.FETCH.key, API.JOIN_GROUP.key, API.SYNC_GROUP.key))


class Connection(Client, Protocol):
    """The facts of a connection that log lines contain."""

    address: str
    principal: Principal

    @property
    def listener_name(self) -> str:
        """The listener that accepted the connection."""


class RequestLog:
    """The request log of one broker."""

    def __init__(self, config: BrokerConfig, monotonic: Callable[[], float]) -> None:
        self._lines = ClientLines(monotonic)
        self.threshold_s = math.inf
        """Requests that take less are not passed to `note`."""
        self._slow_s = math.inf
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """Takes the threshold of the configuration and the level of the logger."""
        slow_ms = config.felice_slow_request_ms
        self._slow_s = math.inf if slow_ms < 0 else slow_ms / 1000
        self.threshold_s = 0.0 if _log.isEnabledFor(logging.DEBUG) else self._slow_s

    def note(self, connection: Connection, request: Request, times: Times) -> None:
        """Logs a request that was answered, if it was slow or every request is logged."""
        queued_s, local_s, remote_s, _ = times
        own_s = queued_s + local_s
        is_slow = (own_s if request.api.key in _WAITING else own_s + remote_s) >= self._slow_s
        if _log.isEnabledFor(logging.DEBUG):
            level, left_out = (logging.WARNING if is_slow else logging.DEBUG), {}
        elif (
            is_slow and _log.isEnabledFor(logging.WARNING) and self._lines.allow("slow", name_of(connection))
        ):
            level, left_out = logging.WARNING, self._lines.left_out
        else:
            return
        facts = _facts(connection, request, times)
        _log.log(level, "slow request" if is_slow else "request", extra={**facts, **left_out})


def _facts(connection: Connection, request: Request, times: Times) -> dict[str, object]:
    queued_s, local_s, remote_s, throttled_s = times
    return {
        "requestApiKeyName": request.api.name,
        "requestApiVersion": request.version,
        "correlationId": request.correlation_id,
        "clientId": request.client_id,
        "connection": connection.address,
        "clientSoftware": connection.client_software,
        "principal": str(connection.principal),
        "listener": connection.listener_name,
        "requestSizeBytes": request.size_bytes,
        "totalTimeMs": _ms(queued_s + local_s + remote_s),
        "requestQueueTimeMs": _ms(queued_s),
        "localTimeMs": _ms(local_s),
        "remoteTimeMs": _ms(remote_s),
        "throttleTimeMs": _ms(throttled_s),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
