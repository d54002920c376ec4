"""SCRAM credentials of users: describe, set and delete them.

A password never leaves this process: the request has the salted password, from which the broker derives its keys.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from felice.client.admin.enumerations import ScramMechanism
from felice.client.admin.results import Results, outcome
from felice.client.arguments import expect
from felice.client.error import KafkaException, failure
from felice.client.net.cluster import Cluster
from felice.dataclass import dataclass
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from felice.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from felice.security.sasl.scram import salted

_SALT_BYTES = 64
_NAMES = {ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512"}


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A mechanism with its number of iterations."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    """The credentials of a user."""

    user: str
    scram_credential_infos: list[ScramCredentialInfo]


@dataclass(frozen=True, slots=True)
class UserScramCredentialAlteration:
    """A change of a user's credentials: an upsertion or a deletion."""

    user: str


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Adds or replaces a credential. Without a salt, a random salt is created."""

    scram_credential_info: ScramCredentialInfo
    password: bytes = field(repr=False)
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Removes a user's credential for this mechanism."""

    mechanism: ScramMechanism


async def describe_users(
    cluster: Cluster, users: Sequence[str] | None
) -> dict[str, UserScramCredentialsDescription | KafkaException]:
    """Return the credentials of users (None: of all that have some), or the error by user."""
    asked = None if users is None else [UserName(name=user) for user in users]
    response = await cluster.call_controller(DescribeUserScramCredentialsRequest(users=asked))
    if response.error_code:
        raise failure(response.error_code, response.error_message)
    return {
        row.user: failure(row.error_code, row.error_message or row.user)
        if row.error_code
        else _description(row)
        for row in response.results
    }


def _description(row: DescribeUserScramCredentialsResult) -> UserScramCredentialsDescription:
    infos = [
        ScramCredentialInfo(_mechanism(info.mechanism), info.iterations) for info in row.credential_infos
    ]
    return UserScramCredentialsDescription(row.user, infos)


async def alter_users(
    cluster: Cluster, alterations: Mapping[str, Iterable[UserScramCredentialAlteration]]
) -> Results:
    """Change credentials. Returns None or the error by user."""
    wanted = [one for some in alterations.values() for one in some]
    deletions = [
        ScramCredentialDeletion(name=one.user, mechanism=one.mechanism.value)
        for one in wanted
        if isinstance(one, UserScramCredentialDeletion)
    ]
    upsertions = [one for one in wanted if isinstance(one, UserScramCredentialUpsertion)]
    # On a thread: thousands of hashes for each password.
    rows = await asyncio.get_running_loop().run_in_executor(None, lambda: [_row(one) for one in upsertions])
    response = await cluster.call_controller(
        AlterUserScramCredentialsRequest(deletions=deletions, upsertions=rows)
    )
    return {row.user: outcome(row.error_code, row.error_message, row.user) for row in response.results}


def _row(one: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    info = one.scram_credential_info
    salt = one.salt or secrets.token_bytes(_SALT_BYTES)
    return ScramCredentialUpsertion(
        name=one.user,
        mechanism=info.mechanism.value,
        iterations=info.iterations,
        salt=salt,
        salted_password=salted(_NAMES[info.mechanism], one.password.decode(), salt, info.iterations),
    )


def _mechanism(number: int) -> ScramMechanism:
    known = {mechanism.value: mechanism for mechanism in ScramMechanism}
    return known.get(number, ScramMechanism.UNKNOWN)


def check_alterations(alterations: Sequence[UserScramCredentialAlteration]) -> None:
    """Raises `TypeError` or `ValueError` for alterations that no broker would accept."""
    if not isinstance(alterations, list):
        raise TypeError("expected a list of alterations")
    if not alterations:
        raise ValueError("expected at least one alteration")
    for one in alterations:
        if not isinstance(one, (UserScramCredentialUpsertion, UserScramCredentialDeletion)):
            raise TypeError("expected UserScramCredentialUpsertion or UserScramCredentialDeletion")
        if not one.user:
            raise ValueError("a user must have a name")
        if isinstance(one, UserScramCredentialUpsertion):
            _check_upsertion(one)
        else:
            expect("mechanism", one.mechanism, ScramMechanism)


def _check_upsertion(one: UserScramCredentialUpsertion) -> None:
    expect("scram_credential_info", one.scram_credential_info, ScramCredentialInfo)
    expect("mechanism", one.scram_credential_info.mechanism, ScramMechanism)
    if one.scram_credential_info.mechanism not in _NAMES:
        raise ValueError(f"{one.scram_credential_info.mechanism} cannot be used")
    if not isinstance(one.password, bytes) or not one.password:
        raise ValueError("a password is bytes, at least one")
    if one.scram_credential_info.iterations <= 0:
        raise ValueError("iterations must be above 0")
