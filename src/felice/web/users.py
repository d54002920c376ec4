"""A file of users and hashed passwords: a line for each, `name:scrypt:n:r:p:salt:hash`.

Keeps true: the file never holds a password. It is replaced as a whole, and only its owner can read it.
            The check of an unknown user takes as long as that of a known one.
            A changed file counts for the next check. While it cannot be read, no check succeeds.
How:        scrypt (RFC 7914) with 16 MiB and 5 passes, about 0.2 s, as OWASP recommends; on a thread.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from felice.dataclass import dataclass
from felice.web.login import CannotCheck, WrongLogin

_KIND = "scrypt"
_SALT_BYTES = 16
_DIGEST_BYTES = 32
# A hostile or mistaken file must not exhaust the memory: 128 n r bytes.
_MAX_MEMORY_BYTES = 128 * 1024 * 1024
_MAX_PASSES = 64


class BadUsersFile(Exception):
    """A file of users cannot be read or written. The text names it, the line and the reason."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What is kept of a password. `n`, `r` and `p` are scrypt's."""

    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    n: int = 2**14
    r: int = 8
    p: int = 5

    @classmethod
    def of(cls, password: str) -> PasswordHash:
        """The hash of a password, with a new salt."""
        salted = cls(secrets.token_bytes(_SALT_BYTES), b"")
        return cls(salted.salt, salted._hash(password))

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """Parses the stored form. Raises `ValueError`, without the text."""
        found = re.fullmatch(r"(\w+):(\d{1,10}):(\d{1,10}):(\d{1,10}):([^:]*):([^:]*)", text)
        if found is None:
            raise ValueError("expected name:scrypt:n:r:p:salt:hash")
        if found[1] != _KIND:
            raise ValueError(f"only {_KIND} is supported")
        n, r, p = map(int, found.groups()[1:4])
        if n < 2 or n & (n - 1) or r < 1 or 128 * n * r > _MAX_MEMORY_BYTES or not 1 <= p <= _MAX_PASSES:
            raise ValueError(f"the numbers of {_KIND} are out of range")
        try:
            salt, digest = (base64.b64decode(part, validate=True) for part in found.groups()[4:])
        except binascii.Error:
            raise ValueError("salt or hash is not base64") from None
        if not salt or not digest:
            raise ValueError("salt or hash is empty")
        return cls(salt, digest, n, r, p)

    def format(self) -> str:
        """The stored form."""
        salt, digest = base64.b64encode(self.salt).decode(), base64.b64encode(self.digest).decode()
        return f"{_KIND}:{self.n}:{self.r}:{self.p}:{salt}:{digest}"

    def matches(self, password: str) -> bool:
        """Whether it is the hash of this password."""
        return hmac.compare_digest(self._hash(password), self.digest)

    def _hash(self, password: str) -> bytes:
        memory = 128 * self.r * (self.n + self.p + 2) + 1024
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=self.salt,
            n=self.n,
            r=self.r,
            p=self.p,
            maxmem=memory,
            dklen=_DIGEST_BYTES,
        )


_NOBODY = PasswordHash(bytes(_SALT_BYTES), b"")


def read_users(path: Path) -> dict[str, PasswordHash]:
    """The users of a file. Empty lines and those that begin with `#` are left out. Raises `BadUsersFile`."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsersFile(f"{path} cannot be read: {_reason(error)}") from None
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.partition(":")
        try:
            if check_name(name) in users:
                raise ValueError(f"{name} has a line already")
            users[name] = PasswordHash.parse(text)
        except ValueError as error:
            raise BadUsersFile(f"{path}:{number}: {error}") from None
    return users


def write_users(path: Path, users: Mapping[str, PasswordHash]) -> None:
    """Replaces a file of users. Raises `BadUsersFile`."""
    text = "".join(f"{name}:{found.format()}\n" for name, found in sorted(users.items()))
    try:
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", dir=path.parent
        )  # for its owner only
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadUsersFile(f"{path} cannot be written: {_reason(error)}") from None


def check_name(name: str) -> str:
    """Returns the name. Raises `ValueError` if no user can have it: HTTP Basic ends it at a colon."""
    if not name or ":" in name or name.startswith("#") or not name.isprintable() or name != name.strip():
        raise ValueError(
            "a user's name has one or more printable characters, no colon, and no # at its beginning"
        )
    return name


class FileUsers:
    """The users of a file, which is read again when it has changed. The constructor raises `BadUsersFile`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._version()
        self._users = read_users(path)

    async def verify(self, user: str, password: str) -> None:
        """As `Users.verify`."""
        await asyncio.to_thread(self._verify, user, password)

    def _verify(self, user: str, password: str) -> None:
        try:
            version = self._version()
            if version != self._seen:
                self._users, self._seen = read_users(self._path), version
        except BadUsersFile as error:
            raise CannotCheck(str(error)) from None
        found = self._users.get(user)
        is_right = (found or _NOBODY).matches(password)
        if found is None or not is_right:
            raise WrongLogin("unknown user" if found is None else "wrong password")

    def _version(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise BadUsersFile(f"{self._path} cannot be read: {_reason(error)}") from None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _reason(error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "it is not UTF-8"
