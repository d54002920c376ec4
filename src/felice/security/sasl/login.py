"""The client's side of a SASL login over any connection: the handshake, and the tokens of a mechanism."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from felice.protocol.api import API, TypedApi
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest
from felice.security.sasl.mechanism import AuthenticationFailed, ClientMechanism

# Clients authenticate again after this share of their session, so that a slow answer does not let the session expire.
REAUTHENTICATION_SHARE = 0.85

Call = Callable[[TypedApi[Any, Any], Any], Awaitable[Any]]
"""Sends a request in a version that the broker knows, and returns the response."""


async def log_in(mechanism: ClientMechanism, call: Call) -> int:
    """Logs in. Returns after how many milliseconds the session ends, 0 for never. Raises `AuthenticationFailed`."""
    handshake = await call(API.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism.name))
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"the broker does not offer {mechanism.name}; it offers {', '.join(handshake.mechanisms) or 'none'}"
        )
    _check(handshake.error_code, "the broker has no SASL on this listener; see security.protocol")
    token: bytes | None = mechanism.first()
    session_ms = 0
    while token is not None:
        answer = await call(API.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        _check(answer.error_code, answer.error_message or "the broker gave no reason")
        session_ms = answer.session_lifetime_ms
        token = mechanism.respond(bytes(answer.auth_bytes))
    return session_ms


def _check(error_code: int, reason: str) -> None:
    if error_code != ErrorCode.NONE:
        raise AuthenticationFailed(reason)
