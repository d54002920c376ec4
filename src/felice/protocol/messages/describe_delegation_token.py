"""DescribeDelegationToken (key 41): the delegation tokens that the client may see."""

from __future__ import annotations

from felice.protocol.schema import array, binary, int16, int32, int64, request, response, string, struct


@struct
class DescribeDelegationTokenOwner:
    """An owner, requester or renewer whose tokens are requested."""

    principal_type: str = string()
    principal_name: str = string()


@request(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """The owners of the requested tokens; None means all tokens, and an empty list none."""

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@struct
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


@struct
class DescribedDelegationToken:
    """One token. Its HMAC is the secret."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string(versions="3+")
    token_requester_principal_name: str = string(versions="3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


@response(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
