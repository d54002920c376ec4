"""CreateDelegationToken (key 38): a token with which a client may log in as its owner (KIP-48).

From version 3 on, a client may create a token for another owner (KIP-373).
"""

from __future__ import annotations

from felice.protocol.schema import array, binary, int16, int32, int64, request, response, string, struct


@struct
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@request(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """The token's owner (without a name: the client itself), renewers and greatest lifetime."""

    owner_principal_type: str | None = string(versions="3+", nullable="3+")
    owner_principal_name: str | None = string(versions="3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@response(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token. Its HMAC is the secret."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(versions="3+")
    token_requester_principal_name: str = string(versions="3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
