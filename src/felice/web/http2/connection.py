"""One connection of HTTP/2: between asyncio, `h2` and the streams.

Keeps true: every wait for the client ends. The preface and the head of a request have `head_s`, another frame `body_s`,
            the next request `idle_s`, a client that does not read `unread_s`. When there are too many streams and
            connections of HTTP/1.1, `crowd` decides which of them is closed. A connection without streams is a
            member of the crowd itself.
            At most as many streams run as the server may have connections; those that the client has reset count
            until the application has ended (CVE-2023-44487). While the server is full, a connection has `FEW`.
            Frames without a request are limited (`calm`). A header block has at most `HEADS` times `head_bytes`.
            While more than `_MOST_UNSENT` bytes wait to be sent to a client, nothing of this client is read.
            Reading from clients never blocks the event loop for long (`turns`).
            A client that is still sending when its answer is complete may send on for `linger_s`, as in HTTP/1.1.
            A connection that ends says so (GOAWAY), and which streams it has not begun.
How:        frames are given to `h2` one by one, GOAWAY excepted: after one, sent or received, `h2` ends all streams,
            but a graceful end lets them finish.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from felice.web.bodies import USE_LONG
from felice.web.crowd import Waits
from felice.web.deadline import Deadline
from felice.web.errors import HttpError
from felice.web.http2 import calm
from felice.web.http2.calm import Calm
from felice.web.http2.frames import (
    DATA,
    GOAWAY,
    HEADERS,
    PREFACE_KIND,
    RST_STREAM,
    SETTINGS,
    BlockTooLarge,
    Frame,
    Frames,
    FrameTooLarge,
)
from felice.web.http2.streams import PIECE_BYTES, Stream
from felice.web.http2.switching import SWITCHED
from felice.web.shared import AGAIN_S, Shared, has_unread

_log = logging.getLogger("felice.web")

HEADS: Final = 4
"""A request with a head above `head_bytes` gets an error. A head above `HEADS` times this ends the connection."""
FEW: Final = 2
"""How many streams a connection may have while the server is full, so that other clients get streams, too."""
_MOST_UNSENT: Final = 128 * 1024
_TABLE_BYTES: Final = 4096
"""The size of HPACK's table in each direction. The server does not use more, even if a client allows more."""
_WINDOW_BYTES: Final = 65_535
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_OF_HTTP1 = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"http2-settings")
)


class _H2(H2Connection):
    MAX_CLOSED_STREAMS = 1000  # it remembers each of them


