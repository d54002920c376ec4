"""One connection: bytes in, requests handled, replies out in the order of the requests.

Keeps true: S1 replies leave in request order, whatever order the handlers finish in.
            A request of more than `socket.request.max.bytes` closes the connection before
            memory is taken for it. Reading pauses while too many requests wait or too many
            bytes of replies are unsent, so one client cannot make the broker's memory grow.
How:        small requests are parsed where they were received, in one small buffer that all of
            a connection's requests share; a large one is received straight into a buffer of its
            own size. Replies of one read leave in one write; slices of log files leave by
            `sendfile`. A handler that answers at once costs no task.

The bytes of a request are valid until its handler first awaits: what a handler keeps longer, it
copies. (Decoding copies everything but `records`.)
"""

from __future__ import annotations

import asyncio
import logging
import mmap
from collections import deque
from typing import TYPE_CHECKING, Any

from felice.env import FileSlice
from felice.env.network import SliceSender, set_no_delay
from felice.protocol.api import API_VERSIONS_KEY
from felice.protocol.codec import decode_prefix
from felice.protocol.frames import RequestHeader, decode_request_header, encode_response_parts
from felice.protocol.primitives import MalformedMessage
from felice.server.context import NO_REPLY, CloseConnection, RequestContext
from felice.server.handlers import api_versions

if TYPE_CHECKING:
    from felice.server.listener import Listener

_log = logging.getLogger("felice.server")

_SMALL_BUFFER_BYTES = 32 * 1024
# From here on a buffer comes from the kernel in untouched pages: a frame that only claims to be large costs nothing.
_MAPPED_FRAME_BYTES = 1024 * 1024
# Below this a slice is cheaper read and joined to its neighbours than sent by a system call of its own.
_MIN_SENDFILE_BYTES = 16 * 1024
# Reading pauses while this much is unsent: a few replies of the largest usual fetch.
MAX_UNSENT_BYTES = 64 * 1024 * 1024


class _Reply:
    """A place in the order of replies. `parts` is None until the handler has answered."""

    __slots__ = ("future", "header", "parts")

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        self.parts: list[Any] | None = None
        self.future: asyncio.Future[Any] | None = None


