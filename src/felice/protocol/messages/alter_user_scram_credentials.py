"""AlterUserScramCredentials (key 51): sets and deletes users' SCRAM credentials.

Clients send the salted password; the broker derives the keys that it stores.
"""

from __future__ import annotations

from felice.protocol.schema import array, binary, int8, int16, int32, request, response, string, struct


@struct
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion:
    """A credential to set."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


@request(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """The changes."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct
class AlterUserScramCredentialsResult:
    """The result of one user's changes."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """A result for each user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
