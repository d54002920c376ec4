"""Compose files of the forms that people have for Kafka's images: each starts a broker, or is refused in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from felice.cli import main
from felice.cli import start as cli_start
from felice.cli.start import broker, start
from felice.config import BrokerConfig
from felice.config import image_variables as images

COMPOSE = Path(__file__).parent / "compose"
CONTAINER = Path(__file__).parents[3] / "contrib" / "container.properties"
JAAS = """KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
  username="admin" password="p" user_admin="p";
};
"""
# `KEY: value` and `- KEY=value`
_VARIABLE = re.compile(r"^ +(?:- )?([A-Z][A-Z0-9_]+)(?:: *|=)(.*)$", re.MULTILINE)

Compose = Callable[[str], None]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
    """The configurations of the brokers that were started."""
    found: list[BrokerConfig] = []
    monkeypatch.setattr("felice.server.process.running.run", lambda config, **_: found.append(config))
    monkeypatch.setattr(cli_start, "_configure_logs", lambda *_: None)
    return found


@pytest.fixture
def compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compose:
    """Sets the variables of a compose file."""

    def set_variables(name: str) -> None:
        text = (COMPOSE / f"{name}.yml").read_text().partition("environment:")[2]
        for variable, value in _VARIABLE.findall(text):
            monkeypatch.setenv(variable, value.strip("'\"").replace("DIRECTORY", str(tmp_path)))

    (tmp_path / "broker_jaas.conf").write_text(JAAS)
    return set_variables


@pytest.mark.parametrize(
    ("name", "node_id", "listeners", "directory"),
    [
        ("apache-single", 1, "PLAINTEXT_HOST://:9092 PLAINTEXT://:19092", "kraft-combined-logs"),
        ("apache-sasl", 1, "LOGIN_HOST://:9094 LOGIN://:19094", "logs"),
        (
            "confluent-zookeeper",
            1,
            "PLAINTEXT://0.0.0.0:29092 PLAINTEXT_HOST://0.0.0.0:9092",
            "data",
        ),
        (
            "confluent-kraft",
            1,
            "PLAINTEXT://broker:29092 PLAINTEXT_HOST://0.0.0.0:9092",
            "kraft-combined-logs",
        ),
        ("bitnami-kraft", 0, "PLAINTEXT://:9092 EXTERNAL://:9094", "data"),
    ],
)
def test_a_compose_file_starts_a_broker(
    name: str,
    node_id: int,
    listeners: str,
    directory: str,
    compose: Compose,
    tmp_path: Path,
    started: list[BrokerConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    compose(name)
    assert main.run(broker, ["--environment-options", str(CONTAINER)]) == 0
    (config,) = started
    assert (config.node_id, config.log_directories) == (node_id, [tmp_path / directory])
    assert [str(listener) for listener in config.parsed_listeners] == listeners.split()
    assert config.offsets_topic_replication_factor == 1
    err = capsys.readouterr().err
    # Only what has no effect is told, and no secret.
    assert all(line.startswith("warning: ") for line in err.splitlines())
    assert "HEAP_OPTS" not in err and "JMX" not in err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("apache-cluster", "controller.quorum.voters names 3 controllers; Felice has no KRaft quorum"),
        ("apache-controller", "process.roles=controller: Felice has no KRaft controllers"),
        (
            "apache-ssl",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS names /etc/kafka/secrets/kafka_keystore_creds: No such file",
        ),
        ("bitnami-sasl", "KAFKA_CLIENT_PASSWORDS is for the scripts of Bitnami's image"),
    ],
)
def test_a_compose_file_that_starts_no_broker_is_refused_in_one_line(
    name: str,
    reason: str,
    compose: Compose,
    started: list[BrokerConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    compose(name)
    assert main.run(broker, ["--environment-options", str(CONTAINER)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {reason}") and err.count("\n") == 1 and "swordfish" not in err
    assert not started


def test_key_stores_and_passwords_of_a_compose_file_are_its_secrets(
    tmp_path: Path,
    compose: Compose,
    started: list[BrokerConfig],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compose("apache-ssl")
    for name in ("kafka_keystore_creds", "kafka_ssl_key_creds"):
        (tmp_path / name).write_text("password\n")
    monkeypatch.setattr(
        images, "read_variables", lambda *given, read=images.read_variables: read(*given, str(tmp_path))
    )
    assert main.run(broker, ["--environment-options", str(CONTAINER)]) == 0
    assert started[0].originals["ssl.keystore.location"] == f"{tmp_path}/kafka01.keystore.jks"
    assert started[0].originals["ssl.key.password"] == "password"
    assert "password" not in capsys.readouterr().err


def test_without_the_option_variables_are_only_named(
    compose: Compose, tmp_path: Path, started: list[BrokerConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    compose("bitnami-kraft")
    assert main.run(start, ["--data-dir", str(tmp_path / "own")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "warning: variables of the environment are set and not read; --environment-options"
    )
    assert "KAFKA_CFG_LISTENERS" in line and "KRAFT_CLUSTER_ID" not in line
    assert started[0].log_directories == [tmp_path / "own"]


def test_felice_start_takes_variables_between_its_own_values_and_its_options(
    tmp_path: Path, started: list[BrokerConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    monkeypatch.setenv("KAFKA_NODE_ID", "7")
    words = ["--environment-options", "--port", "0", "--data-dir", str(tmp_path), "-o", "num.partitions=8"]
    assert main.run(start, words) == 0
    assert (started[0].node_id, started[0].num_partitions) == (7, 8)
    assert started[0].log_directories == [tmp_path]


def test_a_broker_needs_a_file_or_variables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(broker, []) == 1
    assert capsys.readouterr().err == "error: name a file of options, or give --environment-options\n"
