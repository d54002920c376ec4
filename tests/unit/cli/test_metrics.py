"""`felice metrics`: which series are printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from felice.cli import metrics as command
from felice.cli.main import run
from felice.cli.metrics import metrics
from felice.server.process.embedded import EmbeddedBroker
from peers.apache_kafka import free_port

PAGE = ["# HELP log_size Bytes.", "# TYPE log_size gauge", 'log_size{topic="a"} 5', "leaders 3"]


@pytest.fixture(autouse=True)
def page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "read_page", lambda address, access: PAGE)


def told(*words: str) -> Result:
    return CliRunner().invoke(metrics, ["--address", "127.0.0.1:1", *words])


def test_names_choose_series_in_any_case() -> None:
    assert told("SIZE", "nothing").output == 'log_size{topic="a"} 5\n'
    assert told().output.splitlines() == PAGE


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_name_that_no_metric_has_is_an_error(options: list[str]) -> None:
    done = told("topic", "size_of", *options)
    assert done.exit_code == 1
    assert done.output == "Error: no metric has a name that contains topic or size_of\n"


def test_a_secured_cluster_needs_the_file_of_its_login(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is the one above: the broker is asked only for its address."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{login} username="b" password="b" user_b="b" user_ann="secret";'
        ),
        "felice.metrics.listener": f"127.0.0.1:{free_port()}",
    }
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={login} username="ann" password="secret";\n'
    )
    with EmbeddedBroker(tmp_path / "data", properties=properties) as broker:
        asked = ["--bootstrap-server", broker.bootstrap, "leaders"]
        assert run(metrics, [*asked, "--command-config", str(file)]) == 0
        assert capsys.readouterr().out == "leaders 3\n"
        assert run(metrics, asked) == 1
        assert "--command-config names the file" in capsys.readouterr().err
