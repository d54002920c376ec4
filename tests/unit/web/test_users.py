"""The file of users."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.web import users as module
from felice.web.login import CannotCheck, WrongLogin
from felice.web.users import BadUsersFile, FileUsers, PasswordHash, check_name, read_users, write_users

SECRET = PasswordHash(b"salt", b"", n=16, r=1, p=1)


def quick(password: str) -> PasswordHash:
    """A hash that takes no time."""
    return PasswordHash(SECRET.salt, SECRET._hash(password), n=16, r=1, p=1)


@pytest.mark.parametrize("password", ["", "a", "wörd ☃:\n", "x" * 10_000])
def test_a_hash_knows_its_password_and_no_other(password: str) -> None:
    made = quick(password)
    assert made.matches(password)
    assert not made.matches(password + "x")
    assert PasswordHash.parse(made.format()) == made


def test_two_hashes_of_a_password_differ_and_are_strong() -> None:
    first, second = PasswordHash.of("a secret"), PasswordHash.of("a secret")
    assert first.matches("a secret")
    assert (first.salt, first.digest) != (second.salt, second.digest)
    assert (first.n, first.r, first.p) == (16384, 8, 5)
    assert "secret" not in first.format()
    assert "digest" not in repr(first)


def test_a_file_is_written_and_read_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = {"bob": quick("b"), "alice": quick("a")}
    write_users(path, users)
    assert read_users(path) == users
    assert path.stat().st_mode & 0o777 == 0o600
    assert [line.split(":")[0] for line in path.read_text().splitlines()] == ["alice", "bob"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("alice", "expected name:scrypt:n:r:p:salt:hash"),
        ("alice:secret", "expected name:scrypt:n:r:p:salt:hash"),
        ("alice:bcrypt:1:2:3:c2FsdA==:aGFzaA==", "only scrypt is supported"),
        ("alice:scrypt:15:1:1:c2FsdA==:aGFzaA==", "the numbers of scrypt are out of range"),
        ("alice:scrypt:1073741824:8:1:c2FsdA==:aGFzaA==", "the numbers of scrypt are out of range"),
        ("alice:scrypt:16:1:99999:c2FsdA==:aGFzaA==", "the numbers of scrypt are out of range"),
        ("alice:scrypt:16:1:one:c2FsdA==:aGFzaA==", "expected name:scrypt:n:r:p:salt:hash"),
        ("alice:scrypt:16:1:1:!:aGFzaA==", "salt or hash is not base64"),
        ("alice:scrypt:16:1:1:c2FsdA==:", "salt or hash is empty"),
        (":scrypt:16:1:1:c2FsdA==:aGFzaA==", "a user's name has one or more printable characters"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users of the registry\n\n{line}\n")
    with pytest.raises(BadUsersFile, match=reason) as caught:
        read_users(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert "c2FsdA" not in str(caught.value)


def test_a_user_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"alice:{quick('a').format()}\nalice:{quick('b').format()}\n")
    with pytest.raises(BadUsersFile, match=":2: alice has a line already"):
        read_users(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadUsersFile, match="users cannot be read: no such file or directory"):
        read_users(tmp_path / "users")
    with pytest.raises(BadUsersFile, match="none/users cannot be written: no such file or directory"):
        write_users(tmp_path / "none" / "users", {})


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"\xff\xfe")
    with pytest.raises(BadUsersFile, match="users cannot be read: it is not UTF-8"):
        read_users(tmp_path / "users")


@given(st.text())
@settings(max_examples=300)
def test_a_name_that_is_allowed_survives_the_file(name: str) -> None:
    try:
        check_name(name)
    except ValueError:
        return
    line = f"{name}:{SECRET.format()}"
    assert len(line.splitlines()) == 1
    assert line.partition(":")[0] == name
    assert not line.startswith("#") and line.strip()


def verify(users: FileUsers, user: str, password: str) -> str:
    """What a check says."""
    try:
        asyncio.run(users.verify(user, password))
    except WrongLogin as error:
        return str(error)
    return "right"


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": quick("a")})
    users = FileUsers(path)
    assert verify(users, "alice", "a") == "right"
    assert verify(users, "alice", "b") == "wrong password"
    assert verify(users, "bob", "b") == "unknown user"
    write_users(path, {"bob": quick("b")})
    assert verify(users, "bob", "b") == "right"
    assert verify(users, "alice", "a") == "unknown user"


@pytest.mark.parametrize("change", ["removed", "damaged"])
def test_nobody_logs_in_while_the_file_cannot_be_read(tmp_path: Path, change: str) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": quick("a")})
    users = FileUsers(path)
    path.unlink() if change == "removed" else path.write_text("alice:a\n")
    for _ in range(2):
        with pytest.raises(CannotCheck, match=str(path)):
            verify(users, "alice", "a")
    write_users(path, {"alice": quick("a")})
    assert verify(users, "alice", "a") == "right"


def test_an_unknown_user_costs_a_whole_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": quick("a")})
    users = FileUsers(path)
    hashed: list[int] = []
    monkeypatch.setattr(module.PasswordHash, "_hash", lambda self, password: hashed.append(self.n) or b"")
    assert verify(users, "nobody", "a") == "unknown user"
    assert hashed == [16384]
