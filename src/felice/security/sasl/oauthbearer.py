"""SASL OAUTHBEARER (RFC 7628): the client sends a token from a token issuer.

A token is a JSON Web Token. `UnsecuredTokens` checks tokens without a signature, which anybody can make: for
development only. `SignedTokens` checks tokens with the keys of their issuer.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from felice.dataclass import dataclass
from felice.security.principal import USER, Principal
from felice.security.sasl.mechanism import AuthenticationFailed, Challenge, MalformedToken, Success

NAME = "OAUTHBEARER"
_NAME = r"(?:[^=,\0\x01]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]*"
_FIRST = rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR}\x01)*)\x01"
_BEARER = r"(?i:bearer) +(?P<token>[-_.+/=0-9A-Za-z]+)"
_ACKNOWLEDGEMENT = b"\x01"


class InvalidToken(Exception):
    """A token that is not accepted, with the status that the client learns."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True)
class Token:
    """The principal of an accepted token, and when the token expires, in milliseconds since 1970."""

    principal_name: str
    expires_ms: int


Validate = Callable[[str, int], Token]
"""Checks a token at a time in milliseconds since 1970. Raises `InvalidToken`."""


class OAuthServer:
    """The server's side of one login."""

    name = NAME

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal: str | None = None

    def respond(self, token: bytes, now_ms: int) -> Challenge | Success:
        """Takes the token. A refusal is sent as a challenge first; the client's answer to it is ignored."""
        if self._refusal is not None:
            raise AuthenticationFailed(self._refusal)
        authorization, text = _parse_first(token)
        try:
            accepted = self._validate(text, now_ms)
        except InvalidToken as error:
            answer = {"status": error.status, **({"scope": error.scope} if error.scope else {})}
            self._refusal = json.dumps(answer, separators=(",", ":"))
            return Challenge(self._refusal.encode())
        if authorization not in (None, accepted.principal_name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        return Success(Principal(USER, accepted.principal_name), b"", accepted.expires_ms)


class OAuthClient:
    """The client's side of one login."""

    name = NAME

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = extensions or {}

    def first(self) -> bytes:
        """The token, and extensions for the server."""
        pairs = {"auth": f"Bearer {self._token}", **self._extensions}
        return ("n,,\x01" + "".join(f"{name}={text}\x01" for name, text in pairs.items()) + "\x01").encode()

    def respond(self, token: bytes) -> bytes | None:
        """After a refusal the server waits for an acknowledgement, and then sends the error."""
        return _ACKNOWLEDGEMENT if token else None


def _parse_first(token: bytes) -> tuple[str | None, str]:
    try:
        found = re.fullmatch(_FIRST, token.decode())
    except UnicodeDecodeError:
        raise MalformedToken("not UTF-8") from None
    if found is None:
        raise MalformedToken("not an OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    bearer = re.fullmatch(_BEARER, pairs.get("auth", ""))
    if bearer is None:
        raise MalformedToken("no bearer token")
    authorization = found["authzid"]
    if authorization is not None:
        authorization = authorization.replace("=2C", ",").replace("=3D", "=")
    return authorization, bearer["token"]


# Unsecured tokens


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Accepts tokens without a signature. The options are those of the login module."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def validate(self, token: str, now_ms: int) -> Token:
        """Checks the claims of a token. Raises `InvalidToken`."""
        header, claims = _unsigned(token)
        if header.get("alg") != "none":
            raise InvalidToken("the token is signed")
        skew_s = int(self.options.get("unsecuredValidatorAllowableClockSkewMs", "0")) / 1000
        expires_s = _number(claims, "exp")
        if expires_s is None or now_ms / 1000 >= expires_s + skew_s:
            raise InvalidToken("the token has expired")
        for claim in ("iat", "nbf"):
            found = _number(claims, claim)
            if found is not None and (int(found * 1000) > now_ms + skew_s * 1000 or found >= expires_s):
                raise InvalidToken(f"the claim {claim} is later than now, or than exp")
        self._check_scope(claims)
        name: object = claims.get(self.options.get("unsecuredValidatorPrincipalClaimName", "sub"))
        if not isinstance(name, str) or not name:
            raise InvalidToken("the token names no principal")
        return Token(name, int(expires_s * 1000))

    def _check_scope(self, claims: Mapping[str, Any]) -> None:
        wanted = self.options.get("unsecuredValidatorRequiredScope", "").split()
        given = scope_of(claims, self.options.get("unsecuredValidatorScopeClaimName", "scope"))
        if not given.issuperset(wanted):
            raise InvalidToken("the token lacks a scope", "insufficient_scope", " ".join(wanted))


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """A token without a signature."""
    return f"{_encode({'alg': 'none'})}.{_encode(claims)}."


def scope_of(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """The scope of a token, which is a text with spaces or a list. Raises `InvalidToken`."""
    scope = claims.get(name, [])
    parts = scope.split() if isinstance(scope, str) else scope
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise InvalidToken("the scope of the token is neither a text nor a list of texts")
    return frozenset(parts)


def _unsigned(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise InvalidToken("not a token without a signature")
    try:
        header, claims = (
            json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2]
        )
    except (ValueError, RecursionError):
        raise InvalidToken("the token cannot be parsed") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise InvalidToken("the token cannot be parsed")
    return header, claims


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e12:
        raise InvalidToken(f"the claim {name} is not a time")
    return float(found)


def _encode(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
