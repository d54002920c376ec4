"""Steps of requests about delegation tokens: the check of the connection, and the change of a token's expiry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode
from felice.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def check_connection(context: RequestContext) -> None:
    """Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients without a proven identity, and for logins with a token.

    Otherwise the holder of a token could create further tokens, and keep access beyond its lifetime (KIP-48).
    """
    protocol = context.services.config.security_of(context.listener_name).protocol
    is_anonymous = protocol == "SSL" and context.principal.is_same_as(ANONYMOUS)
    if protocol == "PLAINTEXT" or is_anonymous or context.principal.token_authenticated:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def refused_timestamp_ms(error: ApiError) -> int:
    """The times in the response to a refused request, as in Kafka: 0 if tokens are not enabled, otherwise -1."""
    return 0 if error.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1


async def changed_expiry_ms(
    change: Callable[[bytes, Principal, int], Awaitable[int]],
    secret: bytes,
    period_ms: int,
    context: RequestContext,
) -> tuple[int, int]:
    """Calls `DelegationTokens.renew` or `expire` for the client. Returns the error code, and when the token expires."""
    try:
        check_connection(context)
        return ErrorCode.NONE, await change(bytes(secret), context.principal, period_ms)
    except ApiError as error:
        return error.code, refused_timestamp_ms(error)
