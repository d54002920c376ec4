"""ExpireDelegationToken (key 40): the token's owner or a renewer lets it expire sooner or later, or deletes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from felice.server.requests.token_requests import changed_expiry_ms
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = in_handler  # the token's owner and renewers


async def handle(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Changes or deletes the token, and tells when it expires."""
    code, expires_ms = await changed_expiry_ms(
        context.services.security.tokens.expire, request.hmac, request.expiry_time_period_ms, context
    )
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)
