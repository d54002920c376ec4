"""SCRAM credentials of users, as values. This client does not administer them: the calls that take them fail."""

from __future__ import annotations

from dataclasses import dataclass

from felice.client.admin.enumerations import ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A mechanism with its number of iterations."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    """The credentials that a user has."""

    user: str
    scram_credential_infos: list[ScramCredentialInfo]


@dataclass(frozen=True, slots=True)
class UserScramCredentialAlteration:
    """A change of a user's credentials: one of the two below."""

    user: str


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Add a credential, or replace it. Without a salt one is made."""

    scram_credential_info: ScramCredentialInfo
    password: bytes
    salt: bytes | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Remove a user's credential of this mechanism."""

    mechanism: ScramMechanism
