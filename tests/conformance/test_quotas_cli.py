"""Quotas from the command line, with Felice's own words and as Kafka's tool, and by the admin client."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from felice.cli import main
from felice.cli.kafka_tools.configs import kafka_configs
from felice.client.admin import AdminClient, ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from felice.client.error import KafkaException
from felice.server.process.embedded import EmbeddedBroker

pytestmark = pytest.mark.felice_only


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as started:
        yield started


def felice(broker: EmbeddedBroker, *words: str) -> str:
    done = CliRunner().invoke(main.felice, ["quotas", *words, "-b", broker.bootstrap])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.output


def kafka(broker: EmbeddedBroker, *words: str) -> list[str]:
    done = CliRunner().invoke(kafka_configs, ["--bootstrap-server", broker.bootstrap, *words])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.output.splitlines()


def test_felices_command(broker: EmbeddedBroker) -> None:
    changed = felice(
        broker, "alter", "--user", "alice", "--client-default", "--set", "producer_byte_rate=1024"
    )
    assert changed == "Changed the quotas of user alice, each other client id.\n"
    felice(broker, "alter", "--ip", "10.0.0.1", "--set", "connection_creation_rate=5")
    rows = json.loads(felice(broker, "describe", "--json"))
    assert rows == [
        {
            "entity": {"client-id": None, "user": "alice"},
            "quota": "producer_byte_rate",
            "value": 1024.0,
        },
        {"entity": {"ip": "10.0.0.1"}, "quota": "connection_creation_rate", "value": 5.0},
    ]
    assert "user alice, each other client id" in felice(broker, "describe", "--user", "alice")
    felice(broker, "alter", "--user", "alice", "--client-default", "--unset", "producer_byte_rate")
    assert felice(broker, "describe", "--user", "alice") == "There are no quotas.\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["alter", "--set", "producer_byte_rate=1"], "name a user, a client id or an address"),
        (["alter", "--user", "a"], "say what to change"),
        (["alter", "--user", "a", "--set", "producer_byte_rate=much"], "must be a number"),
        (
            ["alter", "--user", "a", "--set", "producer_rate=1"],
            "'producer_rate'; valid keys: producer_byte_rate,",
        ),
        (["alter", "--user", "a", "--unset", "connection_creation_rate"], "valid keys: producer_byte_rate,"),
        (["alter", "--ip-default", "--set", "producer_byte_rate=1"], "valid keys: connection_creation_rate"),
        (["alter", "--user", "a", "--set", "producer_byte_rate=0"], "must be greater than 0"),
        (["alter", "--user", "a", "--user-default", "--set", "producer_byte_rate=1"], "not both"),
    ],
)
def test_what_says_too_little_is_refused(broker: EmbeddedBroker, words: list[str], reason: str) -> None:
    done = CliRunner().invoke(main.felice, ["quotas", *words, "-b", broker.bootstrap])
    assert done.exit_code != 0
    assert reason in done.output + str(done.exception)


def test_kafkas_tool(broker: EmbeddedBroker) -> None:
    words = ("--entity-type", "clients", "--entity-default", "--entity-type", "users", "--entity-name", "bob")
    assert kafka(broker, "--alter", *words, "--add-config", "producer_byte_rate=2048") == [
        "Completed updating default config for clients in the cluster."
    ]
    kafka(
        broker, "--alter", "--user", "alice", "--add-config", "request_percentage=12.5,consumer_byte_rate=7"
    )
    kafka(broker, "--alter", "--ip-defaults", "--add-config", "connection_creation_rate=9")
    assert kafka(broker, "--describe", "--entity-type", "users", "--entity-type", "clients") == [
        "Quota configs for user-principal 'bob', the default client-id are producer_byte_rate=2048.0"
    ]
    assert kafka(broker, "--describe", "--entity-type", "users") == [
        "Quota configs for user-principal 'alice' are consumer_byte_rate=7.0, request_percentage=12.5"
    ]
    assert kafka(broker, "--describe", "--ip-defaults") == [
        "Quota configs for the default ip are connection_creation_rate=9.0"
    ]
    kafka(broker, "--alter", "--user", "alice", "--delete-config", "request_percentage,consumer_byte_rate")
    assert kafka(broker, "--describe", "--user", "alice") == []


def test_the_admin_client(broker: EmbeddedBroker) -> None:
    alice, bob = (
        ClientQuotaEntity.of({"user": "alice"}),
        ClientQuotaEntity.of({"user": "bob", "client-id": None}),
    )
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        futures = admin.alter_client_quotas(
            [
                ClientQuotaAlteration(alice, {"producer_byte_rate": 5.0, "consumer_byte_rate": None}),
                ClientQuotaAlteration(bob, {"no_such_quota": 1.0}),
            ]
        )
        assert futures[alice].result() is None
        with pytest.raises(
            KafkaException, match="default client-id, user bob: Invalid configuration key no_such_quota"
        ):
            futures[bob].result()
        assert admin.describe_client_quotas().result() == {alice: {"producer_byte_rate": 5.0}}
        admin.alter_client_quotas(
            [ClientQuotaAlteration(alice, {"producer_byte_rate": 7.0})], validate_only=True
        )[alice].result()
        wanted = ClientQuotaFilter(any_name=("user",), is_strict=True)
        assert admin.describe_client_quotas(wanted).result() == {alice: {"producer_byte_rate": 5.0}}
        with pytest.raises(ValueError, match="named twice"):
            admin.alter_client_quotas([ClientQuotaAlteration(alice, {})] * 2)
