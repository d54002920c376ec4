"""One connection: bytes in, requests handled, replies out in the order of the requests.

Keeps true: reading pauses while too many requests wait or too many bytes of replies are unsent, so one client
            cannot make the broker's memory grow. A lost connection stops what it waited for.
How:        `protocol.connection` cuts and decodes requests and orders the replies (S1). Each request is handled
            as it comes out; a handler that answers at once costs no task. Replies of one read leave in one write;
            slices of log files leave by `sendfile`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from felice.env import FileSlice
from felice.env.network import SliceSender, set_no_delay
from felice.protocol.connection import Request, ServerConnection
from felice.server.context import NO_REPLY, CloseConnection, RequestContext
from felice.server.handlers import api_versions

if TYPE_CHECKING:
    from felice.server.listener import Listener

_log = logging.getLogger("felice.server")

# Below this a slice is cheaper read and joined to its neighbours than sent by a system call of its own.
_MIN_SENDFILE_BYTES = 16 * 1024
# Reading pauses while this much is unsent: a few replies of the largest usual fetch.
MAX_UNSENT_BYTES = 64 * 1024 * 1024


class Session(asyncio.BufferedProtocol):
    """The protocol of one accepted connection."""

    def __init__(self, listener: Listener) -> None:
        broker = listener.broker
        self.listener = listener
        self.peer = ""
        self.client_software = ""
        self.last_active = 0.0
        self._broker = broker
        self._request_counts = broker.metrics.request_counts
        self._connection = ServerConnection(
            broker.config.socket_request_max_bytes, broker.apis, broker.frame_memory
        )
        self._max_pending = broker.config.queued_max_requests
        self._answers: dict[asyncio.Future[Any], None] = {}  # that handlers are to give
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
        return not self._connection.unanswered and not self._unsent and not self._sending_slice

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
        for answer in list(self._answers):
            answer.cancel()  # nobody is left to hear it
        self._unsent.clear()

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
        return self._connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._broker.env.clock.monotonic()
        self._broker.check_session()
        self._connection.received(nbytes)
        self._handle_received()

    def eof_received(self) -> bool:
        return False

    def _handle_received(self) -> None:
        """Handles every whole request that there is room for, then sends what was answered."""
        connection = self._connection
        try:
            while not self._closing and self._has_room():
                request = connection.next_request()
                if request is None:
                    break
                self._handle(request)
        except CloseConnection as error:
            self.abort(str(error))
        except Exception:
            self._fail()
        if connection.failure is not None:
            self.abort(f"the request cannot be understood: {connection.failure}")
        self._flush()
        self._adjust_reading()

    def _has_room(self) -> bool:
        if self._connection.unanswered >= self._max_pending:
            self._flush()
        return self._connection.unanswered < self._max_pending and self._unsent_bytes <= MAX_UNSENT_BYTES

    def _adjust_reading(self) -> None:
        wanted = self._has_room()
        if wanted == self._reading or self._closing or self._transport is None:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Requests

    def _handle(self, request: Request) -> None:
        connection, header = self._connection, request.header
        self._request_counts[header.api_key] += 1
        if request.message is None:
            connection.answer(request, api_versions.unsupported_version(self._broker))
            return
        context = RequestContext(self._broker, header.api_version, header.client_id, self)
        answer = self._broker.handlers[header.api_key](request.message, context)
        if type(answer) is request.api.response:
            connection.answer(request, answer)
        elif answer is NO_REPLY:
            connection.answer_nothing(request)
        else:
            future = asyncio.ensure_future(answer)
            self._answers[future] = None
            future.add_done_callback(lambda _: self._on_answered(request, future))

    def _on_answered(self, request: Request, future: asyncio.Future[Any]) -> None:
        self._answers.pop(future, None)
        if self._closing or future.cancelled():
            return
        self.last_active = self._broker.env.clock.monotonic()
        try:
            answer = future.result()
            if answer is NO_REPLY:
                self._connection.answer_nothing(request)
            else:
                self._connection.answer(request, answer)
        except CloseConnection as error:
            self.abort(str(error))
        except Exception:
            self._fail()
        self._flush()
        if not self._reading:
            self._handle_received()  # requests wait, and this reply may have made room

    def _fail(self) -> None:
        """After a fault of ours, whose exception is being handled."""
        _log.exception("a request failed", extra={"peer": self.peer})
        self.abort("internal error")

    # Bytes out

    def _flush(self) -> None:
        parts: list[Any] = self._connection.take_replies()
        for part in parts:
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
            try:
                parts = self._parts_to_write()
            except OSError as error:
                self.abort(f"the reply could not be read: {error}")
                return
            if parts:
                transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
            else:
                piece = self._unsent.popleft()
                self._unsent_bytes -= piece.size_bytes
                self._sending_slice = True
                sender.send(piece, self._on_slice_sent)

    def _parts_to_write(self) -> list[bytes | bytearray]:
        """Everything up to the next slice that goes by sendfile."""
        parts: list[bytes | bytearray] = []
        while self._unsent and not self._goes_by_sendfile(self._unsent[0]):
            part = self._unsent.popleft()
            if isinstance(part, FileSlice):
                self._unsent_bytes -= part.size_bytes
                part = _read_whole(part)
            else:
                self._unsent_bytes -= len(part)
            parts.append(part)
        return parts

    def _goes_by_sendfile(self, part: Any) -> bool:
        return (
            isinstance(part, FileSlice)
            and part.size_bytes >= _MIN_SENDFILE_BYTES
            and self._sender is not None
            and self._sender.uses_sendfile
            and part.file.has_descriptor
        )

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
