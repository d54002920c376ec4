"""Turns of connections: which connections may handle requests now, and for how long.

Keeps true: one turn of one connection ends after `felice.turn.max.requests`, `.bytes` or `.ms`, whichever comes
            first. A connection with more requests waits behind the other connections that wait.
            Turns follow each other for one slice of time. Then the event loop looks at its sockets, so a request that
            has just arrived on an idle connection waits for a slice or two, however long the queue is.
            No turn begins while the replies in memory exceed `felice.unsent.max.bytes`.
How:        a connection that has received requests waits in `_arrived` until the next slice. A connection that has
            more to do than one turn allows, that has room again, or that has waited for a slice in vain, waits in
            `_queue`. A slice serves both alternately, so that a new request does not wait for the whole `_queue`.
            The turns of up to `_BATCH` connections are taken together, step by step: all requests are decoded, then
            all are handled, then all replies are sent. The processor then runs the same code many times in a row,
            which takes a third less time than whole turns one after the other (measured with single records: 25 us a
            request instead of 40). A connection that is alone has its turn at once.
Leaves:     what happens in a turn to `session`; which bytes are unsent to `outbox`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from felice.config import BrokerConfig
from felice.env import Clock
from felice.server.flow.closings import Closing

# For this long turns follow each other before the event loop looks at its sockets.
_SLICE_S = 0.010
# At most so many connections, and about so many bytes of requests, take their turns together.
_BATCH = 64
_BATCH_BYTES = 64 * 1024
# If no other connection sent anything for this long, a connection is alone.
_ALONE_S = 0.001
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

    def read_request(self) -> int:
        """The first step of a turn: decodes the next request if there is room for it. Returns its size in bytes."""
        ...

    def handle_request(self, begun_s: float) -> float:
        """The second step: handles the request. Takes and returns the time of the monotonic clock."""
        ...

    def end_turn(self, now_s: float, end_s: float) -> float:
        """The last step: handles more requests, until `end_s` at the latest, and sends the replies."""
        ...

    def fail(self, error: Exception) -> None:
        """Closes the connection after an exception in a step of its turn."""

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
        # The connection that received bytes last, and when.
        self._latest: Waiting | None = None
        self._latest_s = float("-inf")
        self._full_since: float | None = None

    def limits(self, begun_s: float) -> Turn:
        """The limits of a turn that began at `begun_s`."""
        return Turn(self._config(), begun_s)

    @property
    def is_full(self) -> bool:
        """Whether so many bytes of replies are unsent that no request may be handled."""
        return self.unsent.total_bytes > self._config().felice_unsent_max_bytes

    @property
    def waiting(self) -> int:
        """The number of connections whose requests wait for a turn."""
        return len(self._queue) + len(self._arrived)

    def take_or_wait(self, connection: Waiting, now_s: float) -> bool:
        """Gives a turn at once to a connection that has received requests, and returns whether it did.

        The connection waits instead if others have received requests, too, if the slice is over, or if too many
        replies wait in memory. `now_s` is the time of the monotonic clock.
        """
        is_alone = connection is self._latest or now_s - self._latest_s > _ALONE_S
        self._latest, self._latest_s = connection, now_s
        is_full = self.unsent.total_bytes and self.is_full  # a call less for most requests
        if not is_alone or self._is_scheduled or self._used_s >= _SLICE_S or is_full:
            if connection not in self._queue:
                self._arrived[connection] = None
            self._schedule()
            return False
        self._read_request(connection)
        self._used_s += self._take_turns((connection,), now_s, now_s + _SLICE_S) - now_s
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
        if self._latest is connection:
            self._latest = None

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
        waiting = len(self._queue) + len(self._arrived)  # connections that are queued later wait
        try:
            while waiting > 0 and now_s < end_s and not self.is_full:
                batch = self._next_batch(min(waiting, _BATCH))
                waiting -= len(batch) or waiting
                now_s = self._take_turns(batch, now_s, end_s)
        finally:
            # What arrives now is served before what has waited for a slice in vain, however much that is.
            self._queue.update(self._arrived)
            self._arrived.clear()
            # Also after an exception, which the event loop logs: the other connections must be served.
            if self._queue:
                self._schedule()

    def _next_batch(self, most: int) -> list[Waiting]:
        """Takes connections from both queues alternately, and decodes a request of each."""
        batch: list[Waiting] = []
        size_bytes = 0
        while len(batch) < most and size_bytes < _BATCH_BYTES and (self._arrived or self._queue):
            for queue in (self._arrived, self._queue):
                if queue:
                    connection, _ = queue.popitem(last=False)
                    batch.append(connection)
                    size_bytes += self._read_request(connection)
        return batch

    def _read_request(self, connection: Waiting) -> int:
        try:
            return connection.read_request()
        except Exception as error:
            connection.fail(error)
            return 0

    def _take_turns(self, batch: Sequence[Waiting], now_s: float, end_s: float) -> float:
        """Takes the turns of these connections together. Those not reached before `end_s` go back to the queue's head.

        Replies count as unsent memory from the last step on, so the slice bounds the memory of the answers before.
        """
        handled = 0
        for connection in batch:
            try:
                now_s = connection.handle_request(now_s)
            except Exception as error:
                connection.fail(error)
            handled += 1
            if now_s >= end_s or (self.unsent.total_bytes and self.is_full):
                break
        for connection in reversed(batch[handled:]):
            self._queue[connection] = None
            self._queue.move_to_end(connection, last=False)
        for connection in batch[:handled]:
            try:
                now_s = connection.end_turn(now_s, end_s)
            except Exception as error:
                connection.fail(error)
        return now_s

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