class Session(asyncio.BufferedProtocol):
    """The protocol of one accepted connection."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.peer = ""
        self.client_software = ""
        self.last_active = 0.0
        self._broker = listener.broker
        self._max_frame_bytes = listener.broker.config.socket_request_max_bytes
        self._max_pending = listener.broker.config.queued_max_requests
        self._small = bytearray(_SMALL_BUFFER_BYTES)
        self._small_view = memoryview(self._small)
        self._start = 0
        self._end = 0
        self._frame: memoryview | None = None  # a large frame under way
        self._received = 0
        self._replies: deque[_Reply] = deque()
        self._unsent: deque[Any] = deque()
        self._unsent_bytes = 0
        self._sending_slice = False
        self._reading = True
        self._closing = False
        self._transport: asyncio.Transport | None = None
        self._sender: SliceSender | None = None

    @property
    def is_idle(self) -> bool:
        """Whether every request that came whole was answered, and the answers have left."""
        return not self._replies and not self._unsent and not self._sending_slice

    @property
    def listener_name(self) -> str:
        return self.listener.name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else str(peer)
        self.last_active = self._broker.env.clock.monotonic()
        if not self.listener.admit(self):
            transport.abort()
            return
        set_no_delay(transport)
        if not self.listener.is_open:
            transport.pause_reading()
            self._reading = False
        # Sendfile goes beside the transport: its own buffer must be known to be empty, not just low.
        transport.set_write_buffer_limits(0)
        self._sender = SliceSender(transport, self.listener.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self.listener.forget(self)
        if self._sender is not None:
            self._sender.close()
        for reply in self._replies:
            if reply.future is not None:
                reply.future.cancel()  # nobody is left to hear it
        self._replies.clear()
        self._unsent.clear()
        self._frame = None

    def begin(self) -> None:
        """The broker is ready: what the client sent meanwhile is read now."""
        self._adjust_reading()

    def close(self) -> None:
        """Closes once what was answered has left."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Closes at once because of what the client did."""
        if not self._closing:
            _log.info("connection closed", extra={"peer": self.peer, "reason": reason})
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._received :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == _SMALL_BUFFER_BYTES:
            self._move_to_front()
        return self._small_view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._broker.env.clock.monotonic()
        if self._frame is not None:
            self._received += nbytes
            if self._received < len(self._frame):
                return
            frame, self._frame = self._frame, None
            self._handle(frame)
        else:
            self._end += nbytes
        self._handle_received()

    def eof_received(self) -> bool:
        return False

    def _move_to_front(self) -> None:
        size = self._end - self._start
        self._small[:size] = bytes(self._small_view[self._start : self._end])
        self._start, self._end = 0, size

    def _handle_received(self) -> None:
        """Handles every whole request in the small buffer, then sends what was answered."""
        view = self._small_view
        while self._end - self._start >= 4 and not self._closing and not self._is_full():
            start = self._start
            size = int.from_bytes(view[start : start + 4], "big", signed=True)
            if not 0 < size <= self._max_frame_bytes:
                self.abort(f"a request of {size} bytes is not between 1 and {self._max_frame_bytes}")
                return
            if start + 4 + size > self._end:
                if size + 4 > _SMALL_BUFFER_BYTES:
                    self._begin_large(size)
                elif start + 4 + size > _SMALL_BUFFER_BYTES:
                    self._move_to_front()
                break
            self._start = start + 4 + size
            self._handle(view[start + 4 : start + 4 + size])
        self._flush()
        self._adjust_reading()

    def _begin_large(self, size: int) -> None:
        """Receives the rest of a large frame into memory of its own."""
        whole = memoryview(mmap.mmap(-1, size) if size >= _MAPPED_FRAME_BYTES else bytearray(size))
        here = self._end - self._start - 4
        whole[:here] = self._small_view[self._start + 4 : self._end]
        self._frame, self._received = whole, here
        self._start = self._end = 0

    def _is_full(self) -> bool:
        return len(self._replies) >= self._max_pending or self._unsent_bytes > MAX_UNSENT_BYTES

    def _adjust_reading(self) -> None:
        wanted = not self._is_full()
        if wanted == self._reading or self._closing or self._transport is None:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Requests

    def _handle(self, frame: memoryview) -> None:
        try:
            header, position = decode_request_header(frame)
            self._dispatch(header, frame, position)
        except MalformedMessage as error:
            self.abort(f"malformed request: {error}")
        except CloseConnection as error:
            self.abort(str(error))
        except Exception:
            _log.exception("a request failed", extra={"peer": self.peer})
            self.abort("internal error")

    def _dispatch(self, header: RequestHeader, frame: memoryview, position: int) -> None:
        entry = self._broker.handlers.get(header.api_key)
        if entry is None or not entry.first_version <= header.api_version <= entry.last_version:
            if header.api_key != API_VERSIONS_KEY or entry is None:
                # Kafka closes without a word: the client was told the versions.
                raise CloseConnection(
                    f"unsupported request: key {header.api_key} version {header.api_version}"
                )
            reply = self._reserve(header)
            # KIP-511: answered in version 0, so that any client can read which versions there are.
            response = api_versions.unsupported_version(self._broker)
            reply.parts = encode_response_parts(header.api_key, 0, header.correlation_id, response)
            return
        # Bytes behind the request are let be, as Kafka does: librdkafka asks for all topics' metadata with three
        # too many (an array's length in its old form).
        request, _ = decode_prefix(entry.request, frame, header.api_version, position)
        context = RequestContext(self._broker, header.api_version, header.client_id, self)
        answer = entry.handle(request, context)
        if answer is NO_REPLY:
            return
        reply = self._reserve(header)
        if type(answer) is entry.response:
            reply.parts = self._encode(header, answer)
        else:
            reply.future = asyncio.ensure_future(answer)
            reply.future.add_done_callback(lambda _: self._on_answered(reply))

    def _reserve(self, header: RequestHeader) -> _Reply:
        reply = _Reply(header)
        self._replies.append(reply)
        return reply

    def _on_answered(self, reply: _Reply) -> None:
        future = reply.future
        assert future is not None
        if self._closing or future.cancelled():
            return
        try:
            reply.parts = self._encode(reply.header, future.result())
        except CloseConnection as error:
            self.abort(str(error))
        except Exception:
            _log.exception("a request failed", extra={"peer": self.peer, "api": reply.header.api_key})
            self.abort("internal error")
        reply.future = None
        if not self._closing:
            self.last_active = self._broker.env.clock.monotonic()
            # The place this reply gives back may let requests be handled that wait in the buffer.
            self._flush()
            self._handle_received()

    def _encode(self, header: RequestHeader, response: Any) -> list[Any]:
        return encode_response_parts(header.api_key, header.api_version, header.correlation_id, response)

    # Bytes out

    def _flush(self) -> None:
        replies = self._replies
        while replies and replies[0].parts is not None:
            for part in replies.popleft().parts or ():
                self._unsent.append(part)
                self._unsent_bytes += part.size_bytes if isinstance(part, FileSlice) else len(part)
        self._pump()

    def _pump(self) -> None:
        """Hands on as much as can leave now: joined bytes to the transport, slices to sendfile."""
        transport, sender = self._transport, self._sender
        while self._unsent and not self._sending_slice and not self._closing:
            assert transport is not None
            assert sender is not None
            if transport.get_write_buffer_size():
                return  # `resume_writing` goes on
            part = self._unsent[0]
            if self._goes_by_sendfile(part):
                self._unsent.popleft()
                self._unsent_bytes -= part.size_bytes
                self._sending_slice = True
                sender.send(part, self._on_slice_sent)
            else:
                try:
                    transport.write(self._joined())
                except OSError as error:
                    self.abort(f"the reply could not be read: {error}")

    def _goes_by_sendfile(self, part: Any) -> bool:
        return (
            isinstance(part, FileSlice)
            and part.size_bytes >= _MIN_SENDFILE_BYTES
            and self._sender is not None
            and self._sender.uses_sendfile
        )

    def _joined(self) -> bytes | bytearray:
        """Everything up to the next slice that goes by sendfile, as one piece."""
        parts: list[Any] = []
        while self._unsent and not self._goes_by_sendfile(self._unsent[0]):
            part = self._unsent.popleft()
            if isinstance(part, FileSlice):
                self._unsent_bytes -= part.size_bytes
                part = _read_whole(part)
            else:
                self._unsent_bytes -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _on_slice_sent(self, error: OSError | None) -> None:
        self._sending_slice = False
        if error is not None:
            self.abort(f"the reply could not be sent: {error}")
        else:
            # Not from here: `_pump` may be the caller.
            self.listener.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """After room was made: sends what waits, then handles what could not be taken before."""
        self._pump()
        if not self._reading and not self._closing:
            self._handle_received()

    def pause_writing(self) -> None:
        """Asyncio's word that its buffer is not empty; `_pump` asks it itself."""

    def resume_writing(self) -> None:
        self._go_on()


def _read_whole(piece: FileSlice) -> bytes:
    data = piece.read()
    if len(data) != piece.size_bytes:
        raise OSError(f"{piece.file.path} ended before position {piece.position + piece.size_bytes}")
    return data
