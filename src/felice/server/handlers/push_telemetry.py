"""PushTelemetry (key 72): takes the metrics of a client over (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError
from felice.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from felice.server.requests.selectors import selectors_of
from felice.server.security.access_control import open_to_all
from felice.server.telemetry.clients import Push

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = open_to_all


async def handle(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Answers when the metrics were taken over."""
    push = Push(
        request.subscription_id, request.terminating, request.compression_type, bytes(request.metrics)
    )
    try:
        await context.services.telemetry.push(request.client_instance_id, selectors_of(context), push)
    except ApiError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
