"""One connection: bytes in, requests handled, replies out in the order of the requests.

Keeps true: the session stops reading its socket while too many requests are unanswered, while requests wait for a
            turn (after one more read), while too many bytes of replies are unsent, or while memory for large requests
            is short. So one client can neither fill the broker's memory nor delay the other clients.
            When a connection is lost, its waiting handlers are cancelled and its requests are dropped.
How:        `protocol.connection` cuts and decodes requests and orders the replies (S1). `turns` decides when, and for
            how long, requests are handled, and calls the steps of a turn: read a request, handle it, send the reply.
            A handler that does not wait needs no task. `outbox` sends the replies of one turn together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Protocol, cast

from felice.env.begun import Rest, Waiting, begin
from felice.env.listening import text_of
from felice.env.network import set_no_delay, set_send_buffer
from felice.protocol.codec import Part
from felice.protocol.connection import Request, ServerConnection, encode_reply
from felice.security.principal import ANONYMOUS
from felice.server.context import NO_REPLY, CloseConnection, RequestContext
from felice.server.flow.closings import Closing
from felice.server.flow.outbox import MAX_UNSENT_FILE_BYTES, Outbox
from felice.server.flow.request_times import ReplyTimes, Times
from felice.server.flow.timed_handler import TimedHandler
from felice.server.handlers import api_versions
from felice.server.handlers.table import Handle
from felice.server.quotas.throttling import Silence, throttled
from felice.server.services import Services


class Acceptor(Protocol):
    """The part of a listener that its sessions use."""

    name: str
    loop: asyncio.AbstractEventLoop
    is_open: bool
    services: Services
    handlers: Mapping[int, Handle]

    def admit(self, session: Session) -> bool:
        """Counts a new connection; False if a limit refuses it."""

    def forget(self, session: Session) -> None:
        """Stops counting a connection that has ended."""


class Session(asyncio.BufferedProtocol):
    """The protocol of one accepted connection."""

    connection_type: ClassVar[type[ServerConnection]] = ServerConnection

    def __init__(self, listener: Acceptor) -> None:
        services = listener.services
        self.listener = listener
        self.peer = ""
        self.address = ""
        self.client_software = ""
        self.principal = ANONYMOUS
        self.last_active = 0.0
        self._services = services
        self._clock = services.env.clock
        self._turns = services.flow.turns
        self._request_memory = services.flow.request_memory
        self._held_bytes = 0  # the bytes that `_request_memory` counts for this session
        self._requests = services.metrics.requests
        self._quotas = services.quotas
        self._request_log = services.flow.request_log
        self._silence = Silence(listener.loop, self.hold, self.release)
        self._charged_s = 0.0  # the silence that the newest reply asks for
        self._arrived_s = 0.0
        self._reply_times = ReplyTimes(self._requests)
        self._connection = self.connection_type(
            services.config.socket_request_max_bytes,
            services.apis,
            services.flow.frame_memory,
            services.config.felice_request_max_elements,
        )
        # Called by the transport: the memory for the next bytes of the connection.
        self.get_buffer = self._connection.get_buffer  # type: ignore[method-assign]
        self._max_pending = services.config.queued_max_requests
        self._max_unsent = services.config.felice_connection_unsent_max_bytes
        # The handlers that have not answered.
        self._answers: dict[Waiting[object] | asyncio.Task[None], None] = {}
        # Between the steps of a turn: the request that was decoded, and the one that was answered at once.
        self._next: Request | None = None
        self._answered: tuple[Request, object] | None = None
        self._spent = 0, 0.0  # bytes and seconds of the first request of a turn
        self._reading = True
        self._holds = 0
        self._closing = False
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None

    @property
    def is_idle(self) -> bool:
        """Whether every whole request was answered and every reply has left."""
        connection = self._connection
        has_sent = self._outbox is None or self._outbox.is_empty
        return has_sent and not connection.unanswered and not connection.frames

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies in memory that have not left."""
        return 0 if self._outbox is None else self._outbox.memory_bytes

    @property
    def waiting_replies(self) -> int:
        """Replies that were made and wait for the replies to earlier requests."""
        return sum(request.reply is not None for request in self._connection.unanswered)

    @property
    def incomplete_bytes(self) -> int:
        """Bytes of a request that has not arrived whole."""
        return self._connection.incomplete_bytes

    @property
    def client_id(self) -> str | None:
        """The client id of the last request."""
        return self._connection.client_id

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the client has shown in the TLS handshake, in DER."""
        assert self._transport is not None
        tls = self._transport.get_extra_info("ssl_object")
        certificate: bytes | None = None if tls is None else tls.getpeercert(binary_form=True)
        return certificate

    @property
    def listener_name(self) -> str:
        """The name of the listener that accepted the connection.

        Responses name the brokers' endpoints of this listener.
        """
        return self.listener.name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport. Aborts the connection if the listener does not admit it."""
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        transport = self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else str(peer)
        self.address = text_of(peer)
        self.last_active = self._clock.monotonic()
        if not self.listener.admit(self):
            transport.abort()
            return
        set_no_delay(transport)
        set_send_buffer(transport, self._services.config.socket_send_buffer_bytes)
        if not self.listener.is_open:
            transport.pause_reading()
            self._reading = False
        self._outbox = Outbox(transport, self.listener.loop, self._turns.unsent, self._on_room, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport once: cancels waiting handlers and drops unhandled requests."""
        self.listener.forget(self)
        self._drop()

    def _drop(self) -> None:
        """Stops handling: drops requests and replies, and cancels handlers that have not answered."""
        self._closing = True
        self._turns.forget(self)
        self._connection.drop()
        self._request_memory.forget(self, self._held_bytes)
        self._held_bytes = 0
        if self._outbox is not None:
            self._outbox.close()
        self._silence.cancel()
        for answer in list(self._answers):
            answer.cancel()

    def refuse_after(self, seconds: float, reason: str) -> None:
        """Handles nothing, and closes the connection when the time has passed."""
        self._silence.end_with(seconds, lambda: self.abort(reason, Closing.REFUSED))

    def begin(self) -> None:
        """Starts reading, once the broker is ready."""
        self._adjust_reading()

    def close(self) -> None:
        """Closes the connection after the replies that were made have left."""
        self._closing = True
        if self._transport is not None:
            if not self._reading:
                # If a TLS client has closed its side while reading was paused, asyncio closes the connection only when
                # reading continues.
                self._transport.resume_reading()
            self._transport.close()

    def abort(self, reason: str, kind: Closing = Closing.OTHER) -> None:
        """Closes the connection at once and logs the reason. Replies that have not left are lost."""
        if not self._closing:
            self._services.flow.closings.report(self, kind, reason)
        self._drop()
        if self._transport is not None:
            self._transport.abort()

    # Bytes in

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the transport after it received `nbytes`: handles the complete requests, or queues the session."""
        if self._closing:
            return
        self.last_active = self._arrived_s = self._clock.monotonic()
        connection = self._connection
        waits_already = bool(connection.frames)
        connection.received(nbytes)
        if connection.large_request_bytes != self._held_bytes:
            self._count_request_memory()
        if not connection.frames:
            # Part of a large request: most calls of a busy producer's connection end here.
            if self._request_memory.is_short:
                self._adjust_reading()
            return
        if not self._turns.take_or_wait(self, self._arrived_s) and waits_already:
            # Only now: most connections wait for a few milliseconds and send nothing meanwhile. To stop and start
            # reading costs two system calls.
            self._adjust_reading()

    def _count_request_memory(self) -> None:
        held_bytes = self._connection.large_request_bytes
        change_bytes, self._held_bytes = held_bytes - self._held_bytes, held_bytes
        self._request_memory.change(self, change_bytes)

    def on_memory(self) -> None:
        """Memory for large requests is free again."""
        if not self._closing:
            self._adjust_reading()

    def eof_received(self) -> bool:
        """False: the transport closes the connection when the client closes its side."""
        return False

    # A turn

    def read_request(self) -> int:
        """The first step of a turn: decodes the next request if there is room for it. Returns its size in bytes."""
        if self._next is None and not self._closing and self._has_room():
            self._next = self._connection.next_request()
        return 0 if self._next is None else self._next.size_bytes

    def handle_request(self, begun_s: float) -> float:
        """The second step: handles the request. Takes and returns the time of the monotonic clock."""
        request, self._next = self._next, None
        if request is None or self._closing:
            return begun_s
        if request.undecoded is not None:
            self._take_later(request)
            return begun_s
        self._services.image_follower.check_session()
        answer = self._call(request)
        now_s = self._clock.monotonic()
        self._spent = request.size_bytes, now_s - begun_s
        request.timing = begun_s - self._arrived_s, now_s - begun_s, now_s
        if type(answer) is Rest:
            self._await_answer(request, answer)
        elif answer is NO_REPLY:
            self._leave_unanswered(request)
        else:
            self._answered = request, answer
        return now_s

    def end_turn(self, now_s: float, end_s: float) -> float:
        """The last step: handles more requests, until `end_s` at the latest, and sends the replies."""
        if self._closing:
            return now_s
        made_bytes = self._make_reply()
        if self._connection.frames:
            now_s = self._handle_more(now_s, end_s, made_bytes)
        if self._connection.failure is not None:
            self.abort(str(self._connection.failure), Closing.NOT_UNDERSTOOD)
        now_s = self._flush(now_s)
        self._wait_or_read()
        return now_s

    def _handle_more(self, now_s: float, end_s: float, made_bytes: int) -> float:
        size_bytes, used_s = self._spent
        limits = self._turns.limits(now_s - used_s)
        while limits.spend(size_bytes + made_bytes, now_s) and now_s < end_s and not self._turns.is_full:
            size_bytes = self.read_request()
            if self._next is None:
                break
            now_s = self.handle_request(now_s)
            made_bytes = self._make_reply()
        return now_s

    def _make_reply(self) -> int:
        """Encodes the reply of a request that was answered at once. Returns its bytes in memory."""
        if self._answered is None:
            return 0
        (request, answer), self._answered = self._answered, None
        queued_s, local_s, handled_s = request.timing
        if self._quotas.are_set:
            answer = self._charge(request, answer)
        made_bytes = self._answer(request, answer)
        self._note_reply(request, handled_s, (queued_s, local_s, 0.0, self._charged_s))
        return made_bytes

    def fail(self, error: Exception) -> None:
        """Closes the connection after an exception: as a handler demands, or after a fault of the broker."""
        if isinstance(error, CloseConnection):
            is_clients_fault = self._connection.failure is not None
            self.abort(str(error), Closing.NOT_UNDERSTOOD if is_clients_fault else Closing.OTHER)
        else:
            self._services.flow.closings.report_fault(self, error)
            self.abort("internal error")

    def _wait_or_read(self) -> None:
        """Waits for another turn if requests are left and there is room; reads on if none are left."""
        connection = self._connection
        has_room = self._has_room()
        if connection.frames or self._next is not None:
            if has_room:
                self._turns.wait(self)
            self._set_reading(False)
        elif not (has_room and self._reading) or connection.large_request_bytes:
            self._set_reading(has_room)

    def _note_reply(self, request: Request, replied_s: float, times: Times) -> None:
        found = self._requests.times_of(request.api.key, request.message)
        found.add(times)
        if times[0] + times[1] + times[2] >= self._request_log.threshold_s:
            self._request_log.note(self, request, times)
        self._charged_s = 0.0
        self._reply_times.newest, self._reply_times.made_s = found, replied_s

    def hold(self) -> None:
        """Keeps later requests waiting until `release`, so that work on the current request comes first."""
        self._holds += 1

    def release(self) -> None:
        """Ends one `hold`. Handling of requests continues when none is left."""
        self._holds -= 1
        self._on_room()

    def _has_room(self) -> bool:
        outbox, unanswered = self._outbox, self._connection.unanswered
        if outbox is None or self._holds:
            return False
        if len(unanswered) >= self._max_pending:
            self._flush(self._clock.monotonic())
        return (
            len(unanswered) < self._max_pending
            and outbox.memory_bytes <= self._max_unsent
            and outbox.file_bytes <= MAX_UNSENT_FILE_BYTES
        )

    def _adjust_reading(self) -> None:
        self._set_reading(not self._connection.frames and self._has_room())

    def _set_reading(self, has_room: bool) -> None:
        wanted = has_room and self._request_memory.may_receive(self)
        if wanted == self._reading or self._closing or self._transport is None:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Requests

    def _leave_unanswered(self, request: Request) -> None:
        if self._quotas.are_set:
            self._charge(request, NO_REPLY)
        request.reply = []

    def _await_answer(self, request: Request, handler: Rest[object]) -> None:
        if self._quotas.are_set:
            handler = TimedHandler(handler, request, self._clock.monotonic)
        waiting = Waiting(handler, self.listener.loop, lambda waiting: self._on_answered(request, waiting))
        self._answers[waiting] = None

    def _call(self, request: Request) -> object:
        """The handler's answer, or what is left of the handler if it waits."""
        api_key, version = request.api.key, request.version
        counts = self._requests.counts[api_key]
        if request.message is None:
            counts[-1] = counts.get(-1, 0) + 1
            return api_versions.unsupported_version(self._services.apis)
        counts[version] = counts.get(version, 0) + 1
        context = RequestContext(self._services, api_key, version, request.client_id, self)
        try:
            return begin(self.listener.handlers[api_key](request.message, context))
        except asyncio.CancelledError as error:
            # A task or future that the handler awaits was cancelled: only this connection ends, and the turn continues.
            raise CloseConnection("the request was cancelled") from error

    def _answer(self, request: Request, answer: object) -> int:
        assert self._outbox is not None
        request.reply = reply = encode_reply(request, answer)
        self._requests.count_errors(request.api.key, answer)
        return self._outbox.count(reply)

    def _take_later(self, request: Request) -> None:
        self.hold()
        task = self.listener.loop.create_task(self._take_large(request))
        self._answers[task] = None
        task.add_done_callback(self._on_large_taken)

    def _on_large_taken(self, task: asyncio.Task[None]) -> None:
        self._answers.pop(task, None)
        self.release()

    async def _take_large(self, request: Request) -> None:
        """Handles a large request in steps. Other connections have their turns between the steps.

        Later requests of this connection wait for the reply, as in Kafka, so that at most one is in memory.
        """
        try:
            answer = await self._call_in_turn(request)
            if type(answer) is Rest:
                answer = await TimedHandler(answer, request, self._clock.monotonic)
            if self._quotas.are_set:
                answer = self._charge(request, answer)
            if answer is NO_REPLY:
                request.reply = []
            else:
                reply, errors = await self.listener.loop.run_in_executor(
                    None, self._encode_large, request, answer
                )
                assert self._outbox is not None
                self._outbox.count(reply)
                request.reply = reply
                self._requests.add_errors(request.api.key, errors)
            self._note_awaited(request, self._clock.monotonic())
        except Exception as error:
            self.fail(error)
        self._flush(self._clock.monotonic())

    def _encode_large(self, request: Request, answer: object) -> tuple[list[Part], Mapping[int, int]]:
        return encode_reply(request, answer), self._requests.errors_of(request.api.key, answer)

    async def _call_in_turn(self, request: Request) -> object:
        async with self._services.flow.large_requests.turn(lambda: self._turns.is_full):
            await self.listener.loop.run_in_executor(None, self._connection.read_large, request)
            if self._connection.failure is not None:
                raise CloseConnection(str(self._connection.failure))
            self._services.image_follower.check_session()
            begun_s = self._clock.monotonic()
            answer = self._call(request)
            handled_s = self._clock.monotonic()
            request.timing = begun_s - self._arrived_s, handled_s - begun_s, handled_s
            return answer

    def _on_answered(self, request: Request, waiting: Waiting[object]) -> None:
        self._answers.pop(waiting, None)
        if self._closing or isinstance(waiting.error, asyncio.CancelledError):
            self._report_late(waiting.error)
            return
        self.last_active = self._clock.monotonic()
        try:
            answer = waiting.result()
            if self._quotas.are_set:
                answer = self._charge(request, answer)
            if answer is NO_REPLY:
                request.reply = []
            else:
                self._answer(request, answer)
            self._note_awaited(request, self.last_active)
        except Exception as error:
            self.fail(error)
        self._flush(self.last_active)
        self._on_room()

    def _report_late(self, error: BaseException | None) -> None:
        """Reports what a handler raised after its connection was lost, if it is a fault of the broker."""
        if isinstance(error, Exception) and not isinstance(error, CloseConnection):
            self._services.flow.closings.report_fault(self, error)

    def _charge(self, request: Request, answer: object) -> object:
        """Counts the request against the quotas of its client. Returns the answer to send."""
        local_s = request.timing[1]
        answer, self._charged_s = throttled(self._quotas, request, answer, self.principal.name, local_s)
        if self._charged_s > 0 and not self._closing:
            self._silence.extend(self._charged_s)
        return answer

    def _note_awaited(self, request: Request, replied_s: float) -> None:
        queued_s, local_s, handled_s = request.timing
        request.timing = queued_s, local_s, replied_s
        self._note_reply(request, replied_s, (queued_s, local_s, replied_s - handled_s, self._charged_s))

    # Bytes out

    def _flush(self, now_s: float) -> float:
        """Sends the replies that are ready, up to the first request that has no reply yet.

        `now_s` is the time of the monotonic clock. Returns it, or the time after the sending if something was sent.
        """
        connection = self._connection
        self._reply_times.on_sendable(connection.unanswered, now_s)
        parts = connection.take_replies()
        if connection.large_request_bytes != self._held_bytes:
            self._count_request_memory()
        if not parts or self._outbox is None:
            return now_s
        has_left = self._outbox.send(parts)
        now_s = self._clock.monotonic()
        self._reply_times.on_sent(has_left, now_s)
        return now_s

    def _on_room(self) -> None:
        """A reply was made or has left, so that waiting requests may have room."""
        if (
            self._reply_times.sending_since_s is not None
            and self._outbox is not None
            and self._outbox.is_empty
        ):
            self._reply_times.on_sent(True, self._clock.monotonic())
        if not self._closing:
            self._wait_or_read()

    def pause_writing(self) -> None:
        """Called by asyncio when its buffer is not empty. `outbox` asks the transport itself."""

    def resume_writing(self) -> None:
        """Called by the transport when its buffer is nearly empty: sends more replies."""
        if self._outbox is not None:
            self._outbox.on_writable()
