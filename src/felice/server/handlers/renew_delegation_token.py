"""RenewDelegationToken (key 39): the token's owner or a renewer lets it expire later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from felice.server.requests.token_requests import changed_expiry_ms
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = in_handler  # the token's owner and renewers


async def handle(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Renews the token, and tells when it expires."""
    code, expires_ms = await changed_expiry_ms(
        context.services.security.tokens.renew, request.hmac, request.renew_period_ms, context
    )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)
