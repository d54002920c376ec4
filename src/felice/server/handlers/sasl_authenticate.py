"""SaslAuthenticate (key 36) where no login is due: ILLEGAL_SASL_STATE.

On a listener with SASL `felice.server.net.sasl_session` answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from felice.server.security.access_control import open_to_all

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = open_to_all


async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Refuses a login on a listener without SASL."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received on a listener without SASL",
    )
