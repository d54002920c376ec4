"""The requests of one connection on their way to its transport.

Keeps true:  Bytes leave in the order of `write`. Of the bytes that wait, the transport holds at most one piece.
How:         asyncio copies what the socket does not take at once (before Python 3.12), and with a producer that is
             faster than its broker this is most of what it sends. So large parts stay where they are, and go to the
             transport piece by piece while it has nothing to send.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import cast

from felice.protocol.codec import Part, join_parts
from felice.protocol.primitives import Buffer, size_of

# A larger part is written on its own: one more system call costs less than copying it.
_LARGE_PART_BYTES = 64 * 1024
_PIECE_BYTES = 1 << 20


class Outbox:
    """Call `pause` and `resume` when the transport says so. The owner of a part leaves its bytes unchanged."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
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
        if self._waiting or self._is_paused:
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
        while waiting and not self._is_paused:
            part = waiting.popleft()
            if len(part) > _PIECE_BYTES:
                waiting.appendleft(part[_PIECE_BYTES:])
            self._transport.write(part[:_PIECE_BYTES])
        if self._emptied and not self._is_paused:
            self._report_empty()
