"""SASL PLAIN (RFC 4616): the client sends user and password."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from felice.security.principal import USER, Principal
from felice.security.sasl.mechanism import AuthenticationFailed, MalformedToken, Success

NAME = "PLAIN"
USER_PREFIX = "user_"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """The users and passwords in the options of `PlainLoginModule`: `user_alice="secret"`."""
    return {
        name.removeprefix(USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(USER_PREFIX)
    }


class PlainServer:
    """Compares the password with that of the configuration."""

    name = NAME

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def respond(self, token: bytes, now_ms: int) -> Success:
        """Takes the only token: `[authzid] NUL user NUL password`."""
        authorization, user, password = _parts(token)
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        expected = self._users.get(user)
        # The comparison takes the same time for an unknown user.
        is_equal = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_equal:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Success(Principal(USER, user))


def _parts(token: bytes) -> tuple[str, str, str]:
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise MalformedToken("not UTF-8") from None
    if len(parts) != 3:
        raise MalformedToken(f"expected 3 parts, found {len(parts)}")
    return parts[0], parts[1], parts[2]


class PlainClient:
    """Sends user and password."""

    name = NAME

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        """User and password."""
        return f"\0{self._user}\0{self._password}".encode()

    def respond(self, token: bytes) -> None:
        """The server answers with an empty token."""
        if token:
            raise AuthenticationFailed("the broker sent an unexpected token")
