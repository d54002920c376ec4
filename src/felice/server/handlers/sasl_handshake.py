"""SaslHandshake (key 17) where no login is due: ILLEGAL_SASL_STATE.

On a listener with SASL `felice.server.net.sasl_session` answers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from felice.server.security.access_control import open_to_all

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = open_to_all


async def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuses a login on a listener without SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
