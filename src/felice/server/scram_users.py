"""Changes of users' SCRAM credentials: the checks, and the stored form. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from felice.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def check(user: str, changes: Sequence[Change]) -> None:
    """Raises `ApiError` unless all changes of one user are acceptable, without looking at stored credentials."""
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    for change in changes:
        if change.mechanism not in MECHANISMS:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, ScramCredentialUpsertion):
            _check_upsertion(change)
    if len({change.mechanism for change in changes}) < len(changes):
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _check_upsertion(change: ScramCredentialUpsertion) -> None:
    if change.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salted_password or not change.salt:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")


def changed(current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The user's configuration with the changes. Raises `ApiError` if a credential to delete does not exist."""
    config = dict(current)
    for change in changes:
        mechanism = MECHANISMS[change.mechanism]
        if isinstance(change, ScramCredentialUpsertion):
            config[mechanism] = ScramCredential.of_salted(
                mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
            ).format()
        elif config.pop(mechanism, None) is None:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return config
