"""`felice scram`: users of a cluster before its brokers run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from conformance.wire import Wire
from felice.cli.main import felice, run
from felice.cli.options import read_properties
from felice.security.sasl.scram import ScramClient
from felice.server.process.embedded import EmbeddedBroker
from unit.server.test_sasl import log_in


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"log.dirs={tmp_path}/data\nlisteners=SASL_PLAINTEXT://127.0.0.1:0\nsasl.enabled.mechanisms=SCRAM-SHA-512\n"
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=o.ScramLoginModule required "
        'username="admin" password="first-password";\nsasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n'
        "security.inter.broker.protocol=SASL_PLAINTEXT\nnode.id=1\n"
    )
    return path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object, stdin: str = "") -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    return run(felice, ["scram", *map(str, arguments)])


def test_a_user_that_was_set_before_the_first_start_logs_in(
    properties: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "set", properties, "admin", stdin="first-password\n") == 0
    assert call(monkeypatch, "set", properties, "bob", "--iterations", 4096, stdin="x") == 0
    capsys.readouterr()
    assert call(monkeypatch, "list", properties, "--json") == 0
    listed = capsys.readouterr().out
    assert json.loads(listed) == [
        {"user": "admin", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
    ]
    directory = properties.parent / "data"
    with EmbeddedBroker(directory, properties=read_properties(properties)) as broker:
        with Wire(broker.bootstrap) as wire:
            assert log_in(wire, ScramClient("SCRAM-SHA-512", "admin", "first-password", "n")).error_code == 0
        assert call(monkeypatch, "list", properties) == 1
        assert "in use by another broker" in capsys.readouterr().err
    assert call(monkeypatch, "delete", properties, "admin") == 0
    assert call(monkeypatch, "delete", properties, "admin") == 1
    assert "admin has no credential for SCRAM-SHA-512" in capsys.readouterr().err


def test_an_empty_password_is_refused(
    properties: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "set", properties, "admin", stdin="\n") == 1
    assert "the password is empty" in capsys.readouterr().err


def test_only_the_brokers_user_can_read_the_metadata(
    properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = properties.parent / "data" / "metadata"
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    assert call(monkeypatch, "set", properties, "admin", stdin="x\n") == 0
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "journal").stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_where_nothing_is_changed(
    properties: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "list", properties) == 0
    assert capsys.readouterr() == ("", "There are no SCRAM users.\n")
    assert call(monkeypatch, "list", properties, "--json") == 0
    assert capsys.readouterr().out == "[]\n"
    assert call(monkeypatch, "delete", properties, "admin") == 1
    assert "admin has no credential for SCRAM-SHA-512" in capsys.readouterr().err
    assert not (properties.parent / "data").exists()


def test_a_directory_whose_metadata_is_gone_is_not_listed_as_empty(
    properties: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = properties.parent / "data"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=abc\n")
    assert call(monkeypatch, "list", properties) == 1
    assert "belongs to cluster abc" in capsys.readouterr().err


def test_a_cluster_without_users_is_listed_as_empty(
    properties: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "set", properties, "admin", stdin="x\n") == 0
    assert call(monkeypatch, "delete", properties, "admin") == 0
    capsys.readouterr()
    assert call(monkeypatch, "list", properties) == 0
    assert capsys.readouterr().err == "There are no SCRAM users.\n"
