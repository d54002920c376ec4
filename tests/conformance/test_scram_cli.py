"""SCRAM users of a running broker with Felice's `kafka-configs`, in the words of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.wire import Wire
from felice.cli.kafka_tools.configs import kafka_configs
from felice.server.process.embedded import EmbeddedBroker
from unit.server.test_sasl import log_in, scram, settings

pytestmark = pytest.mark.felice_only

ALICE = ["--entity-type", "users", "--entity-name", "alice"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", properties=settings()) as started:
        yield started


def kafka(broker: EmbeddedBroker, *words: str, fails: bool = False) -> str:
    done = CliRunner().invoke(kafka_configs, ["--bootstrap-server", broker.bootstrap, *words])
    assert (done.exit_code != 0) == fails, done.output + str(done.exception)
    return done.output + str(done.exception or "")


def may_log_in(broker: EmbeddedBroker, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    with Wire(f"127.0.0.1:{broker.broker.port('EXTERNAL')}") as wire:
        return not log_in(wire, scram("alice", password, mechanism)).error_code


def test_a_user_is_set_described_and_deleted(broker: EmbeddedBroker) -> None:
    value = "SCRAM-SHA-512=[iterations=8192,password=a,b=c],SCRAM-SHA-256=[password=other]"
    assert (
        kafka(broker, "--alter", *ALICE, "--add-config", value)
        == "Completed updating config for user alice.\n"
    )
    assert may_log_in(broker, "a,b=c") and may_log_in(broker, "other", "SCRAM-SHA-256")
    line = "SCRAM credential configs for user-principal 'alice' are "
    both = f"{line}SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192\n"
    assert kafka(broker, "--describe", *ALICE) == both
    assert kafka(broker, "--describe", "--entity-type", "users") == both
    kafka(broker, "--alter", *ALICE, "--delete-config", "SCRAM-SHA-512")
    assert not may_log_in(broker, "a,b=c")
    assert kafka(broker, "--describe", *ALICE) == f"{line}SCRAM-SHA-256=iterations=4096\n"


def test_quotas_and_credentials_of_a_user_are_shown_together(broker: EmbeddedBroker) -> None:
    kafka(broker, "--alter", *ALICE, "--add-config", "producer_byte_rate=1024")
    kafka(broker, "--alter", *ALICE, "--add-config", "SCRAM-SHA-512=[password=secret]")
    assert kafka(broker, "--describe", *ALICE).splitlines() == [
        "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0",
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([*ALICE, "--add-config", "SCRAM-SHA-512=secret"], "must be [password=...]"),
        ([*ALICE, "--add-config", "SCRAM-SHA-512=[iterations=8192]"], "must be [password=...]"),
        ([*ALICE, "--add-config", "SCRAM-SHA-512=[iterations=1,password=secret]"], "Too few iterations"),
        (
            [*ALICE, "--add-config", "SCRAM-SHA-512=[password=secret],producer_byte_rate=1"],
            "with one command",
        ),
        (["--user-defaults", "--add-config", "SCRAM-SHA-512=[password=secret]"], "belong to one user"),
        (
            [*ALICE, "--client", "app", "--add-config", "SCRAM-SHA-512=[password=secret]"],
            "belong to one user",
        ),
        ([*ALICE, "--delete-config", "SCRAM-SHA-512"], "does not exist"),
    ],
)
def test_what_cannot_be_set_is_refused_without_the_password(
    broker: EmbeddedBroker, words: list[str], reason: str
) -> None:
    said = kafka(broker, "--alter", *words, fails=True)
    assert reason in said
    assert "secret" not in said
