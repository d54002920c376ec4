"""PushTelemetry (key 72): metrics of a client, as OpenTelemetry's protobuf (KIP-714)."""

from __future__ import annotations

import uuid

from felice.protocol.schema import binary, boolean, int8, int16, int32, request, response, uid


@request(api_key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    """The metrics of one client instance. `terminating` is set in its last push."""

    client_instance_id: uuid.UUID = uid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


@response(api_key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """Whether the metrics were accepted."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
