"""How many connections may be open at once: `max.connections` of the broker and of each listener (KIP-402).

Keeps true: a listener over its limit, or over that of the broker, accepts nothing until connections have closed.
            Brokers can always connect: the limit of all listeners together does not concern the inter-broker listener,
            unless it is the only one. Above that limit, because brokers have connected or the limit was lowered, the
            connections of the other listeners that were idle longest are closed, as by Apache Kafka.
            The limit of a listener closes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Protocol

from felice.config import BrokerConfig
from felice.config.option import INT_MAX
from felice.server.flow.closings import Closing

# As many as a listener accepts in one pass of the event loop.
_MOST_CLOSED_AT_ONCE = 64
_NEXT_S = 0.05


class Connection(Protocol):
    """What the limits use of an open connection."""

    last_active: float

    def abort(self, reason: str, kind: Closing) -> None:
        """Closes the connection at once."""


class Connections(Protocol):
    """What the limits use of a listener."""

    name: str

    @property
    def sessions(self) -> Collection[Connection]:
        """Its open connections."""


class ConnectionLimits:
    """The limits of one broker, and the connections of its `listeners`."""

    def __init__(self, config: Callable[[], BrokerConfig], listeners: Sequence[Connections]) -> None:
        self._config = config
        self._listeners = listeners
        self._followed: BrokerConfig | None = None
        self._of_listeners: dict[str, int] = {}
        self._privileged: str | None = None

    @property
    def count(self) -> int:
        """Open connections of all listeners."""
        return sum(len(listener.sessions) for listener in self._listeners)

    def reached(self, listener: Connections, connecting: int = 0) -> str | None:
        """The limit that leaves no room for another connection, as an operator sets it."""
        config = self._follow()
        own = self._of_listeners.get(listener.name, INT_MAX)
        if len(listener.sessions) + connecting >= own:
            return f"listener.name.{listener.name.lower()}.max.connections={own}"
        if listener.name != self._privileged and self.count + connecting >= config.max_connections:
            return f"max.connections={config.max_connections}"
        return None

    def close_excess(self) -> None:
        """Closes the connections that were idle longest while all listeners together are over their limit."""
        config = self._follow()
        excess = self.count - config.max_connections
        if excess <= 0:
            return
        others = [
            session
            for listener in self._listeners
            if listener.name != self._privileged
            for session in listener.sessions
        ]
        # A connection that is being closed still counts. It is among the oldest, and closing it again does nothing.
        oldest = nsmallest(min(excess, _MOST_CLOSED_AT_ONCE), others, key=attrgetter("last_active"))
        for session in oldest:
            session.abort(f"max.connections={config.max_connections}", Closing.REFUSED)
        if excess > len(oldest) > 0:
            # The limit was lowered by much: other connections are served before the next ones are closed.
            asyncio.get_running_loop().call_later(_NEXT_S, self.close_excess)

    def _follow(self) -> BrokerConfig:
        config = self._config()
        if config is not self._followed:
            self._followed = config
            self._of_listeners = config.listener_max_connections
            self._privileged = config.privileged_listener
        return config
