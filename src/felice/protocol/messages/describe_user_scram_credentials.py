"""DescribeUserScramCredentials (key 50): the mechanisms and iterations of users' SCRAM credentials; never the keys."""

from __future__ import annotations

from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct


@struct
class UserName:
    """A user."""

    name: str = string()


@request(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """The users; null or none means all."""

    users: list[UserName] | None = array(UserName, nullable="0+")


@struct
class CredentialInfo:
    """A credential."""

    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@response(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """A result for each user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
