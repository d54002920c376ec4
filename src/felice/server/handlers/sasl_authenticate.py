"""SaslAuthenticate (key 36) where no login is due: ILLEGAL_SASL_STATE.

On a listener with SASL `felice.server.net.sasl_session` answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Refuses a login on a listener without SASL."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received on a listener without SASL",
    )