class Http2Connection(asyncio.Protocol):
    """A connection. asyncio calls its methods, `crowd` calls `give_way`, and streams call the methods of `Wire`."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared, self._loop = shared, loop
        self._crowd, self._limits = shared.crowd, shared.limits
        most = HEADS * self._limits.head_bytes
        self._h2 = _H2(H2Configuration(client_side=False, header_encoding=False))
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.connections,
                SettingCodes.MAX_HEADER_LIST_SIZE: self._limits.head_bytes,
            },
        )
        self._h2.decoder.max_header_list_size = most
        self._frames = Frames(most)
        self._calm = Calm(loop.time)
        self._streams: dict[int, Stream] = {}
        """The streams whose application runs."""
        self._lingering: dict[int, asyncio.TimerHandle] = {}
        """Streams that were answered before their request was complete. The rest of the request is read and dropped."""
        self._blocked: dict[Stream, None] = {}
        self._has_room = False
        self._awaited: tuple[str, int] | None = None
        """The event that the connection now waits for under a time limit: its kind, and its number within this kind."""
        self._deadline, self._unread = Deadline(), Deadline()
        self._flushing: asyncio.Handle | None = None
        self._has_more = False  # frames that have come wait for the next turn
        self._is_paused = False  # the transport takes no more
        self._is_ending = False  # GOAWAY was sent or received: no new streams
        self._is_ended = False  # nothing more is read
        self._has_settings = False
        self._unacknowledged = 0
        self.transport: asyncio.Transport = None  # type: ignore[assignment]

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the settings, and waits for the first request."""
        self._h2.initiate_connection()
        self._enter(transport)

    def begin_upgraded(self, settings: bytes, scope: Scope, transport: asyncio.BaseTransport) -> None:
        """As `connection_made`, after an upgrade: its request is the first stream."""
        self._h2.initiate_upgrade_connection(settings)
        self._enter(transport)
        headers = [pair for pair in scope["headers"] if pair[0] not in _OF_HTTP1]
        self._begin(1, {**scope, "http_version": "2", "headers": headers}, None, is_whole=True)

    def _enter(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self._scheme = "https" if is_ssl(transport) else "http"
        _notice_dead_peer(transport.get_extra_info("socket"))
        self._shared.state.connections.add(self)  # type: ignore[arg-type]
        self._crowd.enter(self)
        self._flush()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waits, and tells the applications."""
        self._is_ended = True
        self._deadline.cancel()
        self._unread.cancel()
        for timer in self._lingering.values():
            timer.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
        self._crowd.leave(self)
        self._lose_streams()
        self._shared.state.connections.discard(self)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Reads frames."""
        if self._is_ended:
            return
        self._frames.add(data)
        if not self._has_more:
            self._work()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        self._is_paused = True
        self._unread.set(self._limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_paused = False
        self._unread.cancel()
        self._wake()
        self._read_or_not()

    # Called by `crowd`, and by the server when it stops

    def give_way(self) -> None:
        """Ends a connection without streams."""
        if self._is_ended or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.shutdown()

    def has_bytes(self) -> bool:
        """Whether bytes wait that were not read yet."""
        return self._has_more or has_unread(self.transport)

    def shutdown(self) -> None:
        """Accepts no more streams, ends bodies without an end, and ends when all running streams are answered."""
        if not self._is_ended:
            self._go_away(ErrorCodes.NO_ERROR)
            for stream in self._streams.values():
                stream.stop()
            self._follow()

    # Frames

    def _work(self) -> None:
        """Reads the frames that have come, for a moment."""
        self._has_more = False
        if self._is_ended:
            return
        ends = self._shared.turns.share_ends()
        try:
            while (frame := self._frames.next()) is not None:
                self._read(frame)
                if self._is_ended:
                    return
                if self._loop.time() > ends:
                    self._has_more = True
                    self._shared.turns.later(self._work)
                    break
        except (FrameTooLarge, BlockTooLarge) as error:
            too_large = isinstance(error, FrameTooLarge)
            self._fail(ErrorCodes.FRAME_SIZE_ERROR if too_large else ErrorCodes.ENHANCE_YOUR_CALM, str(error))
            return
        except H2Error as error:
            # `h2` has written GOAWAY with the code.
            self._fail(None, str(error) or type(error).__name__)
            return
        self._flush()
        if self._has_room:
            self._has_room = False
            self._wake()
        self._follow()

    def _read(self, frame: Frame) -> None:
        if not self._calm.spend(self._cost(frame)):
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")
            return
        if frame.kind == GOAWAY:
            self._is_ending = True
            return
        for event in self._h2.receive_data(frame.data):
            self._on_event(event)

    def _cost(self, frame: Frame) -> int:
        if frame.kind in (PREFACE_KIND, HEADERS, GOAWAY):
            return 0
        if frame.kind == DATA:
            is_open = frame.stream in self._streams or frame.stream in self._lingering
            is_of_use = is_open and (frame.size > 0 or frame.ends_stream)
            return 0 if is_of_use else 1
        return {RST_STREAM: calm.RESET, SETTINGS: calm.SETTING}.get(frame.kind, 1)

    def _on_event(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._on_request(event)
            case DataReceived():
                self._on_data(event)
            case StreamEnded() | StreamReset() if event.stream_id in self._lingering:
                self._lingering.pop(event.stream_id).cancel()
            case StreamEnded() if (stream := self._streams.get(event.stream_id)) is not None:
                stream.end()
                self.wait(stream, Waits.READING if stream.is_blocked else stream.waits)
            case StreamReset() if (stream := self._streams.get(event.stream_id)) is not None:
                self._lose(stream)
            case WindowUpdated():
                self._has_room = True
            case RemoteSettingsChanged():
                self._has_settings = self._has_room = True
                if SettingCodes.HEADER_TABLE_SIZE in event.changed_settings:
                    table = min(_TABLE_BYTES, self._h2.remote_settings.header_table_size)
                    self._h2.encoder.header_table_size = table

    def _on_data(self, event: DataReceived) -> None:
        # The whole connection's window opens at once, so that a stream whose body waits does not hold the others. What
        # a stream holds, its own window limits, and how many streams hold something, `crowd`.
        assert event.flow_controlled_length is not None and event.data is not None
        self._unacknowledged += event.flow_controlled_length
        if self._unacknowledged >= _WINDOW_BYTES // 2:
            self._h2.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0
        if event.stream_id in self._lingering:
            if event.stream_ended is None and event.flow_controlled_length:
                self._h2.increment_flow_control_window(event.flow_controlled_length, event.stream_id)
            return
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        padding = event.flow_controlled_length - len(event.data)
        if event.data and not stream.is_gone:
            stream.add(event.data)
        elif not event.data and event.stream_ended is None and not self._calm.spend(1):
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames with padding only")
            return
        if padding:
            self.consumed(stream, padding)

    # Requests

    def _on_request(self, event: RequestReceived) -> None:
        id = event.stream_id
        count = len(self._streams) + len(self._lingering)
        most = self._limits.connections
        if self._is_ending or count >= (min(FEW, most) if self._crowd.is_full else most):
            self._reset(id, ErrorCodes.REFUSED_STREAM)
            if not self._calm.spend(calm.RESET):
                self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "too many requests that were refused")
            return
        scope, error = self._scope(event.headers or [])
        self._begin(id, scope, error, is_whole=event.stream_ended is not None)

    def _scope(self, headers: list[tuple[bytes, bytes]]) -> tuple[Scope, HttpError | None]:
        pseudo = {name: value for name, value in headers if name.startswith(b":")}
        method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
        sent = [(name, value) for name, value in headers if not name.startswith(b":")]
        if b":authority" in pseudo and not any(name == b"host" for name, _ in sent):
            sent.insert(0, (b"host", pseudo[b":authority"]))
        error = None
        if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(target):
            # They stand in the log, which such bytes could make unreadable.
            error = self._shared.errors.of_status(
                HTTPStatus.BAD_REQUEST, "the request is not valid HTTP/2: illegal method or path"
            )
            method, target = b"GET", b"/"
        raw_path, _, query = target.partition(b"?")
        scope: Scope = {
            "type": "http",
            "asgi": {"version": self._shared.config.asgi_version, "spec_version": "2.3"},
            "http_version": "2",
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": method.decode(),
            "root_path": "",
            "path": unquote(raw_path.decode()),
            "raw_path": raw_path,
            "query_string": query,
            "headers": sent,
            "state": self._shared.app_state.copy(),
        }
        return scope, error

    def _begin(self, id: int, scope: Scope, error: HttpError | None, *, is_whole: bool) -> None:
        expects = (b"expect", b"100-continue") in scope["headers"]
        stream = Stream(self, id, scope, self._limits.unread_s, is_whole=is_whole, expects_continue=expects)
        scope[USE_LONG] = stream.use_long
        self._crowd.leave(self)
        self._streams[id] = stream
        self._crowd.move(stream, stream.waits)
        error = error or self._shared.refusal(scope)
        task = self._loop.create_task(self._answer(stream, error))
        self._shared.state.tasks.add(task)
        task.add_done_callback(self._shared.state.tasks.discard)

    async def _answer(self, stream: Stream, error: HttpError | None) -> None:
        receive: Receive = stream.receive
        send: Send = stream.send
        try:
            if error is not None:
                await self._shared.errors.response(error, stream.scope)(stream.scope, receive, send)
            else:
                await self._shared.config.loaded_app(stream.scope, receive, send)  # type: ignore[arg-type]
        except (Exception, asyncio.CancelledError):
            pass  # the application has logged it, or the server stops
        finally:
            self._end_stream(stream)

    def _end_stream(self, stream: Stream) -> None:
        """The application has ended."""
        if not stream.is_gone and not stream.is_answered:
            self._reset(stream.id, ErrorCodes.INTERNAL_ERROR)
        stream.go()
        self._blocked.pop(stream, None)
        self._crowd.leave(stream)
        self._streams.pop(stream.id, None)
        if not self._streams and not self._is_ended:
            self._crowd.move(self, Waits.NEXT)
        self._flush()
        self._follow()

    def _lose(self, stream: Stream) -> None:
        """Nobody waits for the answer of a stream any more. It runs until its application has ended."""
        if not stream.is_gone:
            stream.go()
            if not self._is_ended:
                self._crowd.move(stream, None)

    def _reset(self, id: int, code: ErrorCodes) -> None:
        if not self._is_ended:
            with suppress(H2Error):  # it has ended
                self._h2.reset_stream(id, code)
            self._flush_soon()

    # Called by streams

    def send_head(self, stream: Stream, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Sends the head of an answer."""
        sent = [(name, value) for name, value in headers if name.lower() not in _OF_HTTP1]
        first = (b":status", str(status).encode())
        self._send(
            stream,
            lambda: self._h2.send_headers(stream.id, [first, *self._shared.state.default_headers, *sent]),
        )
        self._flush_soon()

    def send_continue(self, stream: Stream) -> None:
        """Tells the client to send its body."""
        self._send(stream, lambda: self._h2.send_headers(stream.id, [(b":status", b"100")]))
        self._flush_soon()

    def room(self, stream: Stream, wanted: int) -> int:
        """How many bytes can be sent now."""
        if self._is_paused:
            return 0
        try:
            window = self._h2.local_flow_control_window(stream.id)
        except H2Error:
            self._lose(stream)
            return 0
        return max(0, min(wanted, window, self._h2.max_outbound_frame_size, PIECE_BYTES))

    def send_part(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        """Sends bytes for which there is room."""
        self._calm.earn(calm.ANSWERED)
        self._send(stream, lambda: self._h2.send_data(stream.id, data, end_stream=is_last))
        if is_last and not stream.is_whole and not stream.is_gone:
            # Some clients read nothing before they have sent everything.
            end = partial(self._end_linger, stream.id)
            self._lingering[stream.id] = self._loop.call_later(self._limits.linger_s, end)
            stream.is_whole = True
        self._flush()

    def _end_linger(self, id: int) -> None:
        del self._lingering[id]
        self._reset(id, ErrorCodes.NO_ERROR)  # the answer is complete (RFC 9113, 8.1)

    def _send(self, stream: Stream, send: Callable[[], None]) -> None:
        if stream.is_gone:
            return
        try:
            send()
        except H2Error:
            self._lose(stream)

    def consumed(self, stream: Stream, size: int) -> None:
        """The application has taken these bytes of a body."""
        stream.unacknowledged += size
        if stream.unacknowledged >= _WINDOW_BYTES // 2 and not stream.is_whole and not stream.is_gone:
            with suppress(H2Error):
                self._h2.increment_flow_control_window(stream.unacknowledged, stream.id)
            stream.unacknowledged = 0
            self._flush_soon()

    def wait(self, stream: Stream, waits: Waits | None) -> None:
        """What the stream waits for now."""
        if not stream.is_gone:
            self._crowd.move(stream, waits)

    def block(self, stream: Stream) -> None:
        """The stream is to be woken when there is more room."""
        self._blocked[stream] = None

    def cut(self, stream: Stream) -> None:
        """Resets a stream that must give way. A client that causes many of these goes."""
        if stream.is_gone:
            return
        stream.go()
        self._reset(stream.id, ErrorCodes.ENHANCE_YOUR_CALM)
        if not self._calm.spend(calm.RESET):
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "too many requests that are not completed or read")

    def _wake(self) -> None:
        blocked = list(self._blocked)
        self._blocked.clear()
        for stream in blocked:
            stream.wake()

    # Bytes

    def _flush_soon(self) -> None:
        if self._flushing is None and not self._is_ended:
            self._flushing = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self.transport.is_closing():
            return
        if data := self._h2.data_to_send():
            self.transport.write(data)
        self._read_or_not()

    def _read_or_not(self) -> None:
        """What this client makes the server send, such as answers to PING, it must read before it sends more."""
        if self._has_more or self.transport.get_write_buffer_size() > _MOST_UNSENT:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # The end

    def _go_away(self, code: ErrorCodes, reason: str = "") -> None:
        """Says that streams which this server has not begun are not begun any more."""
        self._is_ending = True
        self._flush()
        last = self._h2.highest_inbound_stream_id
        frame = GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=reason.encode())
        if not self.transport.is_closing():
            self.transport.write(frame.serialize())

    def _fail(self, code: ErrorCodes | None, reason: str) -> None:
        """Ends the connection of a client that breaks the rules. Without a code, `h2` has written GOAWAY."""
        if self._is_ended:
            return
        client = "" if self._client is None else self._client[0]
        _log.info("a connection of HTTP/2 was ended", extra={"client": client, "reason": reason})
        if code is None:
            self._flush()
        else:
            self._go_away(code, reason)
        self._is_ended = True
        self._lose_streams()
        self._crowd.move(self, Waits.REQUEST)
        self.transport.resume_reading()  # what the client still sends is dropped, so that it gets the reason
        with suppress(OSError):  # the client has gone
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self._deadline.set(self._limits.linger_s, self.transport.abort)

    def _lose_streams(self) -> None:
        for stream in list(self._streams.values()):
            stream.go()
            self._crowd.leave(stream)

    # Waits

    def _follow(self) -> None:
        """States what of the client has a limit of time now; ends a connection that has nothing left to do."""
        if self._is_ended:
            return
        if self._is_ending and not self._streams:
            self._flush()
            self.transport.close()
            return
        awaited = self._what_is_awaited()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if awaited is None:
            self._deadline.cancel()
        else:
            limits = {"head": self._limits.head_s, "frame": self._limits.body_s, "next": self._limits.idle_s}
            self._deadline.set(limits[awaited[0]], self._on_late)

    def _what_is_awaited(self) -> tuple[str, int] | None:
        if self._has_more:
            return None
        if not self._has_settings and not self._streams:
            return "head", -1
        if self._frames.is_partial:
            return "head" if self._frames.is_partial_head else "frame", self._frames.count
        return None if self._streams else ("next", 0)

    def _on_late(self) -> None:
        if has_unread(self.transport):  # this process is late, not the client
            self._deadline.set(AGAIN_S, self._on_late)
        elif self._awaited == ("next", 0):
            self.shutdown()
        else:
            self._fail(ErrorCodes.SETTINGS_TIMEOUT, "the client did not send the rest of a frame in time")


def _notice_dead_peer(connection: socket.socket) -> None:
    """A request whose body may last for days must not wait for a machine that is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def begin(shared: Shared, transport: asyncio.Transport) -> Http2Connection:
    """Takes over a connection whose client has sent the beginning of the preface."""
    made = Http2Connection(shared, asyncio.get_running_loop())
    transport.set_protocol(made)
    made.connection_made(transport)
    return made


def begin_upgraded(
    shared: Shared, transport: asyncio.Transport, settings: bytes, scope: Scope
) -> Http2Connection:
    """Takes over a connection whose request asks for it: the request becomes the first stream."""
    made = Http2Connection(shared, asyncio.get_running_loop())
    transport.set_protocol(made)
    transport.write(SWITCHED)
    try:
        made.begin_upgraded(settings, scope, transport)
    except H2Error:  # the settings are not possible
        transport.abort()
    return made
