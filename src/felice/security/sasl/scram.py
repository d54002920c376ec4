"""SASL SCRAM with SHA-256 and SHA-512 (RFC 5802, RFC 7677), and the stored form of credentials.

Keeps true: the server never learns a password, and stores none: a credential holds a salt and two keys derived from the
            password. A client proves that it knows the password, and checks that the server knows the credential.
Leaves:     channel binding, which Kafka does not have.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import field
from typing import Final

from felice.dataclass import dataclass
from felice.security.principal import Principal
from felice.security.sasl.mechanism import AuthenticationFailed, Challenge, MalformedToken, Success

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_VALUE = r"[^,\0]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST = (
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_TOKEN_EXTENSION = ",tokenauth=true"
_SERVER_FIRST = (
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_NONCE}),"
    rf"s=(?P<salt>{_VALUE}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL = (
    rf"(?P<without_proof>c=(?P<binding>{_VALUE}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_VALUE})"
)
_SERVER_FINAL = rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_VALUE})){_EXTENSIONS}"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is stored about a user's password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(cls, mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """Derives the credential of a password."""
        return cls.of_salted(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)

    @classmethod
    def of_salted(
        cls, mechanism: str, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Derives the credential from the salted password, which clients send in AlterUserScramCredentials."""
        client_key = _hmac(mechanism, salted_password, b"Client Key")
        return cls(
            salt,
            hashlib.new(HASHES[mechanism], client_key).digest(),
            _hmac(mechanism, salted_password, b"Server Key"),
            iterations,
        )

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Parses the stored form. Raises `ValueError`, without the text."""
        try:
            parts = dict(part.split("=", 1) for part in text.split(","))
            salt, stored_key, server_key = (
                _decode(parts[key]) for key in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(parts["iterations"]))
        except (KeyError, ValueError):
            raise ValueError("not a SCRAM credential") from None

    def format(self) -> str:
        """Returns the stored form, which is Kafka's."""
        return (
            f"salt={_encode(self.salt)},stored_key={_encode(self.stored_key)},"
            f"server_key={_encode(self.server_key)},iterations={self.iterations}"
        )


@dataclass(frozen=True, slots=True)
class ScramUser:
    """The identity that a login proves, and its credential."""

    credential: ScramCredential
    principal: Principal
    expires_ms: int | None = None
    """When the credential expires, in milliseconds since 1970."""


UserOf = Callable[[str], ScramUser | None]
"""Finds a user by the name in the client's first message."""


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


class ScramServer:
    """The server's side of one login. `nonce` must be random and is used once.

    With the extension `tokenauth=true` the client's name is the id of a delegation token (KIP-48).
    """

    def __init__(self, mechanism: str, user_of: UserOf, user_of_token: UserOf, nonce: str) -> None:
        self.name = mechanism
        self._user_of = user_of
        self._user_of_token = user_of_token
        self._server_nonce = nonce
        self._first: re.Match[str] | None = None
        self._server_first = ""
        self._nonce = ""
        self._user: ScramUser | None = None

    def respond(self, token: bytes, now_ms: int) -> Challenge | Success:
        """Takes the client's first message, and then its proof."""
        return self._on_first(_text(token)) if self._first is None else self._on_final(_text(token))

    def _on_first(self, text: str) -> Challenge:
        found = self._first = _matched(_CLIENT_FIRST, text)
        name = _unescape(found["user"])
        authorization = found["authzid"]
        if authorization is not None and _unescape(authorization) != name:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        find = self._user_of_token if _is_by_token(found["extensions"]) else self._user_of
        user = self._user = find(name)
        if user is None or user.credential.iterations < MIN_ITERATIONS:
            raise MalformedToken("no usable credential")
        credential = user.credential
        self._nonce = found["nonce"] + self._server_nonce
        self._server_first = f"r={self._nonce},s={_encode(credential.salt)},i={credential.iterations}"
        return Challenge(self._server_first.encode())

    def _on_final(self, text: str) -> Success:
        assert self._first is not None
        found, user = _matched(_CLIENT_FINAL, text), self._user
        if user is None or found["nonce"] != self._nonce:
            raise MalformedToken("another nonce")
        if found["binding"] != _encode(self._first["header"].encode()):
            raise MalformedToken("another header")
        messages = f"{self._first['bare']},{self._server_first},{found['without_proof']}".encode()
        if not self._is_proof(_decoded(found["proof"]), user.credential, messages):
            raise MalformedToken("wrong proof")
        signature = _hmac(self.name, user.credential.server_key, messages)
        return Success(user.principal, f"v={_encode(signature)}".encode(), user.expires_ms)

    def _is_proof(self, proof: bytes, credential: ScramCredential, messages: bytes) -> bool:
        signature = _hmac(self.name, credential.stored_key, messages)
        if len(proof) != len(signature):
            return False
        client_key = _xor(proof, signature)
        found = hashlib.new(HASHES[self.name], client_key).digest()
        return hmac.compare_digest(found, credential.stored_key)


class ScramClient:
    """The client's side of one login. `nonce` must be random and is used once.

    With `is_token` user and password are the id and the HMAC (in base64) of a delegation token.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.name = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escape(user)},r={nonce}{_TOKEN_EXTENSION if is_token else ''}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        """User and nonce."""
        return f"n,,{self._bare}".encode()

    def respond(self, token: bytes) -> bytes | None:
        """Takes the server's challenge and returns the proof; then checks the server's signature."""
        try:
            if self._expected is None:
                return self._on_first(_text(token))
            self._on_final(_text(token))
        except MalformedToken as error:
            raise AuthenticationFailed(f"the broker's {self.name} message is not valid: {error}") from None
        return None

    def _on_first(self, text: str) -> bytes:
        found = _matched(_SERVER_FIRST, text)
        iterations = int(found["iterations"])
        if not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise MalformedToken("another nonce")
        if iterations < MIN_ITERATIONS:
            raise MalformedToken(f"{iterations} iterations are too few")
        key = salted(self.name, self._password, _decoded(found["salt"]), iterations)
        credential = ScramCredential.of_salted(self.name, key, b"", iterations)
        without_proof = f"c={_encode(b'n,,')},r={found['nonce']}"
        messages = f"{self._bare},{text},{without_proof}".encode()
        client_key = _hmac(self.name, key, b"Client Key")
        proof = _xor(client_key, _hmac(self.name, credential.stored_key, messages))
        self._expected = _hmac(self.name, credential.server_key, messages)
        return f"{without_proof},p={_encode(proof)}".encode()

    def _on_final(self, text: str) -> None:
        found = _matched(_SERVER_FINAL, text)
        if found["error"] is not None:
            raise AuthenticationFailed(f"the broker refused the login: {found['error']}")
        if self._expected is None or not hmac.compare_digest(_decoded(found["signature"]), self._expected):
            raise AuthenticationFailed("the broker does not know this user's credential")


def _matched(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise MalformedToken("not a SCRAM message")
    return found


def _is_by_token(extensions: str) -> bool:
    pairs = dict(part.split("=", 1) for part in extensions.split(",") if part)
    return pairs.get("tokenauth", "").lower() == "true"


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise MalformedToken("not UTF-8") from None


def _escape(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _hmac(mechanism: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, HASHES[mechanism])


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decoded(text: str) -> bytes:
    try:
        return _decode(text)
    except (binascii.Error, ValueError):
        raise MalformedToken("not base64") from None
