"""What a start refuses before it begins, and of what it only warns."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.cli import main
from felice.cli import start as cli_start
from felice.cli.start import broker, start
from felice.config import BrokerConfig
from felice.server import running

SLIP = "error: unknown option num.partitons (did you mean num.partitions?)"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """The configurations that would have been run."""
    found: list[BrokerConfig] = []
    monkeypatch.setattr(running, "run", lambda config, **_: found.append(config))
    monkeypatch.setattr(cli_start, "_configure_logs", lambda *_: None)  # other tests read the logs
    return found


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={tmp_path}/data\nnum.partitons=3\nssl.keystore.location=k\nmy.plugin=x\n")
    return path


@pytest.mark.parametrize("words", [[], ["--brokers", "2"], ["--processes", "2"]])
def test_a_slip_on_the_command_line_is_refused(
    words: list[str], tmp_path: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.run(start, [*words, "--data-dir", str(tmp_path / "data"), "-o", "num.partitons=3"])
    assert (code, started, capsys.readouterr().err.strip()) == (1, [], SLIP)
    assert not (tmp_path / "data").exists()


def test_a_slip_that_overrides_a_file_is_refused(
    properties: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(broker, [str(properties), "--override", "num.partitons=4"]) == 1
    assert (started, capsys.readouterr().err.strip()) == ([], SLIP)


def test_names_of_others_are_warned_of_in_a_file(
    properties: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(broker, [str(properties)]) == 0
    warned = capsys.readouterr().err
    assert "unknown option num.partitons has no effect; did you mean num.partitions?" in warned
    assert "unknown option my.plugin has no effect\n" in warned
    assert "these options of Kafka have no effect here: ssl.keystore.location\n" in warned
    assert len(started) == 1


def test_names_of_others_may_stand_on_the_command_line(
    tmp_path: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("ssl.keystore.location", "listener.name.internal.ssl.keystore.location", "my.plugin")
    words = [word for name in names for word in ("-o", f"{name}=x")]
    assert main.run(start, ["--data-dir", str(tmp_path), *words]) == 0
    warned = capsys.readouterr().err
    assert all(name in warned for name in names)
    assert len(started) == 1
