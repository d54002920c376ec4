"""Brokers that talk to each other over TLS and SASL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from conformance.topics import wait_until
from felice.config import ConfigError
from felice.server.process.embedded import EmbeddedBroker, EmbeddedCluster
from peers.authority import Authority

AUTHORITY = Authority()
PREFIX = "listener.name.plaintext."
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def settings(directory: Path, **more: str) -> dict[str, str]:
    """Clients and brokers use the same listener, with TLS and PLAIN."""
    key = AUTHORITY.issue().write_pem(directory / "broker.pem")
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{PREFIX}plain.sasl.jaas.config": (
            f'{MODULE} required username="broker" password="brokers-secret" user_broker="brokers-secret" '
            'user_alice="alices-secret";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(AUTHORITY.write_trust(directory / "ca.pem")),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def client(cluster: EmbeddedCluster, directory: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alices-secret",
    }


def in_sync(cluster: EmbeddedCluster) -> list[int]:
    image = cluster.cluster.brokers[1].image
    topic = image.topics.get("t")
    return [] if topic is None else sorted(topic.partitions[0].isr)


def failed_logins(cluster: EmbeddedCluster) -> int:
    return sum(broker.services.security.logins.failures for broker in cluster.cluster.brokers.values())


def test_replication_and_sessions_go_on_while_brokers_authenticate_again(tmp_path: Path) -> None:
    """Every connection has to authenticate again every 3 seconds; no record is lost, and no replica falls behind."""
    properties = settings(tmp_path, connections_max_reauth_ms="3000", replica_lag_time_max_ms="60000")
    with EmbeddedCluster(tmp_path / "data", 3, properties=properties) as cluster:
        common = client(cluster, tmp_path)
        admin = AdminClient(common)
        admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "3"})])["t"].result(120)
        wait_until(lambda: in_sync(cluster) == [1, 2, 3])
        producer = Producer(common | {"acks": "all", "enable.idempotence": True, "linger.ms": 5})
        errors: list[object] = []
        sent = 0
        for _ in range(3):
            failures_before, pauses = failed_logins(cluster), [0.0]
            began = time.monotonic()
            while (passed := time.monotonic() - began) < 9:
                producer.produce(
                    "t", b"%d" % sent, on_delivery=lambda error, _: error and errors.append(error)
                )
                sent += 1
                producer.poll(0.01)
                pauses.append(time.monotonic() - began - passed)
            failures = failed_logins(cluster) - failures_before
            if max(pauses) <= 0.4:
                break
        assert producer.flush(60) == 0
        assert errors == []
        assert in_sync(cluster) == [1, 2, 3]
        consumer = Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: list[int] = []
        deadline = time.monotonic() + 120
        while len(found) < sent and time.monotonic() < deadline:
            found += [int(message.value()) for message in consumer.consume(1000, 1.0) if not message.error()]
        consumer.close()
        assert found == list(range(sent))
        # On a slow machine a session may end before its connection has authenticated again.
        assert failures == 0 or max(pauses) > 0.4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
            "sasl.mechanism.inter.broker.protocol: brokers use the listener PLAINTEXT, which offers PLAIN",
        ),
        (
            {f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} required user_alice="a";'},
            "set username and password in it",
        ),
        (
            {"security.inter.broker.protocol": "SASL_SSL"},
            "no advertised listener has that name; there are PLAINTEXT",
        ),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "set only one of them",
        ),
    ],
)
def test_a_half_finished_login_of_the_broker_is_refused(
    tmp_path: Path, change: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        EmbeddedBroker(tmp_path / "data", properties=settings(tmp_path) | change)
    assert "secret" not in str(caught.value)


def test_a_new_password_counts_on_every_broker_at_once(tmp_path: Path) -> None:
    properties = settings(tmp_path) | {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    with EmbeddedCluster(tmp_path / "data", 3, properties=properties) as cluster:
        common = client(cluster, tmp_path)
        admin = AdminClient(common)
        for password in (b"first", b"second"):
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            change = UserScramCredentialUpsertion("zoe", info, password)
            admin.alter_user_scram_credentials([change])["zoe"].result(120)
            login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "zoe"}
            for address in cluster.bootstrap.split(","):
                one = common | login | {"bootstrap.servers": address, "sasl.password": password.decode()}
                assert eventually(one)
        old = common | login | {"sasl.password": "first", "log_level": "0"}
        assert not logs_in(old)


def logs_in(settings: dict[str, str]) -> bool:
    try:
        return bool(AdminClient(settings).list_topics(timeout=20).brokers)
    except KafkaException:
        return False


def eventually(settings: dict[str, str]) -> bool:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if logs_in(settings):
            return True
    return False
