"""Changes of users' SCRAM credentials: the checks, and the stored form. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from felice.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def check_name(user: str) -> None:
    """Raises `ApiError` for an empty name."""
    if not user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")


def _check_mechanism(change: Change, earlier: Collection[int]) -> None:
    if change.mechanism in earlier:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if change.mechanism not in MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _check_upsertion(change: ScramCredentialUpsertion) -> None:
    if change.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salted_password or not change.salt:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")


def changed(current: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The user's configuration with the changes. Raises `ApiError` for the first that Kafka would refuse."""
    config = dict(current)
    earlier: set[int] = set()
    for change in changes:
        _check_mechanism(change, earlier)
        earlier.add(change.mechanism)
        mechanism = MECHANISMS[change.mechanism]
        if isinstance(change, ScramCredentialUpsertion):
            _check_upsertion(change)
            config[mechanism] = ScramCredential.of_salted(
                mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
            ).format()
        elif config.pop(mechanism, None) is None:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return config
