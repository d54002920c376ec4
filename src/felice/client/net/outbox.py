"""The requests of one connection on their way to its transport.

Keeps true:  Bytes leave in the order of `write`. Of the bytes that wait, the transport holds at most one piece.
How:         Before Python 3.12 a transport of asyncio copies the bytes that its socket does not take at once. If a
             producer is faster than its broker, these are most of the bytes. Therefore large parts wait here, without
             a copy, until the socket takes them.
             While the transport has nothing to send, all waiting parts go to the socket in one system call: the loop's
             thread waits for the interpreter's lock after each call, so one call is faster than several. The
             transport gets a small piece of the bytes that the socket did not take, and calls `resume` when the socket
             has room again. A transport that encrypts, or has no socket, gets all bytes, piece by piece.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Protocol, cast

from felice.protocol.codec import Part, join_parts
from felice.protocol.primitives import Buffer, size_of

# A larger part is written on its own: one more system call costs less than copying it.
_LARGE_PART_BYTES = 64 * 1024
_PIECE_BYTES = 1 << 20
_SMALL_PIECE_BYTES = 16 * 1024
# Systems take at least 16 parts at once (IOV_MAX of POSIX).
_MOST_PARTS = 16
_can_gather = hasattr(os, "writev")


class HasFileno(Protocol):
    """The socket below a transport."""

    def fileno(self) -> int:
        """Return its descriptor; -1 if it is closed."""


class Outbox:
    """Call `pause` and `resume` when the transport says so. The owner of a part leaves its bytes unchanged.

    `sock` is the transport's socket, if it takes the bytes as they are.
    """

    def __init__(self, transport: asyncio.Transport, sock: HasFileno | None = None) -> None:
        self._transport = transport
        self._socket = sock if _can_gather else None
        self._piece_bytes = _PIECE_BYTES if self._socket is None else _SMALL_PIECE_BYTES
        self._waiting: deque[memoryview] = deque()
        self._is_paused = False
        self._emptied: list[asyncio.Future[None]] = []

    def write(self, parts: Iterable[Part]) -> None:
        """Send these parts after all others. Small neighbours are joined."""
        small: list[Part] = []
        for part in parts:
            if size_of(part) < _LARGE_PART_BYTES:
                small.append(part)
                continue
            self._append(join_parts(small))
            small = []
            self._append(cast(Buffer, part))
        self._append(join_parts(small))
        self._push()

    def _append(self, part: Buffer) -> None:
        if part:
            self._waiting.append(memoryview(part))

    def pause(self) -> None:
        """The transport has bytes that its socket did not take."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport has nothing to send."""
        self._is_paused = False
        self._push()

    async def emptied(self) -> None:
        """Return when nothing waits: all bytes were taken by the socket, or the connection has ended."""
        if self._waiting or self._is_paused or self._transport.is_closing():
            future = asyncio.get_running_loop().create_future()
            self._emptied.append(future)
            await future

    def drop(self) -> None:
        """Forget what waits: the connection has ended."""
        self._waiting.clear()
        self._report_empty()

    def _report_empty(self) -> None:
        emptied, self._emptied = self._emptied, []
        for future in emptied:
            if not future.done():
                future.set_result(None)

    def _push(self) -> None:
        waiting = self._waiting
        # A transport that closes loses what it is given, and asyncio logs a warning for each piece. `drop` comes soon.
        while waiting and not self._is_paused and not self._transport.is_closing():
            self._write_to_socket()
            if waiting:
                self._transport.write(self._next_piece())
        if not waiting and not self._is_paused and not self._transport.is_closing():
            self._report_empty()

    def _next_piece(self) -> memoryview:
        part, size = self._waiting.popleft(), self._piece_bytes
        if len(part) > size:
            self._waiting.appendleft(part[size:])
        return part[:size]

    def _write_to_socket(self) -> None:
        """Write what the socket takes at once, if nothing is before it in the transport."""
        if self._socket is None or self._transport.get_write_buffer_size():
            return
        try:
            taken = os.writev(self._socket.fileno(), list(islice(self._waiting, _MOST_PARTS)))
        except OSError:
            return  # it has no room, or it is broken: the transport finds out
        self._forget(taken)

    def _forget(self, taken_bytes: int) -> None:
        """Drop the bytes that the socket took."""
        waiting = self._waiting
        while taken_bytes:
            part = waiting.popleft()
            if len(part) > taken_bytes:
                waiting.appendleft(part[taken_bytes:])
            taken_bytes = max(0, taken_bytes - len(part))
