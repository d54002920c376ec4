"""GetTelemetrySubscriptions (key 71): tells a client which metrics to push, and how often (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError
from felice.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from felice.records.compression import Codec
from felice.server.requests.selectors import selectors_of
from felice.server.security.access_control import open_to_all

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_ACCEPTED = [int(codec) for codec in (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)]

guard = open_to_all


async def handle(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """The subscription of the client; THROTTLING_QUOTA_EXCEEDED if it asks too often."""
    telemetry = context.services.telemetry
    try:
        instance_id, subscription_id, subscription = telemetry.subscribe(
            request.client_instance_id, selectors_of(context)
        )
    except ApiError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        accepted_compression_types=_ACCEPTED,
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )
