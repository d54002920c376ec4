"""A connection whose client logs in with SASL before anything else is answered.

Keeps true: a client that has not logged in gets answers to ApiVersions and to the requests of the login only, sends no
            large requests, and is closed at the first mistake, after `connection.failed.authentication.delay.ms`.
How:        `security.sasl.exchange` decides; this module translates requests and responses. After the login, a request
            costs one check more than on a plain connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from felice.env.begun import Waiting, begin, ended
from felice.protocol.api import API
from felice.protocol.connection import ProtocolViolation, Request, ServerConnection
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from felice.security.sasl.exchange import Answer, Exchange, Phase
from felice.server.context import CloseConnection
from felice.server.flow.closings import Closing
from felice.server.net.session import Acceptor, Session

# The version of a token that comes without a request header (after SaslHandshake version 0).
_RAW_VERSION = -1
_SIZE_BYTES = 4


class SaslConnection(ServerConnection):
    """A connection whose frames are requests or, while `takes_raw_frames`, SASL tokens without a header."""

    takes_raw_frames = False

    def _request(self, frame: memoryview | ProtocolViolation) -> Request:
        if not self.takes_raw_frames or isinstance(frame, ProtocolViolation):
            return super()._request(frame)
        token = bytes(frame)
        return Request(API.SASL_AUTHENTICATE, _RAW_VERSION, 0, self.client_id, token, len(frame))


class SaslSession(Session):
    """The protocol of one connection with SASL."""

    connection_type = SaslConnection

    def __init__(self, listener: Acceptor) -> None:
        super().__init__(listener)
        assert isinstance(self._connection, SaslConnection)
        self._sasl: SaslConnection = self._connection
        logins = self._services.security.logins
        self._exchange = Exchange(lambda: logins.offered(listener.name))
        self._sasl.limit_frames(logins.max_receive_bytes(listener.name))

    def _call(self, request: Request) -> object:
        now_ms = self._clock.now_ms()
        if self._exchange.is_open(now_ms) and request.api is not API.SASL_HANDSHAKE:
            return (
                self._unexpected_token() if request.api is API.SASL_AUTHENTICATE else super()._call(request)
            )
        return begin(self._authenticate(request, now_ms))

    def _unexpected_token(self) -> SaslAuthenticateResponse:
        return _token_response(self._exchange.on_token(b"", self._clock.now_ms()))

    async def _authenticate(self, request: Request, now_ms: int) -> Any:
        if isinstance(request.message, SaslHandshakeRequest):
            answer = self._exchange.on_handshake(request.message.mechanism, request.version, now_ms)
            self._sasl.takes_raw_frames = self._exchange.phase is Phase.RAW_TOKENS
            # A client whose handshake comes at the wrong time is not told the mechanisms, as in Kafka.
            is_due = answer.error != ErrorCode.ILLEGAL_SASL_STATE
            mechanisms = self._exchange.mechanisms if is_due else []
            response = SaslHandshakeResponse(error_code=answer.error, mechanisms=mechanisms)
            return await self._ended(response, answer)
        if request.api is API.SASL_AUTHENTICATE:
            return await self._on_token(request, now_ms)
        if request.api is API.API_VERSIONS and self._exchange.may_ask_versions():
            versions: Any = await ended(super()._call(request))
            if versions.error_code == ErrorCode.NONE:
                self._exchange.on_versions_answered()
            return versions
        return await self._refuse_other(request)

    async def _on_token(self, request: Request, now_ms: int) -> Any:
        is_raw = request.version == _RAW_VERSION
        if not is_raw and self._exchange.phase is not Phase.TOKENS:
            return await self._refuse_other(request)
        message = request.message
        token = bytes(message.auth_bytes) if isinstance(message, SaslAuthenticateRequest) else message
        assert isinstance(token, bytes)
        answer = self._exchange.on_token(token, now_ms)
        if self._exchange.phase is Phase.OPEN:
            self._open()
        if is_raw and self._exchange.phase is Phase.FAILED:
            return await self._close_later(answer.message or "the login failed")
        return await self._ended(_token_response(answer), answer)

    def _open(self) -> None:
        """The login has succeeded."""
        self._services.security.logins.successes += 1
        self.principal = self._exchange.principal
        self._sasl.takes_raw_frames = False
        self._sasl.limit_frames(self._services.config.socket_request_max_bytes)

    async def _refuse_other(self, request: Request) -> Any:
        """Ends the login because of a request that is not due now.

        After a handshake the response is ILLEGAL_SASL_STATE. Before it, and if the response has no place for an error,
        the connection is closed without a response.
        """
        was_waiting_for_token = self._exchange.phase is Phase.TOKENS
        self._exchange.fail()
        reason = f"{request.api.name} came before the login had succeeded"
        if was_waiting_for_token and request.api.has_error(request.version):
            response = request.api.refusal(ErrorCode.ILLEGAL_SASL_STATE)
            return await self._answer_later(response, reason)
        return await self._close_later(reason)

    async def _ended(self, response: Any, answer: Answer) -> Any:
        """The response; delayed, and followed by the end of the connection, if the login has failed."""
        if self._exchange.phase is not Phase.FAILED:
            return response
        return await self._answer_later(response, answer.message or ErrorCode(answer.error).name)

    async def _answer_later(self, response: Any, reason: str) -> Any:
        self.hold()  # for ever: nothing more is read
        await self._delay(reason)
        return response

    async def _close_later(self, reason: str) -> NoReturn:
        self.hold()
        await self._delay(reason)
        raise CloseConnection(reason)

    async def _delay(self, reason: str) -> None:
        self._services.security.logins.on_failure()
        self._services.flow.closings.report(self, Closing.NOT_LOGGED_IN, reason)
        await asyncio.sleep(self._services.config.connection_failed_authentication_delay_ms / 1000)

    def _answer(self, request: Request, answer: object) -> int:
        if request.version != _RAW_VERSION:
            return super()._answer(request, answer)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert self._outbox is not None
        token = bytes(answer.auth_bytes)
        request.reply = [len(token).to_bytes(_SIZE_BYTES, "big") + token]
        return self._outbox.count(request.reply)

    def _on_answered(self, request: Request, waiting: Waiting[object]) -> None:
        super()._on_answered(request, waiting)
        self._close_if_failed()

    def _on_large_taken(self, task: asyncio.Task[None]) -> None:
        super()._on_large_taken(task)
        self._close_if_failed()

    def _close_if_failed(self) -> None:
        if self._exchange.phase is Phase.FAILED and not self._closing:
            self.close()


def _token_response(answer: Answer) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=answer.error,
        error_message=answer.message or "",
        auth_bytes=answer.token,
        session_lifetime_ms=answer.session_ms,
    )
