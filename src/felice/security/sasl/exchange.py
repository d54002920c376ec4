"""The SASL exchange of one connection, from the first request to re-authentication. Decides only.

Keeps true: before a login has succeeded, only ApiVersions (once), SaslHandshake and tokens are accepted, in this order.
            A client whose session has expired gets no further answer until it has authenticated again (KIP-368), as
            the same principal and with the same mechanism.
Leaves:     frames, delays and closing to `felice.server.net.sasl_session`; tokens to the mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.security.principal import ANONYMOUS, Principal
from felice.security.sasl.mechanism import (
    AuthenticationFailed,
    MalformedToken,
    ServerMechanism,
    Success,
    generic_failure,
)

# As in Kafka: a client must not re-authenticate more often.
MIN_REAUTHENTICATION_INTERVAL_MS = 1000


class Phase(Enum):
    """Which request the exchange expects."""

    START = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKENS = "SaslAuthenticate"
    RAW_TOKENS = "tokens without a header"
    OPEN = "any request"
    FAILED = "nothing: the connection is closed"


@dataclass(frozen=True, slots=True)
class Offered:
    """A mechanism that a listener offers."""

    start: Callable[[], ServerMechanism]
    max_session_ms: int = 0
    """How long a session lasts before the client must authenticate again; 0 for no limit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a handshake or a token. After an answer with an error in phase FAILED, close the connection.

    `session_ms` is the time until the client must authenticate again, 0 for no limit.
    """

    error: int = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    session_ms: int = 0


class Exchange:
    """The state of one connection's authentication."""

    def __init__(self, offered: Callable[[], Mapping[str, Offered]]) -> None:
        self.phase = Phase.START
        self.principal: Principal = ANONYMOUS
        self.mechanism_name = ""
        self._offered = offered
        self._mechanism: ServerMechanism | None = None
        self._max_session_ms = 0
        self._expires_ms: int | None = None
        self._last_start_ms: int | None = None
        self._is_again = False

    @property
    def mechanisms(self) -> list[str]:
        """The names of the mechanisms that the listener offers."""
        return list(self._offered())

    def is_open(self, now_ms: int) -> bool:
        """Whether other requests than those of authentication are answered."""
        return self.phase is Phase.OPEN and (self._expires_ms is None or now_ms < self._expires_ms)

    def may_ask_versions(self) -> bool:
        """Whether ApiVersions may come now."""
        return self.phase is Phase.START

    def on_versions_answered(self) -> None:
        """ApiVersions was answered without an error; it may not come again before the login."""
        if self.phase is Phase.START:
            self.phase = Phase.HANDSHAKE

    def on_handshake(self, mechanism: str, version: int, now_ms: int) -> Answer:
        """Chooses a mechanism. `version` is that of SaslHandshake; `now_ms` is wall time since 1970."""
        if self.phase is Phase.OPEN:
            if not self._may_start_again(now_ms):
                return Answer(ErrorCode.ILLEGAL_SASL_STATE)
            self._is_again = True
        elif self.phase not in (Phase.START, Phase.HANDSHAKE):
            return self._fail(ErrorCode.ILLEGAL_SASL_STATE)
        offered = self._offered().get(mechanism)
        if offered is None:
            return self._fail(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        if self._is_again and mechanism != self.mechanism_name:
            return self._fail(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Cannot change the SASL mechanism from {self.mechanism_name} in a re-authentication",
            )
        self.mechanism_name, self._mechanism = mechanism, offered.start()
        self._max_session_ms = offered.max_session_ms
        self._last_start_ms = now_ms
        self.phase = Phase.TOKENS if version >= 1 else Phase.RAW_TOKENS
        return Answer()

    def on_token(self, token: bytes, now_ms: int) -> Answer:
        """Takes the client's next token. `now_ms` is wall time since 1970."""
        if self.phase is Phase.OPEN:
            return Answer(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        if self.phase not in (Phase.TOKENS, Phase.RAW_TOKENS) or self._mechanism is None:
            return self._fail(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate came before SaslHandshake")
        try:
            step = self._mechanism.respond(token, now_ms)
        except AuthenticationFailed as error:
            return self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        except MalformedToken:
            return self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED, generic_failure(self.mechanism_name))
        if isinstance(step, Success):
            return self._succeed(step, now_ms)
        return Answer(token=step.token)

    def fail(self) -> Answer:
        """A request came that does not belong to the exchange."""
        return self._fail(ErrorCode.ILLEGAL_SASL_STATE)

    def _may_start_again(self, now_ms: int) -> bool:
        has_limit = self._expires_ms is not None
        last = self._last_start_ms
        return has_limit and (last is None or now_ms - last >= MIN_REAUTHENTICATION_INTERVAL_MS)

    def _succeed(self, success: Success, now_ms: int) -> Answer:
        if self._is_again and not success.principal.is_same_as(self.principal):
            return self._fail(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Cannot change principals during re-authentication",
            )
        session_ms = self._session_ms(success, now_ms)
        if session_ms is not None and session_ms <= 0:
            return self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED, generic_failure(self.mechanism_name))
        self.principal = success.principal
        self._expires_ms = None if session_ms is None else now_ms + session_ms
        self._mechanism = None
        self.phase = Phase.OPEN
        return Answer(token=success.token, session_ms=session_ms or 0)

    def _session_ms(self, success: Success, now_ms: int) -> int | None:
        limits = [self._max_session_ms] if self._max_session_ms > 0 else []
        if success.expires_ms is not None:
            limits.append(success.expires_ms - now_ms)
        return min(limits, default=None)

    def _fail(self, error: int, message: str | None = None) -> Answer:
        self.phase = Phase.FAILED
        self._mechanism = None
        return Answer(error, message)
