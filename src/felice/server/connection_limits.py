"""How many connections may be open at once: `max.connections` of the broker and of each listener (KIP-402).

Keeps true: a listener over its limit, or over that of the broker, accepts nothing until connections have closed.
            Brokers can always connect: the limit of all listeners together does not concern the inter-broker listener,
            unless it is the only one. Above that limit its connections displace those that were idle longest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Protocol

from felice.config import BrokerConfig
from felice.config.option import INT_MAX
from felice.server.closings import Closing

# As many as a listener accepts in one pass of the event loop.
_MOST_CLOSED_AT_ONCE = 64


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

    def make_room(self, listener: Connections) -> None:
        """Closes the connections that were idle longest if those of brokers have exceeded the limit."""
        config = self._follow()
        excess = self.count - config.max_connections
        if listener.name != self._privileged or excess <= 0:
            return
        others = [session for other in self._listeners if other is not listener for session in other.sessions]
        # A connection that is being closed still counts. It is among the oldest, and closing it again does nothing.
        for oldest in nsmallest(min(excess, _MOST_CLOSED_AT_ONCE), others, key=attrgetter("last_active")):
            oldest.abort(f"max.connections={config.max_connections}", Closing.REFUSED)

    def _follow(self) -> BrokerConfig:
        config = self._config()
        if config is not self._followed:
            self._followed = config
            self._of_listeners = config.listener_max_connections
            self._privileged = config.privileged_listener
        return config
