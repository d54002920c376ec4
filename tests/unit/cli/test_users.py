"""`felice users`: the file of users of an HTTP server."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from felice.cli.main import felice, run
from felice.web.users import read_users


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object, stdin: str = "") -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    return run(felice, ["users", *map(str, arguments)])


def test_users_are_added_changed_listed_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    assert call(monkeypatch, "add", "alice", "--users", path, stdin="first\n") == 0
    assert call(monkeypatch, "add", "bob", "--users", path, stdin="bobs") == 0
    assert call(monkeypatch, "add", "alice", "--users", path, stdin="second\nx") == 0
    told = capsys.readouterr().out
    assert told.splitlines() == ["alice was added", "bob was added", "alice has another password"]
    assert read_users(path)["alice"].matches("second")
    assert call(monkeypatch, "list", "--users", path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"user": "alice"}, {"user": "bob"}]
    assert call(monkeypatch, "delete", "alice", "--users", path) == 0
    assert list(read_users(path)) == ["bob"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "reason"),
    [
        (("add", "a:b", "--users", "users"), "x", "a user's name has one or more printable characters"),
        (("add", "", "--users", "users"), "x", "a user's name has one or more printable characters"),
        (("add", "alice", "--users", "users"), "", "the password is empty"),
        (("add", "alice", "--users", "damaged"), "x", "damaged:1: expected name:scrypt"),
        (("add", "alice", "--users", "none/users"), "x", "none/users cannot be written: no such file"),
        (("list", "--users", "users"), "", "users cannot be read: no such file or directory"),
        (("delete", "alice", "--users", "empty"), "", "empty has no user alice"),
        (("add", "alice"), "x", "Missing option '--users'"),
    ],
)
def test_a_wrong_call_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    stdin: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged").write_text("alice\n")
    Path("empty").touch()
    assert call(monkeypatch, *arguments, stdin=stdin) != 0
    told = capsys.readouterr().err
    assert reason in told
    assert "Traceback" not in told
    assert not Path("users").exists()
