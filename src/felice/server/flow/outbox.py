"""The replies of one connection on their way out, in order.

Keeps true: the bytes of replies in memory are counted from the moment a reply is made until the kernel has taken it,
            for this connection and for all together. A connection that ends gives back what it had counted.
            Bytes leave in the order in which the replies were added (S1).
How:        replies are joined and handed to the transport in pieces, so that its own buffer stays small; slices of log
            files leave by `sendfile` when the transport's buffer is empty. If bytes must be encrypted first, slices
            are read in small pieces, and a turn of the event loop sends a bounded number of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from felice.env import Buffer, FileSlice
from felice.env.network import SliceSender
from felice.protocol.codec import Part
from felice.server.flow.turns import UnsentMemory

# A smaller slice is read and joined to its neighbours: that is cheaper than a system call of its own.
_MIN_SENDFILE_BYTES = 16 * 1024
# The transport copies what the kernel does not take at once: at most this much for each connection.
_WRITE_BYTES = 64 * 1024
# One turn of the event loop encrypts at most this much: about a millisecond.
_ENCRYPTED_IN_ONE_TURN_BYTES = 1024 * 1024
# Slices of files take no memory, but each holds a file open: a few replies of the largest usual fetch.
MAX_UNSENT_FILE_BYTES = 64 * 1024 * 1024


class Outbox:
    """`on_room` is called when something has left; `on_failure` when nothing more can leave."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        unsent: UnsentMemory,
        on_room: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        # Sendfile goes beside the transport: its own buffer must be known to be empty, not just low.
        # Asyncio's TLS transport reports a buffer that reaches the limit, so with 0 it would report an empty one, and
        # call `on_writable` from within `write`.
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(1 if is_encrypted else 0, 0)
        self.memory_bytes = 0
        self.file_bytes = 0
        self._transport = transport
        self._sender = SliceSender(transport, loop)
        self._loop = loop
        self._unsent = unsent
        self._on_room = on_room
        self._on_failure = on_failure
        self._parts: deque[Part] = deque()
        self._in_transport = 0
        self._is_sending_slice = False
        self._will_go_on = False
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether the kernel has taken every byte of every reply."""
        return not (self._parts or self._is_sending_slice or self._in_transport)

    def count(self, parts: Sequence[Part]) -> int:
        """Counts the parts of a reply when it is made, before it may leave. Returns its bytes in memory."""
        if self._is_closed:
            return 0
        memory_bytes = 0
        for part in parts:
            if isinstance(part, (bytearray, bytes, memoryview)):
                memory_bytes += len(part)
            else:
                self.file_bytes += part.size_bytes
        self.memory_bytes += memory_bytes
        self._unsent.total_bytes += memory_bytes
        return memory_bytes

    def send(self, parts: Sequence[Part]) -> bool:
        """Sends parts that `count` has counted, after all earlier parts. Returns whether the kernel has taken all."""
        if len(parts) == 1 and self.is_empty and not self._is_closed:
            [part] = parts
            if isinstance(part, bytearray) and len(part) <= _WRITE_BYTES:
                self._write(part)  # a small reply on an idle connection: nothing to join or to wait for
                return not self._in_transport
        self._parts.extend(parts)
        self.pump()
        return self.is_empty

    def pump(self) -> None:
        """Sends as much as can leave now: joined bytes through the transport, slices of files by sendfile."""
        budget = _ENCRYPTED_IN_ONE_TURN_BYTES
        while self._parts and not self._is_sending_slice and not self._is_closed:
            if self._in_transport:
                return  # `on_writable` continues
            try:
                joined = self._next_write()
            except OSError as error:
                self._on_failure(f"the reply could not be read: {error}")
                return
            if joined is None:
                self._send_slice()
                continue
            self._write(joined)
            budget -= len(joined)
            if budget <= 0 and not self._sender.uses_sendfile:
                self._go_on_later()
                return

    def on_writable(self) -> None:
        """The transport's buffer is empty again."""
        self._change_memory(-self._in_transport)
        self._in_transport = 0
        if self._is_sending_slice:
            self._sender.go_on()
        else:
            self._go_on()

    def close(self) -> None:
        """Drops everything that has not left, and returns its memory."""
        self._is_closed = True
        self._sender.close()
        self._parts.clear()
        self._in_transport = 0
        self._change_memory(-self.memory_bytes)
        self.file_bytes = 0

    def _change_memory(self, change: int) -> None:
        self.memory_bytes += change
        self._unsent.total_bytes += change

    def _write(self, data: Buffer) -> None:
        self._transport.write(data)
        self._in_transport = left_bytes = self._transport.get_write_buffer_size()
        self.memory_bytes += left_bytes - len(data)
        self._unsent.total_bytes += left_bytes - len(data)

    def _next_write(self) -> Buffer | None:
        """The next bytes for the transport; None if a slice for sendfile is next."""
        found: list[Buffer] = []
        room = _WRITE_BYTES
        while self._parts and room > 0 and not self._goes_by_sendfile(self._parts[0]):
            found.append(self._take(room))
            room -= len(found[-1])
        if not found:
            return None
        return found[0] if len(found) == 1 else b"".join(found)

    def _take(self, room: int) -> Buffer:
        """At most `room` bytes of the next part."""
        part = self._parts.popleft()
        if isinstance(part, FileSlice):
            if part.size_bytes > room:
                self._parts.appendleft(FileSlice(part.file, part.position + room, part.size_bytes - room))
                part = FileSlice(part.file, part.position, room)
            data = _read_whole(part)
            self.file_bytes -= len(data)
            self._change_memory(len(data))
            return data
        assert isinstance(part, (bytearray, bytes, memoryview))
        if len(part) <= room:
            return part
        view = memoryview(part)
        self._parts.appendleft(view[room:])
        return view[:room]

    def _goes_by_sendfile(self, part: Part) -> bool:
        return (
            isinstance(part, FileSlice)
            and part.size_bytes >= _MIN_SENDFILE_BYTES
            and self._sender.uses_sendfile
            and part.file.has_descriptor
        )

    def _send_slice(self) -> None:
        piece = self._parts.popleft()
        assert isinstance(piece, FileSlice)
        self.file_bytes -= piece.size_bytes
        self._is_sending_slice = True
        self._sender.send(piece, self._on_slice_sent)

    def _on_slice_sent(self, error: OSError | None) -> None:
        self._is_sending_slice = False
        # The last bytes of the slice may wait in the transport.
        self._in_transport = self._transport.get_write_buffer_size()
        self._change_memory(self._in_transport)
        if error is not None:
            self._on_failure(f"the reply could not be sent: {error}")
        elif not self._is_closed:
            # In a later turn of the event loop, because `pump` may be the caller.
            self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._will_go_on:
            self._will_go_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._will_go_on = False
        if not self._is_closed:
            self.pump()
            self._on_room()


def _read_whole(piece: FileSlice) -> bytes:
    data = piece.read()
    if len(data) != piece.size_bytes:
        raise OSError(f"{piece.file.path} ended before position {piece.position + piece.size_bytes}")
    return data
