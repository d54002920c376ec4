"""SCRAM credentials of users, as values. This client does not administer them: calls with them raise an error."""

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
    password: bytes
    salt: bytes | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Removes a user's credential for this mechanism."""

    mechanism: ScramMechanism
