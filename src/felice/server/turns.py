"""Turns of connections: which connection may handle requests now, and for how long.

Keeps true: one turn of one connection ends after `felice.turn.max.requests`, `.bytes` or `.ms`, whichever comes
            first. A connection with more requests waits behind the other connections that wait.
            Between two slices of turns the event loop looks at its sockets, so a request that has just arrived on
            an idle connection waits for a slice or two, however long the queue is.
            No turn begins while the replies in memory exceed `felice.unsent.max.bytes`.
How:        the first turn after bytes arrived is taken at once while the slice lasts. A connection that has more to do
            than one turn allows, or that has room again, waits in a queue, which the event loop serves slice by
            slice. Connections whose first turn came after the end of a slice wait in a queue of their own; the
            queues take turns, so that a new request does not wait for all that was there before.
Leaves:     what happens in a turn to `session`; which bytes are unsent to `outbox`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from felice.config import BrokerConfig
from felice.env import Clock
from felice.server.closings import Closing

# For this long turns follow each other before the event loop looks at its sockets.
_SLICE_S = 0.010
# When unsent replies exceed their memory, clients have this long to read before connections are closed.
PATIENCE_S = 0.5
_LOOK_AGAIN_S = 0.02


class Turn:
    """The requests, bytes and time that are left of one turn."""

    __slots__ = ("_bytes", "_deadline", "_requests")

    def __init__(self, config: BrokerConfig, begun_s: float) -> None:
        self._requests = config.felice_turn_max_requests
        self._bytes = config.felice_turn_max_bytes
        self._deadline = begun_s + config.felice_turn_max_ms / 1000

    def spend(self, size_bytes: int, now_s: float) -> bool:
        """Counts a request that was handled until `now_s`. Returns whether another request may follow in this turn."""
        self._requests -= 1
        self._bytes -= size_bytes
        return self._requests > 0 and self._bytes > 0 and now_s < self._deadline


class Waiting(Protocol):
    """A connection that can wait in the queue."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies in memory that have not left."""
        ...

    def take_turn(self, begun_s: float) -> float:
        """Handles some requests. Takes and returns the time of the monotonic clock: the begin and the end."""
        ...

    def abort(self, reason: str, kind: Closing) -> None:
        """Closes the connection at once, and logs `reason`."""


class UnsentMemory:
    """Bytes of replies in memory that wait for clients, of all connections together."""

    __slots__ = ("total_bytes",)

    def __init__(self) -> None:
        self.total_bytes = 0


class Turns:
    """The queues of waiting connections, and the time that they may use in one slice."""

    def __init__(
        self,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        connections: Callable[[], Iterable[Waiting]],
    ) -> None:
        self.unsent = UnsentMemory()
        self._clock = clock
        self._config = config
        self._connections = connections
        self._queue: OrderedDict[Waiting, None] = OrderedDict()
        self._arrived: OrderedDict[Waiting, None] = OrderedDict()
        # Time of this slice that was used by turns taken at once.
        self._used_s = 0.0
        self._is_scheduled = False
        self._full_since: float | None = None

    def limits(self, begun_s: float) -> Turn:
        """The limits of a turn that began at `begun_s`."""
        return Turn(self._config(), begun_s)

    @property
    def is_full(self) -> bool:
        """Whether so many bytes of replies are unsent that no request may be handled."""
        unsent_bytes = self.unsent.total_bytes
        return unsent_bytes > 0 and unsent_bytes > self._config().felice_unsent_max_bytes

    @property
    def waiting(self) -> int:
        """The number of connections whose requests wait for a turn."""
        return len(self._queue) + len(self._arrived)

    def take_or_wait(self, connection: Waiting, now_s: float) -> bool:
        """Gives a turn at once to a connection that has received requests, and returns whether it did.

        The connection waits instead if the slice is over or too many replies wait in memory. `now_s` is the time of
        the monotonic clock.
        """
        if self._is_scheduled and (connection in self._queue or connection in self._arrived):
            return False
        if self._used_s >= _SLICE_S or self.is_full:
            self._arrived[connection] = None
            self._schedule()
            return False
        self._used_s += connection.take_turn(now_s) - now_s
        if self._used_s >= _SLICE_S:
            self._schedule()
        return True

    def wait(self, connection: Waiting) -> None:
        """Queues the connection for a turn, behind those that wait already."""
        if connection not in self._arrived:
            self._queue[connection] = None
        self._schedule()

    def forget(self, connection: Waiting) -> None:
        """Removes a connection that has ended from both queues."""
        self._queue.pop(connection, None)
        self._arrived.pop(connection, None)

    def _schedule(self, delay_s: float = 0.0) -> None:
        if self._is_scheduled:
            return
        self._is_scheduled = True
        loop = asyncio.get_running_loop()
        if delay_s:
            loop.call_later(delay_s, self._serve)
        else:
            loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Gives turns to waiting connections for one slice of time."""
        self._is_scheduled = False
        if self._memory_is_full():
            self._schedule(_LOOK_AGAIN_S)
            return
        self._used_s = 0.0
        now_s = self._clock.monotonic()
        end_s = now_s + _SLICE_S
        try:
            for queue in self._alternating():
                connection, _ = queue.popitem(last=False)
                now_s = connection.take_turn(now_s)
                if now_s >= end_s or self.is_full:
                    break
        finally:
            # Also after an exception, which the event loop logs: the other connections must be served.
            if self._queue or self._arrived:
                self._schedule()

    def _alternating(self) -> Iterator[OrderedDict[Waiting, None]]:
        """Yields the queues alternately while they have connections; connections that are queued later wait."""
        for _ in range(max(len(self._queue), len(self._arrived))):
            if self._arrived:
                yield self._arrived
            if self._queue:
                yield self._queue

    def _memory_is_full(self) -> bool:
        """Whether to look again later. After `PATIENCE_S` the connections with most unsent bytes are closed."""
        if not self.is_full:
            self._full_since = None
            return False
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < PATIENCE_S:
            return True
        self._make_room()
        self._full_since = None
        return False

    def _make_room(self) -> None:
        """Frees half of the memory: clients that do not read would fill a smaller part before others have a turn."""
        enough = self._config().felice_unsent_max_bytes // 2
        by_size = sorted(self._connections(), key=lambda connection: connection.unsent_bytes, reverse=True)
        for connection in by_size:
            if self.unsent.total_bytes <= enough:
                break
            reason = (
                f"{connection.unsent_bytes} bytes of replies were not read, and memory for replies is short"
            )
            connection.abort(reason, Closing.NOT_READ)
