"""What the SASL mechanisms have in common: their results, their errors, and the two sides' interfaces."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from felice.dataclass import dataclass
from felice.security.principal import Principal


class AuthenticationFailed(Exception):
    """A login that failed. The text is for the client: it never says whether a user exists."""


class MalformedToken(Exception):
    """A token that the mechanism cannot accept. Clients get one text for all causes: `generic_failure`."""


def generic_failure(mechanism: str) -> str:
    """The text for every failure of a mechanism whose cause clients must not learn."""
    return (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client must send another token."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Success:
    """The client is authenticated."""

    principal: Principal
    token: bytes = b""
    expires_ms: int | None = None
    """When the client's credential expires, in milliseconds since 1970."""


class ServerMechanism(Protocol):
    """The server's side of one login."""

    name: str

    def respond(self, token: bytes, now_ms: int) -> Challenge | Success:
        """Takes the client's next token. Raises `AuthenticationFailed` or `MalformedToken`."""


class ClientMechanism(Protocol):
    """The client's side of one login."""

    name: str

    def first(self) -> bytes:
        """The first token."""

    def respond(self, token: bytes) -> bytes | None:
        """Takes the server's token and returns the next one, or None after the last. Raises `AuthenticationFailed`."""
