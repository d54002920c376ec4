"""ExpireDelegationToken (key 40): the token's owner or a renewer lets it expire sooner or later, or deletes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError
from felice.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from felice.server.requests.token_requests import check_connection, refused_timestamp_ms
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = in_handler  # the token's owner and renewers


async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Changes or deletes the token, and tells when it expires."""
    try:
        check_connection(context)
        expires_ms = await context.services.security.tokens.expire(
            bytes(request.hmac), context.principal, request.expiry_time_period_ms
        )
    except ApiError as error:
        return ExpireDelegationTokenResponse(
            error_code=error.code, expiry_timestamp_ms=refused_timestamp_ms(error)
        )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
