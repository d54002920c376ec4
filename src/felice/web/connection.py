"""One connection of an HTTP server: uvicorn's HTTP/1.1 on h11, with limits.

Keeps true: every wait for the client ends. A head has `head_s`, the client's next request `idle_s`, a client that reads
            an answer `unread_s` for each step, and the rest of a body that nobody wants `linger_s`. Which connection
            gives way when there are too many, decides `crowd`.
            A client that is still sending when its answer is ready gets the answer: the connection is not closed before
            the rest of the body was read, or `linger_s` passed.
            Malformed HTTP is answered in the shape of all errors, and never with a traceback.
Leaves:     size and time of bodies to `bodies`, which also works without this module, and errors of the application to
            `application`.
How:        it extends uvicorn's protocol, and uses these parts of it: `conn` (h11), `cycle` (the request that is being
            answered), `app`, `transport`, `send_400_response`, `on_response_complete`, `timeout_keep_alive_handler`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from felice.web.crowd import Waits
from felice.web.deadline import Deadline
from felice.web.errors import HttpError
from felice.web.http2 import switching
from felice.web.shared import AGAIN_S, Shared, has_unread

_log = logging.getLogger("felice.web")
# What uvicorn tells about single connections is for its developers; what operators need, this module and `application`
# tell.
_of_uvicorn = logging.getLogger("felice.web.uvicorn")
_of_uvicorn.setLevel(logging.CRITICAL)


# A client that does not read keeps two pieces of its answer in the transport.
_PIECE_BYTES = 64 * 1024


class Connection(H11Protocol):
    """A connection. asyncio calls its methods, and `crowd` calls `give_way`."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(shared.config, shared.state, shared.app_state, loop)
        self._shared = shared
        self._crowd, self._limits, self._errors = shared.crowd, shared.limits, shared.errors
        self._application: ASGIApp = shared.config.loaded_app
        self.app = self._answer
        self.logger = _of_uvicorn
        self.access_log = False
        self._deadline = Deadline()
        self._has_bytes = False
        self._is_refused = False
        self._first: bytes | None = b""  # what may be the preface of HTTP/2; None when it is not

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Waits for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._deadline.set(self._limits.head_s, self._on_late_head)
        self._crowd.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all waits."""
        self._crowd.leave(self)
        self._deadline.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request."""
        if self._is_refused:
            return
        if not self._is_answering and not self._has_bytes:
            self._has_bytes = True
            self._crowd.move(self, Waits.REQUEST)
            self._deadline.set(self._limits.head_s, self._on_late_head)
        if self._first is not None:
            data = self._first + data
            if switching.PREFACE.startswith(data[: len(switching.PREFACE)]):
                self._first = data
                if len(data) >= len(switching.PREFACE):
                    self._switch(data)
                return
            self._first = None
        super().data_received(data)
        self._follow()

    def pause_writing(self) -> None:
        """Gives the client time to read."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """The client has read a part of its answer."""
        super().resume_writing()
        self._follow()

    # Called by uvicorn.

    def on_response_complete(self) -> None:
        """Waits for the next request, or closes if the rest of this one is still to come."""
        self._has_bytes = False
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self._is_answering:
            self.transport.close()
        self._follow()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP. uvicorn calls this while it handles h11's error."""
        cause = sys.exc_info()[1]
        status = getattr(cause, "error_status_hint", HTTPStatus.BAD_REQUEST)
        # h11 names the bytes of the client behind the reason.
        reason = str(cause).partition(": bytearray")[0]
        error = self._errors.of_status(status, f"the request is not valid HTTP/1.1: {reason}")
        if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            error = self._shared.head_too_large()
        self._abandon_answer()  # of a request whose body is malformed, if its handler still waits for it
        self._refuse(error)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that was not used again."""
        super().timeout_keep_alive_handler()
        self._follow()

    # Called by `crowd`, and by the server when it stops.

    def give_way(self) -> None:
        """Ends the connection at once. One that is not in use ends properly, so that its client opens another."""
        if self._is_answering or self._has_bytes or self.transport.get_write_buffer_size():
            self._abandon_answer()
            self.transport.abort()
        else:
            self.transport.close()

    def has_bytes(self) -> bool:
        """Whether bytes wait in the socket that were not read yet."""
        return has_unread(self.transport)

    def shutdown(self) -> None:
        """Ends the connection, if a request is being answered after its answer."""
        if self._is_answering:
            self.cycle.keep_alive = False
        else:
            self.transport.close()
            self._follow()

    # The answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle
        is_told_to_go_on = not cycle.waiting_for_100_continue

        async def send_all(message: Message) -> None:
            """Sends a part of the answer; before its end, reads what is left of the request."""
            if message["type"] != "http.response.body":
                await send(message)
                return
            body, is_last = message.get("body", b""), not message.get("more_body", False)
            for start in range(
                0, len(body), _PIECE_BYTES
            ):  # each waits for the client to read the one before
                piece = body[start : start + _PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if is_last:
                if cycle.more_body and is_told_to_go_on:
                    await self._drop_body(receive)
                await send({"type": "http.response.body", "body": b""})

        try:
            if (error := self._refusal(scope)) is not None:
                await self._errors.response(error, scope)(scope, receive, send_all)
            else:
                await self._application(scope, receive, send_all)
        except (Exception, asyncio.CancelledError):
            # The application has logged it, or the server stops. A part of the answer may be on its way.
            cycle.disconnected = True
            self.transport.abort()

    def _refusal(self, scope: Scope) -> HttpError | None:
        """The error for a request that the application must not see."""
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            # A proxy before this server may see another end of the body (RFC 9112, 6.1): nothing after it is read.
            text = "a request has Content-Length or Transfer-Encoding, not both"
            return self._errors.of_status(HTTPStatus.BAD_REQUEST, text, headers={"Connection": "close"})
        return self._shared.refusal(scope)  # h11 limits a head only while it is not complete

    async def _drop_body(self, receive: Receive) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger_s):
                while (await receive()).get("more_body"):
                    pass

    def _abandon_answer(self) -> None:
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _refuse(self, error: HttpError) -> None:
        """Sends an error instead of an answer, and ends the connection when the client has it."""
        response = self._errors.response(error)
        head = h11.Response(
            status_code=response.status_code,
            headers=[*response.raw_headers, (b"connection", b"close")],
            reason=HTTPStatus(response.status_code).phrase,
        )
        try:
            sent = (self.conn.send(head), self.conn.send(h11.Data(data=bytes(response.body))))
        except h11.LocalProtocolError:  # an answer has begun already
            self.transport.abort()
            return
        self._refuse_with(b"".join(part or b"" for part in sent))

    def _refuse_with(self, answer: bytes) -> None:
        self._is_refused = True
        self._crowd.move(self, Waits.REQUEST)
        self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline.set(self._limits.linger_s, self.transport.abort)

    # HTTP/2

    def _switch(self, data: bytes) -> None:
        """Gives the connection to HTTP/2."""
        if not switching.has_http2():
            _log.info(switching.MISSING, extra={"client": "" if self.client is None else self.client[0]})
            self._refuse_with(switching.only_http1())
            return
        from felice.web.http2.connection import begin

        self._leave()
        begin(self._shared, self.transport).data_received(data)

    def _should_upgrade(self) -> bool:
        return (
            any(name == b"upgrade" for name, _ in self.headers)
            and self.scheme == "http"
            and switching.upgrade_settings(self.headers) is not None
        )

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Upgrades a request to HTTP/2. uvicorn calls this for every upgrade that `_should_upgrade` accepts."""
        from felice.web.http2.connection import begin_upgraded

        settings = switching.upgrade_settings(self.headers)
        assert settings is not None
        self._leave()
        rest = self.conn.trailing_data[0]
        made = begin_upgraded(self._shared, self.transport, settings, dict(self.scope))
        if rest:
            made.data_received(rest)

    def _leave(self) -> None:
        self._crowd.leave(self)
        self._deadline.cancel()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self._is_refused = True

    # Waits

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.disconnected

    def _follow(self) -> None:
        """States what the connection waits for now, and for how long."""
        if self._is_refused:
            return
        if self.transport.is_closing() or self.flow.write_paused:
            self._wait_for_reader()
        elif self._is_answering:
            self._deadline.cancel()
            is_half = self.conn.their_state is h11.SEND_BODY
            self._crowd.move(self, Waits.REQUEST if is_half else None)
        elif not self._has_bytes:
            self._deadline.cancel()  # uvicorn closes it after `idle_s`
            self._crowd.move(self, Waits.NEXT)

    def _wait_for_reader(self) -> None:
        self._crowd.move(self, Waits.READING)
        self._deadline.set(self._limits.unread_s, self.give_way)

    def _on_late_head(self) -> None:
        if self.has_bytes():  # this process is late, not the client
            self._deadline.set(AGAIN_S, self._on_late_head)
        elif self._has_bytes:
            limit = f"the head of the request did not arrive in {self._limits.head_s:g} s"
            self._refuse(self._errors.of_status(HTTPStatus.REQUEST_TIMEOUT, limit))
        else:
            self.transport.close()


def connections_of(shared: Shared) -> Callable[[], Connection]:
    """Makes the connections of one server, which runs on this event loop."""
    return partial(Connection, shared, asyncio.get_running_loop())
