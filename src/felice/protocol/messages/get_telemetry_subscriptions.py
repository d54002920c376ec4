"""GetTelemetrySubscriptions (key 71): tells a client which metrics to push, and how often (KIP-714)."""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, boolean, int8, int16, int32, request, response, string, uid


@request(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """The id of the client instance; zero in its first request."""

    client_instance_id: uuid.UUID = uid()


@response(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The subscription. `requested_metrics` has prefixes of names: an empty one requests all, no prefix none."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: uuid.UUID = uid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
