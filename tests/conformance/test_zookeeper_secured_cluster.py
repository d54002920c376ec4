"""Three brokers that log in at a real ZooKeeper and at each other.

SCRAM users, ACLs, quotas, delegation tokens and client metrics reach all of them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from conformance.delegation_tokens import authenticate, create, describe, expire, ids, renew, token_client
from conformance.secured import AUTHORIZER, Rule, describe_request, rows_of
from conformance.telemetry import ask, described, subscribe_to
from conformance.test_behaviours_admin import SET, alter
from conformance.test_group_configs import GROUP, INTERVAL, values
from conformance.wire import Wire
from felice.cli import main
from felice.ensemble import Ensemble
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from felice.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from felice.protocol.messages.create_acls import CreateAclsRequest
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.security.acl import Operation, ResourceType
from felice.server.process.embedded import EmbeddedBroker
from peers.apache_kafka import free_port
from peers.zookeeper import require_ensemble_with_users, write_login
from unit.server.test_sasl import log_in, scram, upsertion
from waiting import wait_until

pytestmark = pytest.mark.felice_only

MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ZOOKEEPER_USERS = {"kafka": "zookeeper-secret"}
BROKER_PASSWORD, ALICES_PASSWORD = "brokers-secret", "alices-secret"
CLIENT_INSTANCE = uuid.UUID(int=77)
TOKEN_KEY = "the-key-of-all-tokens"


@dataclass
class Cluster:
    brokers: list[EmbeddedBroker]
    ensemble: Ensemble

    def connect(self, index: int, user: str = "broker", password: str = BROKER_PASSWORD) -> Wire:
        """A connection to a broker, whose user is logged in."""
        wire = Wire(self.brokers[index].bootstrap)
        if log_in(wire, scram(user, password, MECHANISM)).error_code:
            wire.close()
            raise PermissionError(user)
        return wire

    def may_log_in(self, index: int, password: str = ALICES_PASSWORD) -> bool:
        try:
            self.connect(index, "alice", password).close()
        except PermissionError:
            return False
        return True


def properties(directory: Path, connect: str, number: int) -> dict[str, str]:
    port = free_port()
    return {
        "node.id": str(number),
        "zookeeper.connect": f"{connect}/kafka",
        "zookeeper.session.timeout.ms": "60000",
        "zookeeper.set.acl": "true",
        "java.security.auth.login.config": str(directory / "jaas.conf"),
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
            f'{MODULE} required username="broker" password="{BROKER_PASSWORD}";'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:broker",
        "delegation.token.secret.key": TOKEN_KEY,
        "offsets.topic.num.partitions": "1",
        "log.dirs": str(directory / f"data-{number}"),
    }


def set_first_password(directory: Path, connect: str) -> None:
    """As an operator does before the first broker starts."""
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in properties(directory, connect, 1).items()))
    done = CliRunner().invoke(
        main.felice, ["scram", "set", str(path), "broker"], input=f"{BROKER_PASSWORD}\n"
    )
    assert done.exit_code == 0, done.output + str(done.exception)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secured")
    write_login(directory / "jaas.conf", "kafka", ZOOKEEPER_USERS["kafka"])
    with require_ensemble_with_users(directory, ZOOKEEPER_USERS) as ensemble, ExitStack() as stack:
        set_first_password(directory, ensemble.connect)
        brokers = [
            stack.enter_context(
                EmbeddedBroker(
                    directory / f"data-{number}", properties=properties(directory, ensemble.connect, number)
                )
            )
            for number in (1, 2, 3)
        ]
        found = Cluster(brokers, ensemble)
        with found.connect(0) as admin:
            wait_until(lambda: len(admin.ask(MetadataRequest(topics=[])).brokers) == 3)
        yield found


@pytest.fixture(scope="module")
def alice(cluster: Cluster) -> str:
    asked = AlterUserScramCredentialsRequest(upsertions=[upsertion("alice", ALICES_PASSWORD, 2)])
    with cluster.connect(0) as admin:
        assert [row.error_code for row in admin.ask(asked).results] == [0]
    return "alice"


def test_a_scram_user_logs_in_at_every_broker(cluster: Cluster, alice: str) -> None:
    for index in range(3):
        wait_until(lambda index=index: cluster.may_log_in(index))
        assert not cluster.may_log_in(index, "wrong")


def test_brokers_replicate_over_their_own_logins_and_acls_hold_on_all(cluster: Cluster, alice: str) -> None:
    write = Rule(ResourceType.TOPIC, "orders", Operation.WRITE, principal="User:alice")
    with cluster.connect(0) as admin:
        wanted = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in ("orders", "others")
        ]
        answer = admin.ask(CreateTopicsRequest(topics=wanted))
        assert [row.error_code for row in answer.topics] == [0, 0]
    with cluster.connect(1) as admin:
        assert admin.ask(CreateAclsRequest(creations=[write.creation()])).results[0].error_code == 0
    expected = {"orders": 0, "others": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    for index in range(3):
        with cluster.connect(index) as admin:
            wait_until(lambda admin=admin: rows_of(admin.ask(describe_request())) == {write.row})
        wait_until(lambda index=index: cluster.may_log_in(index))
        with cluster.connect(index, "alice", ALICES_PASSWORD) as wire:
            wait_until(lambda wire=wire: topic_errors(wire, "orders", "others") == expected)
    producer = Producer(
        {
            "bootstrap.servers": ",".join(broker.bootstrap for broker in cluster.brokers),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": "alice",
            "sasl.password": ALICES_PASSWORD,
            "acks": "all",
        }
    )
    producer.produce("orders", b"to three replicas")
    assert producer.flush(60) == 0
    failures: list[KafkaException] = []
    producer.produce("others", b"not allowed", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert [error.code() for error in failures] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def topic_errors(wire: Wire, *topics: str) -> dict[str, int]:
    names = [MetadataRequestTopic(name=name) for name in topics]
    answer = wire.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
    return {row.name: row.error_code for row in answer.topics}


def test_a_quota_counts_on_every_broker(cluster: Cluster, alice: str) -> None:
    entity = [EntityData(entity_type="user", entity_name="alice")]
    change = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1024.0)])
    with cluster.connect(2) as admin:
        assert admin.ask(AlterClientQuotasRequest(entries=[change])).entries[0].error_code == 0

    def known(admin: Wire) -> list[tuple[str, float]]:
        answer = admin.ask(DescribeClientQuotasRequest(components=[], strict=False))
        return [(value.key, value.value) for entry in answer.entries for value in entry.values]

    for index in range(3):
        with cluster.connect(index) as admin:
            wait_until(lambda admin=admin: known(admin) == [("producer_byte_rate", 1024.0)])


def test_zookeeper_keeps_secrets_from_others_and_has_kafkas_nodes(cluster: Cluster, alice: str) -> None:
    stranger, owner = KazooClient(cluster.ensemble.connect, timeout=60), _as_broker(cluster)
    for client in (stranger, owner):
        client.start(60)
    try:
        for path in ("/kafka/config/users", "/kafka/config/users/alice", "/kafka/config/users/broker"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
        for path in ("/kafka/brokers/ids/1", "/kafka/controller", "/kafka/config/changes"):
            assert stranger.exists(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"taken")
        node: Any = json.loads(owner.get("/kafka/config/users/alice")[0])
        assert node["version"] == 1 and node["config"][MECHANISM].startswith("salt=")
    finally:
        for client in (stranger, owner):
            client.stop()
            client.close()


def test_a_token_is_known_to_every_broker_until_it_is_deleted(cluster: Cluster, alice: str) -> None:
    wait_until(lambda: cluster.may_log_in(0))
    with cluster.connect(0, alice, ALICES_PASSWORD) as wire:
        token = create(wire, "carol")
    assert token.error_code == 0

    def logs_in(index: int) -> bool:
        with Wire(cluster.brokers[index].bootstrap) as wire:
            client = token_client(token.token_id, bytes(token.hmac), MECHANISM)
            return bool(authenticate(wire, client).error_code == 0)

    for index in range(3):
        wait_until(lambda index=index: logs_in(index))
    with cluster.connect(1, alice, ALICES_PASSWORD) as wire:
        assert renew(wire, bytes(token.hmac)).error_code == 0
    with cluster.connect(2, alice, ALICES_PASSWORD) as wire:
        assert ids(describe(wire)) == {token.token_id}
        assert expire(wire, bytes(token.hmac)).error_code == 0
    for index in range(3):
        wait_until(lambda index=index: not logs_in(index))


def test_zookeeper_keeps_tokens_under_kafkas_path_and_from_strangers(cluster: Cluster, alice: str) -> None:
    wait_until(lambda: cluster.may_log_in(0))
    with cluster.connect(0, alice, ALICES_PASSWORD) as wire:
        token = create(wire)
    path = f"/kafka/delegation_token/tokens/{token.token_id}"
    stranger, owner = KazooClient(cluster.ensemble.connect, timeout=60), _as_broker(cluster)
    for client in (stranger, owner):
        client.start(60)
    try:
        with pytest.raises(NoAuthError):
            stranger.get(path)
        text = owner.get(path)[0].decode()
        assert json.loads(text)["owner"] == "User%3Aalice"  # as Kafka writes it
        assert bytes(token.hmac).hex() not in text and TOKEN_KEY not in text
    finally:
        for client in (stranger, owner):
            client.stop()
            client.close()


def test_a_client_metrics_resource_is_the_same_on_every_broker(cluster: Cluster) -> None:
    with cluster.connect(0) as admin:
        subscribe_to(admin, "producers", metrics="org.apache.kafka.producer.", interval_ms="30000")
    answers = []
    for index in range(3):
        with cluster.connect(index) as wire:
            wait_until(lambda wire=wire: described(wire, "producers")["interval_ms"] == "30000")
            answers.append(ask(wire, CLIENT_INSTANCE))
    assert {answer.error_code for answer in answers} == {0}
    assert [answer.requested_metrics for answer in answers] == [["org.apache.kafka.producer."]] * 3
    # A client may push to any broker with what another one told it.
    assert len({answer.subscription_id for answer in answers}) == 1
    owner = _as_broker(cluster)
    owner.start(60)
    try:
        assert owner.exists("/kafka/config/client-metrics/producers")
    finally:
        owner.stop()
        owner.close()


@pytest.mark.parametrize(("group", "node"), [("a/b", "a%2Fb"), (".", "%2E")])
def test_the_options_of_a_group_are_the_same_on_every_broker(cluster: Cluster, group: str, node: str) -> None:
    with cluster.connect(0) as admin:
        changed = alter(admin, group, (INTERVAL, SET, "7"), kind=GROUP)
        assert changed.error_code == 0, changed.error_message
    for index in range(3):
        with cluster.connect(index) as wire:
            wait_until(lambda wire=wire: values(wire, group)[INTERVAL] == "7")
    owner = _as_broker(cluster)
    owner.start(60)
    try:
        assert owner.exists(f"/kafka/config/groups/{node}")
    finally:
        owner.stop()
        owner.close()


def _as_broker(cluster: Cluster) -> KazooClient:
    login = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": ZOOKEEPER_USERS["kafka"]}
    return KazooClient(cluster.ensemble.connect, timeout=60, sasl_options={**login, "qops": [b"auth"]})
