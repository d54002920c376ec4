"""Signed tokens: checks signatures and claims with the keys of a JWKS (RFC 7517), by the library PyJWT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jwt import InvalidTokenError, PyJWK, PyJWKSet, PyJWKSetError, decode_complete, get_unverified_header
from jwt.exceptions import PyJWKError

from felice.dataclass import dataclass
from felice.security.sasl.oauthbearer import InvalidToken, Token, scope_of

# A symmetric key would have to be known to every broker, and `none` is no signature.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class BadKeys(Exception):
    """A text that is not a JWKS with usable keys."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token must say."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30


def parse_keys(text: str) -> dict[str | None, PyJWK]:
    """Parses a JWKS: keys by their ids. Raises `BadKeys`."""
    try:
        found = PyJWKSet.from_json(text)
    except (PyJWKSetError, PyJWKError, ValueError, TypeError, AttributeError) as error:
        raise BadKeys(f"not a JSON Web Key Set: {error}") from None
    return {key.key_id: key for key in found.keys}


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """Accepts tokens that were signed with one of the keys."""

    keys: Callable[[], dict[str | None, PyJWK]]
    on_unknown_key: Callable[[], None]
    claims: Claims

    def validate(self, token: str, now_ms: int) -> Token:
        """Checks the signature and the claims of a token. Raises `InvalidToken`."""
        try:
            key = self._key(token)
            wanted = self.claims
            found: dict[str, Any] = decode_complete(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=wanted.issuer,
                audience=list(wanted.audiences) or None,
                leeway=wanted.skew_s,
                options={"require": ["exp", "iat"], "verify_aud": bool(wanted.audiences)},
            )["payload"]
        except (InvalidTokenError, PyJWKError, ValueError, TypeError) as error:
            raise InvalidToken(str(error)) from None
        scope_of(found, wanted.scope_claim)
        name = found.get(wanted.principal_claim)
        if not isinstance(name, str) or not name:
            raise InvalidToken("the token names no principal")
        return Token(name, int(found["exp"] * 1000))

    def _key(self, token: str) -> PyJWK:
        key_id = get_unverified_header(token).get("kid")
        keys = self.keys()
        found = keys.get(key_id)
        if found is None and key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        if found is None:
            # The issuer may have new keys.
            self.on_unknown_key()
            raise InvalidToken("the token was signed with an unknown key")
        return found
