"""Memory of large requests of all connections together: requests that are arriving, and requests without a reply.

Keeps true: while large requests hold more than `queued.max.request.bytes`, only one connection goes on receiving its
            large request: the one whose request began first. So one request always makes progress.
            Clients that send parts of large requests and stop cannot keep that memory: if it is still short after
            `PATIENCE_S`, the connections with the largest parts are closed until half of the limit is free.
            Small requests are never held up.
How:         sessions report how much their connections hold. Bytes of an incomplete request count as they arrive; a
             whole one counts until its reply leaves. A connection that may not receive stops reading its socket.
Leaves:      counting for one connection to `protocol.connection`.

Kafka's option of this name is unlimited by default, and its memory pool counts announced sizes, so that clients that
stop sending hold their share until they are idle for `connections.max.idle.ms`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from felice.server.flow.closings import Closing

PATIENCE_S = 2.0


class Receiver(Protocol):
    """A connection that receives a large request."""

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of a request that has not arrived whole."""
        ...

    def on_memory(self) -> None:
        """The connection may receive again."""
        ...

    def abort(self, reason: str, kind: Closing) -> None:
        """Closes the connection at once, and logs `reason`."""


class RequestMemory:
    """The counter that all sessions of a broker share, and the order in which they may receive."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is -1 for no limit."""
        self.total_bytes = 0
        self._limit_bytes = limit_bytes
        self._incomplete: dict[Receiver, None] = {}  # in the order in which their requests began
        self._paused: dict[Receiver, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_short(self) -> bool:
        """Whether large requests hold more than the limit."""
        return 0 < self._limit_bytes < self.total_bytes

    def change(self, connection: Receiver, change_bytes: int) -> None:
        """Adds the change of the bytes that a connection holds; it may be negative."""
        self.total_bytes += change_bytes
        if connection.incomplete_bytes:
            self._incomplete[connection] = None
        else:
            self._incomplete.pop(connection, None)
        if self.is_short:
            self._start_patience()
        elif self._timer is not None:  # nothing is paused without a timer
            self._relieve()

    def may_receive(self, connection: Receiver) -> bool:
        """Whether to read on; a connection that may not is called back by `on_memory`."""
        if connection not in self._incomplete or not self.is_short:
            return True
        if next(iter(self._incomplete)) is connection:
            return True
        self._paused[connection] = None
        return False

    def forget(self, connection: Receiver, held_bytes: int) -> None:
        """The connection has ended, and gives back what it held."""
        was_first = next(iter(self._incomplete), None) is connection
        self._paused.pop(connection, None)
        self._incomplete.pop(connection, None)
        self.total_bytes -= held_bytes
        if not self.is_short:
            self._relieve()
        elif was_first:
            self._resume_first()

    def _relieve(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        paused, self._paused = self._paused, {}
        for connection in paused:
            connection.on_memory()

    def _resume_first(self) -> None:
        first = next(iter(self._incomplete), None)
        if first is not None and first in self._paused:
            del self._paused[first]
            first.on_memory()

    def _start_patience(self) -> None:
        self._resume_first()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._make_room)

    def _make_room(self) -> None:
        """Closes connections with large parts, unless a single one, or requests that are whole, hold the memory."""
        self._timer = None
        enough = self._limit_bytes // 2
        by_size = sorted(self._incomplete, key=lambda connection: connection.incomplete_bytes, reverse=True)
        incomplete_bytes = sum(connection.incomplete_bytes for connection in by_size)
        if len(by_size) > 1 and incomplete_bytes > enough:
            for connection in by_size:
                if self.total_bytes <= enough:
                    break
                size_bytes = connection.incomplete_bytes
                reason = (
                    f"{size_bytes} bytes of a request came without the rest, and memory for requests is short"
                )
                connection.abort(reason, Closing.NOT_SENT)
        if self.is_short:
            self._start_patience()
