"""ExpireDelegationToken (key 40): lets a delegation token expire at another time, or deletes it at once."""

from __future__ import annotations

from felice.protocol.schema import binary, int16, int32, int64, request, response


@request(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """The token, by its HMAC, and how long it is valid from now on; a negative period deletes it."""

    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


@response(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """When the token expires."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
