"""Clients that look up the coordinator of a group, and then never send it a request: they get a line in the log.

librdkafka does so with `group.protocol=consumer`: the broker does not offer that protocol (KIP-848), and librdkafka
waits for ever without a message. Java's client raises an error by itself. Nothing that librdkafka sends names the
protocol, so the line is about what it does not send. A classic consumer whose topics do not exist is silent as well.

Keeps true: a bounded number of clients is waited for, and there is one line a minute for each client software.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from felice.env.clock import RateLimit

_log = logging.getLogger("felice.server")

# A member of a classic group joins within milliseconds.
WAIT_S = 10.0
_MAX_CLIENTS = 1000
# Clients on top of librdkafka name themselves, then `rdkafka` and its version.
_LIBRDKAFKA = "rdkafka"
_INTERVAL_S = 60.0

_Key = tuple[str, str | None]


class _Connection(Protocol):
    peer: str
    client_software: str


class _Context(Protocol):
    """What is used of a request's context."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def session(self) -> _Connection: ...


class GroupLookups:
    def __init__(self, monotonic: Callable[[], float], wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._lines = RateLimit(monotonic, _INTERVAL_S)
        self._waiting: dict[_Key, asyncio.TimerHandle] = {}

    def on_lookup(self, context: _Context, group: str) -> None:
        """After a client was told that this broker coordinates the group."""
        software = context.session.client_software
        key = _key(context)
        if _LIBRDKAFKA not in software or key in self._waiting or len(self._waiting) >= _MAX_CLIENTS:
            return
        loop = asyncio.get_running_loop()
        self._waiting[key] = loop.call_later(self._wait_s, self._report, key, group, software)

    def on_group_request(self, context: _Context) -> None:
        """Before any request about a group is handled."""
        if self._waiting and (timer := self._waiting.pop(_key(context), None)) is not None:
            timer.cancel()

    def _report(self, key: _Key, group: str, software: str) -> None:
        del self._waiting[key]
        if self._lines.allows(software):
            _log.warning(
                "a client looked up the coordinator of a group and has not used it: its topics do not exist, or it has "
                "group.protocol=consumer, which is not supported (KIP-848); set group.protocol=classic",
                extra={"group": group, "client": software, "client_id": key[1], "peer": key[0]},
            )


def _key(context: _Context) -> _Key:
    return context.session.peer, context.client_id
