"""Options that `felice start` refuses, and options that it only warns of."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.cli import main
from felice.cli import start as cli_start
from felice.cli.start import broker, start
from felice.config import BrokerConfig
from felice.server.process import running

SLIP = "error: unknown option num.partitons (did you mean num.partitions?)"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """The configurations of the brokers that would have been started."""
    found: list[BrokerConfig] = []
    monkeypatch.setattr(running, "run", lambda config, **_: found.append(config))
    # Other tests need the default log configuration.
    monkeypatch.setattr(cli_start, "_configure_logs", lambda *_: None)
    return found


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"log.dirs={tmp_path}/data\nnum.partitons=3\nsasl.kerberos.service.name=k\nmy.plugin=x\n")
    return path


@pytest.mark.parametrize("words", [[], ["--brokers", "2"], ["--processes", "2"]])
def test_a_misspelt_option_on_the_command_line_is_refused(
    words: list[str], tmp_path: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.run(start, [*words, "--data-dir", str(tmp_path / "data"), "-o", "num.partitons=3"])
    assert (code, started, capsys.readouterr().err.strip()) == (1, [], SLIP)
    assert not (tmp_path / "data").exists()


def test_a_misspelt_override_of_a_file_is_refused(
    properties: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(broker, [str(properties), "--override", "num.partitons=4"]) == 1
    assert (started, capsys.readouterr().err.strip()) == ([], SLIP)


def test_unknown_options_in_a_file_cause_a_warning(
    properties: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(broker, [str(properties)]) == 0
    warned = capsys.readouterr().err
    assert "unknown option num.partitons has no effect; did you mean num.partitions?" in warned
    assert "unknown option my.plugin has no effect\n" in warned
    assert "these options of Kafka have no effect here: sasl.kerberos.service.name\n" in warned
    assert len(started) == 1


def test_options_unlike_any_known_one_are_accepted_on_the_command_line(
    tmp_path: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("sasl.kerberos.service.name", "listener.name.internal.sasl.kerberos.service.name", "my.plugin")
    words = [word for name in names for word in ("-o", f"{name}=x")]
    assert main.run(start, ["--data-dir", str(tmp_path), *words]) == 0
    warned = capsys.readouterr().err
    assert all(name in warned for name in names)
    assert len(started) == 1
