"""MirrorMaker 2 copies ACLs of topics between two clusters with authorizers, unmodified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.kafka_application import KafkaApplication
from conformance.secured import Rule, Secured, secured_felice
from conformance.test_kafka_connect import write_properties
from conformance.test_mirror import mirroring
from conformance.topics import create_topic_over
from felice.security.acl import Operation, Permission, ResourceType
from peers.apache_kafka import free_port
from waiting import wait_until

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(1800)]

TIMEOUT_S = 450
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret";'


def mirror_properties(source: Secured, target: Secured) -> dict[str, object]:
    logins = {
        f"{name}.{key}": value
        for name, broker in (("A", source), ("B", target))
        for key, value in (
            ("bootstrap.servers", broker.admin_address),
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", LOGIN),
        )
    }
    return {
        "clusters": "A, B",
        **logins,
        "A->B.enabled": "true",
        "A->B.topics": "flights",
        "A->B.sync.topic.acls.enabled": "true",
        "B->A.enabled": "false",
        "tasks.max": 1,
        "replication.factor": 1,
        **{f"{name}.topic.replication.factor": 1 for name in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{name}.storage.replication.factor": 1 for name in ("offset", "config", "status")},
        "offset.storage.partitions": 2,
        "status.storage.partitions": 1,
        "sync.topic.acls.interval.seconds": 1,
        "refresh.topics.interval.seconds": 1,
        "plugin.discovery": "service_load",
        "listeners": f"http://127.0.0.1:{free_port()}",
    }


READ = Rule(ResourceType.TOPIC, "flights", Operation.READ, principal="User:alice")
DENIED = Rule(ResourceType.TOPIC, "flights", Operation.READ, Permission.DENY, "User:eve", "10.0.0.7")


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Secured, Secured]]:
    with secured_felice(tmp_path / "a") as source, secured_felice(tmp_path / "b") as target:
        create_topic_over(source.admin, "flights")
        source.grant(READ, DENIED)
        yield source, target


def test_acls_of_mirrored_topics_are_copied(tmp_path: Path, clusters: tuple[Secured, Secured]) -> None:
    source, target = clusters
    file = write_properties(tmp_path / "mirror.properties", mirror_properties(source, target))
    with KafkaApplication(tmp_path, "org.apache.kafka.connect.mirror.MirrorMaker", file) as application:
        copied = {_mirrored(rule) for rule in (READ, DENIED)}
        try:
            wait_until(lambda: copied <= target.acls(), TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {target.acls()} {application.account()}") from error
        application.stop()
    assert source.acls() == {READ.row, DENIED.row}


def test_our_mirror_copies_them_but_no_right_to_write(clusters: tuple[Secured, Secured]) -> None:
    source, target = clusters
    source.grant(
        Rule(ResourceType.TOPIC, "flights", Operation.WRITE, principal="User:bob"),
        Rule(ResourceType.TOPIC, "flights", Operation.ALL, principal="User:carol"),
        Rule(ResourceType.TOPIC, "other", Operation.READ, principal="User:dave"),
    )
    given = {name: str(value) for name, value in mirror_properties(source, target).items()}
    reads = Rule(ResourceType.TOPIC, "flights", Operation.READ, principal="User:carol")
    with mirroring(given):
        copied = {_mirrored(rule) for rule in (READ, DENIED, reads)}
        wait_until(lambda: target.acls() == copied, TIMEOUT_S)


def _mirrored(rule: Rule) -> tuple[int, str, int, str, str, int, int]:
    kind, name, *rest = rule.row
    return (kind, f"A.{name}", *rest)  # type: ignore[return-value]
