"""RenewDelegationToken (key 39): lets a delegation token expire later, at its greatest lifetime at the latest."""

from __future__ import annotations

from felice.protocol.schema import binary, int16, int32, int64, request, response


@request(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """The token, by its HMAC, and how long it is valid from now on; a negative period means the broker's default."""

    hmac: bytes = binary()
    renew_period_ms: int = int64()


@response(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """When the token expires."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
