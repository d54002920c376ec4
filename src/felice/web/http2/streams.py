"""One request of HTTP/2 and its answer, as the application sees them (ASGI).

Keeps true: the stream holds at most as many bytes of a body as the client's window allows. When the application has
            read bytes, the window opens for the same number of bytes.
            A part of an answer waits until the client has room for it, so an application that sends faster than its
            client reads waits, and nothing piles up.
            A client that reads less than a piece in `unread_s` loses its answer.
            The application learns that its client has gone from `receive`, as in HTTP/1.1.
Leaves:     frames and windows to `connection`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from starlette.types import Message, Scope

from felice.web.crowd import Waits
from felice.web.deadline import Deadline

PIECE_BYTES = 16_384
_WITHOUT_BODY = (204, 304)


class Wire(Protocol):
    """What a stream uses of its connection. None of it raises for a stream that has ended."""

    def send_head(self, stream: Stream, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Sends the head of an answer."""

    def send_continue(self, stream: Stream) -> None:
        """Tells the client to send its body."""

    def room(self, stream: Stream, wanted: int) -> int:
        """How many bytes can be sent now."""

    def send_part(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        """Sends bytes for which there is room."""

    def consumed(self, stream: Stream, size: int) -> None:
        """The application has taken these bytes of a body."""

    def wait(self, stream: Stream, waits: Waits | None) -> None:
        """What the stream waits for now."""

    def block(self, stream: Stream) -> None:
        """The stream is to be woken when there is more room."""

    def cut(self, stream: Stream) -> None:
        """Resets a stream whose client does not read."""

    def has_bytes(self) -> bool:
        """Whether bytes of the client wait to be read."""


class Stream:
    """A request. It is a member of `crowd`."""

    def __init__(
        self, wire: Wire, id: int, scope: Scope, unread_s: float, *, is_whole: bool, expects_continue: bool
    ) -> None:
        self._wire = wire
        self.id = id
        self.scope = scope
        self._unread_s = unread_s
        self.is_whole = is_whole
        """Whether all of the request has come."""
        self.is_gone = False
        """Whether the client has reset it, or is gone."""
        self.is_answered = False
        self.is_long = False
        """Whether its body is read for as long as it comes: the application says so."""
        self.unacknowledged = 0
        """Bytes that the application has taken, and that the client does not know of yet."""
        self._expects_continue = expects_continue
        self._parts: list[bytes] = []
        self._has_said_end = False
        self._is_stopped = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._deadline = Deadline()
        """The time limit for a client that does not read. It is set while the stream waits for the client."""
        self._status = 0

    # Called by the connection

    def add(self, data: bytes) -> None:
        """A part of the body has come."""
        self._parts.append(data)
        self._news.set()

    def end(self) -> None:
        """The body is complete."""
        self.is_whole = True
        self._news.set()

    def go(self) -> None:
        """The client is gone."""
        self.is_gone = True
        self._parts.clear()
        self._news.set()
        self._room.set()
        self._deadline.cancel()

    def stop(self) -> None:
        """The connection ends: a body without limits (`use_long`) has no more parts."""
        self._is_stopped = True
        self._news.set()

    def wake(self) -> None:
        """There may be room for more of the answer."""
        self._room.set()

    # Called by `crowd`

    def has_bytes(self) -> bool:
        """Whether bytes of its client wait to be read."""
        return self._wire.has_bytes()

    def give_way(self) -> None:
        """Ends it at once."""
        self._wire.cut(self)

    # Called by the application

    def use_long(self) -> None:
        """States that the body is read for as long as it comes."""
        self.is_long = True
        self._news.set()
        self._wire.wait(self, self.waits)

    async def receive(self) -> Message:
        """The next part of the body, or that the client is gone."""
        if self._expects_continue and not self._parts and not self.is_whole:
            self._wire.send_continue(self)
        self._expects_continue = False
        while True:
            if self.is_gone or self.is_answered:
                return {"type": "http.disconnect"}
            if self._parts or (self.is_whole and not self._has_said_end):
                data = b"".join(self._parts)
                self._parts.clear()
                self._has_said_end = self.is_whole
                self._wire.consumed(self, len(data))
                return {"type": "http.request", "body": data, "more_body": not self.is_whole}
            if self._is_stopped and self.is_long:
                return {"type": "http.disconnect"}
            self._news.clear()
            await self._news.wait()

    async def send(self, message: Message) -> None:
        """Sends a part of the answer, when the client has room for it."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._wire.send_head(self, self._status, list(message.get("headers", ())))
        elif message["type"] == "http.response.body":
            is_last = not message.get("more_body", False)
            has_body = self.scope["method"] != "HEAD" and self._status not in _WITHOUT_BODY
            await self._send_body(message.get("body", b"") if has_body else b"", is_last=is_last)

    async def _send_body(self, data: bytes, *, is_last: bool) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if self.is_gone:
                return
            if start:
                await asyncio.sleep(0)  # other streams have their turn
            piece = data[start : start + PIECE_BYTES]
            await self._send_piece(piece, is_last=is_last and start + PIECE_BYTES >= len(data))
        if is_last:
            if not data:
                self._wire.send_part(self, b"", is_last=True)
            self.is_answered = True
            self._news.set()

    async def _send_piece(self, piece: bytes, *, is_last: bool) -> None:
        view = memoryview(piece)
        while view and not self.is_gone:
            size = self._wire.room(self, len(view))
            if size:
                part, view = bytes(view[:size]), view[size:]
                self._wire.send_part(self, part, is_last=is_last and not view)
                continue
            self._wait_for_reader()
            self._room.clear()
            self._wire.block(self)
            await self._room.wait()
        if self.is_blocked:
            self._deadline.cancel()
            self._wire.wait(self, self.waits)

    @property
    def waits(self) -> Waits | None:
        """What the stream waits for while it does not wait for its reader."""
        return None if self.is_whole or self.is_long else Waits.REQUEST

    def _wait_for_reader(self) -> None:
        if not self.is_blocked:
            self._deadline.set(self._unread_s, self.give_way)
            self._wire.wait(self, Waits.READING)

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for its reader."""
        return self._deadline.is_set
