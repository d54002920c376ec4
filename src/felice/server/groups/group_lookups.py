"""Logs clients that look up a group coordinator and then never send it a request.

librdkafka does this with `group.protocol=consumer`: the broker does not offer that protocol (KIP-848), and librdkafka
waits for ever without a message. (The Java client raises an error.) No request of librdkafka names the protocol, so the
broker can only detect the missing request. A classic consumer whose topics do not exist behaves in the same way, and so
does one that chooses its partitions itself (`assign`) and has not committed yet. The line names all three causes.

Keeps true: the number of observed clients is bounded, and their long names are cut. Each client software gets at most
            one line per minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from felice.config import shortened
from felice.env.clock import RateLimit

_log = logging.getLogger("felice.server")

# A member of a classic group joins within milliseconds.
WAIT_S = 10.0
_MAX_CLIENTS = 1000
# Clients based on librdkafka send their own name, then `rdkafka` and its version.
_LIBRDKAFKA = "rdkafka"
_INTERVAL_S = 60.0

_Key = tuple[str, str | None]


class _Connection(Protocol):
    peer: str
    client_software: str


class _Context(Protocol):
    """The used part of a request's context."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def session(self) -> _Connection: ...


class GroupLookups:
    """The clients whose first group request is awaited."""

    def __init__(self, monotonic: Callable[[], float], wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._lines = RateLimit(monotonic, _INTERVAL_S)
        self._waiting: dict[_Key, asyncio.TimerHandle] = {}

    def on_lookup(self, context: _Context, group: str) -> None:
        """Call it after this broker was returned to a client as the coordinator of a group."""
        software = context.session.client_software
        key = _key(context)
        if _LIBRDKAFKA not in software or key in self._waiting or len(self._waiting) >= _MAX_CLIENTS:
            return
        loop = asyncio.get_running_loop()
        self._waiting[key] = loop.call_later(self._wait_s, self._report, key, shortened(group), software)

    def on_group_request(self, context: _Context) -> None:
        """Call it before a group request is handled."""
        if self._waiting and (timer := self._waiting.pop(_key(context), None)) is not None:
            timer.cancel()

    def _report(self, key: _Key, group: str, software: str) -> None:
        del self._waiting[key]
        if self._lines.allows(software):
            _log.warning(
                "a client looked up the coordinator of a group and has not used it: it uses assign() and has not "
                "committed, or its topics do not exist, or it has group.protocol=consumer, which is not supported "
                "(KIP-848); in the last case set group.protocol=classic",
                extra={"group": group, "client": software, "client_id": key[1], "peer": key[0]},
            )


def _key(context: _Context) -> _Key:
    client_id = context.client_id
    return context.session.peer, client_id and shortened(client_id)
