"""SaslAuthenticate (key 36): one token of a SASL login, and the server's answer.

From version 1 on, the last answer says how long the session lasts before the client must authenticate again (KIP-368).
"""

from __future__ import annotations

from felice.protocol.schema import binary, int16, int64, request, response, string


@request(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's token."""

    auth_bytes: bytes = binary()


@response(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The server's token. A lifetime of 0 means no limit."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64(versions="1+", ignorable=True)
