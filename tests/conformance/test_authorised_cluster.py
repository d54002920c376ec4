"""ACLs in clusters and in ZooKeeper, and ACLs made by other programs: Kafka's own tool and librdkafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient

from conformance.secured import (
    ADMIN,
    ANONYMOUS,
    AUTHORIZER,
    SECURED_LISTENERS,
    Rule,
    describe_request,
    log_in,
    rows_of,
    secured_felice,
)
from conformance.topics import batch_of, create_topic_over, produce
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_acls import CreateAclsRequest
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.security.acl import CLUSTER_NAME, Operation, PatternType, Permission
from felice.security.acl import ResourceType as Kind
from felice.server.handlers.table import Handlers
from felice.server.process.embedded import EmbeddedBroker, EmbeddedCluster
from peers import java
from peers.zookeeper import require_ensemble
from waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.felice_only

SETTINGS = {"authorizer.class.name": AUTHORIZER, "super.users": ANONYMOUS}
RULE = Rule(Kind.TOPIC, "orders", Operation.READ, principal="User:alice")


def create(wire: Wire, *rules: Rule) -> None:
    answer = wire.ask(CreateAclsRequest(creations=[rule.creation() for rule in rules]))
    assert [row.error_code for row in answer.results] == [0] * len(rules)


def remove_all(wire: Wire) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert wire.ask(DeleteAclsRequest(filters=[everything])).filter_results[0].error_code == 0


def rows(wire: Wire) -> set[tuple[int, str, int, str, str, int, int]]:
    return rows_of(wire.ask(describe_request()))


def test_an_acl_holds_on_every_broker_soon(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path / "data", 3, properties=SETTINGS) as cluster:
        wires = [Wire(f"127.0.0.1:{port}") for port in cluster.cluster.ports.values()]
        try:
            create(wires[0], RULE)
            # The broker that was asked obeys at once.
            assert rows(wires[0]) == {RULE.row}
            for wire in wires[1:]:
                wait_until(lambda wire=wire: rows(wire) == {RULE.row})
        finally:
            for wire in wires:
                wire.close()


def test_followers_replicate_as_long_as_their_principal_may(tmp_path: Path) -> None:
    """The brokers connect to each other without a login, so they are User:ANONYMOUS."""
    settings = {
        **SECURED_LISTENERS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": ADMIN,
        "replica.lag.time.max.ms": "2000",
        "replica.fetch.wait.max.ms": "200",
        "min.insync.replicas": "2",
    }
    wanted = CreatableTopic(name="replicated", num_partitions=1, replication_factor=2)
    action = Rule(Kind.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)
    with EmbeddedCluster(tmp_path / "data", 2, properties=settings) as cluster:
        brokers = cluster.cluster.brokers

        def in_sync() -> int:
            found = brokers[1].image.partition("replicated", 0)
            return 0 if found is None else len(found.isr)

        with log_in(f"127.0.0.1:{brokers[1].port('ADMIN')}", "admin") as admin:
            assert admin.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code == 0
            # The follower is caught up with an empty log until it has not fetched for the allowed time.
            wait_until(lambda: in_sync() == 1)
            create(admin, action)
            wait_until(lambda: in_sync() == 2)
            leader = brokers[1].image.partition("replicated", 0)
            assert leader is not None
            with log_in(f"127.0.0.1:{brokers[leader.leader].port('ADMIN')}", "admin") as wire:
                # Two replicas must have the record. On a loaded machine the follower is late at times.
                wait_until(lambda: produce(wire, "replicated", batch_of(b"value")).error_code == 0)
                # The follower has everything, and its fetch session is idle.
                remove_all(admin)
                assert produce(wire, "replicated", batch_of(b"value"), acks=1).error_code == 0
            wait_until(lambda: in_sync() == 1)


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with require_ensemble(tmp_path_factory.mktemp("zookeeper"), nodes=1) as ensemble:
        yield ensemble.connect


def test_acls_are_kept_in_zookeeper_where_kafkas_tools_find_them(tmp_path: Path, connect: str) -> None:
    """The nodes are also where Kafka 3.x writes them."""
    zookeeper = KazooClient(connect, timeout=LIMIT_S)
    zookeeper.start(LIMIT_S)
    properties = {
        **SETTINGS,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": "60000",
        "zookeeper.connection.timeout.ms": "60000",
        "node.id": "1",
    }
    prefixed = Rule(Kind.GROUP, "g-", Operation.DESCRIBE, pattern=PatternType.PREFIXED)
    try:
        with (
            EmbeddedBroker(tmp_path / "data", properties=properties) as broker,
            Wire(broker.bootstrap) as wire,
        ):
            create(wire, RULE, prefixed)
            data, _ = zookeeper.get("/kafka-acl/Topic/orders")
            entry = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}
            assert json.loads(data) == {"version": 1, "acls": [entry]}
            assert zookeeper.exists("/kafka-acl-extended/prefixed/Group/g-")
            assert zookeeper.get_children("/kafka-acl-changes")
            entry["principal"] = "User:bob"
            zookeeper.set("/kafka-acl/Topic/orders", json.dumps({"version": 1, "acls": [entry]}).encode())
            changed = Rule(Kind.TOPIC, "orders", Operation.READ, principal="User:bob")
            wait_until(lambda: rows(wire) == {changed.row, prefixed.row})
            zookeeper.delete("/kafka-acl/Topic/orders")
            wait_until(lambda: rows(wire) == {prefixed.row})
        with (
            EmbeddedBroker(tmp_path / "data", properties=properties) as broker,
            Wire(broker.bootstrap) as wire,
        ):
            assert rows(wire) == {prefixed.row}
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_acls_survive_a_restart_of_a_broker_that_stands_alone(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", properties=SETTINGS) as broker, Wire(broker.bootstrap) as wire:
        create(wire, RULE)
    closed = {**SETTINGS, "super.users": ADMIN}
    with EmbeddedBroker(tmp_path / "data", properties=SETTINGS) as broker, Wire(broker.bootstrap) as wire:
        assert rows(wire) == {RULE.row}
    with EmbeddedBroker(tmp_path / "data", properties=closed) as broker, Wire(broker.bootstrap) as wire:
        code = wire.ask(describe_request()).error_code
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_kafkas_own_tool_makes_lists_and_removes_acls(tmp_path: Path) -> None:
    java.require_java()
    with EmbeddedBroker(tmp_path / "data", properties=SETTINGS) as broker, Wire(broker.bootstrap) as wire:

        def tool(line: str) -> str:
            words = ["--bootstrap-server", broker.bootstrap, *line.split()]
            return java.run_tool("org.apache.kafka.tools.AclCommand", *words).stdout

        tool(
            "--add --allow-principal User:bob --consumer --topic flights --group g --resource-pattern-type prefixed"
        )
        assert rows(wire) == {
            Rule(kind, name, operation, principal="User:bob", pattern=PatternType.PREFIXED).row
            for kind, name, operation in (
                (Kind.TOPIC, "flights", Operation.READ),
                (Kind.TOPIC, "flights", Operation.DESCRIBE),
                (Kind.GROUP, "g", Operation.READ),
            )
        }
        listed = tool("--list --topic flights-of-today --resource-pattern-type match")
        assert "ResourcePattern(resourceType=TOPIC, name=flights, patternType=PREFIXED)" in listed
        assert "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)" in listed
        tool("--remove --topic flights --resource-pattern-type prefixed --force")
        assert {row[0] for row in rows(wire)} == {Kind.GROUP}


def test_librdkafka_makes_describes_and_deletes_acls(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", properties=SETTINGS) as broker, Wire(broker.bootstrap) as wire:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        rule = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.DENY,
        )
        for future in admin.create_acls([rule]).values():
            future.result()
        assert rows(wire) == {
            Rule(Kind.TOPIC, "orders", Operation.READ, Permission.DENY, principal="User:alice").row
        }
        wanted = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:alice",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        assert admin.describe_acls(wanted).result() == [rule]
        for future in admin.delete_acls([wanted]).values():
            assert future.result() == [rule]
        assert rows(wire) == set()


def test_thousands_of_forbidden_items_are_refused_and_the_broker_serves_others(tmp_path: Path) -> None:
    from felice.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    with secured_felice(tmp_path / "data") as broker:
        create_topic_over(broker.admin, "t")
        broker.grant(Rule(Kind.TOPIC, "t", Operation.DESCRIBE))
        one = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        names = [*(f"secret-{number}" for number in range(20_000)), "t"]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=one) for name in names]
        )
        broker.client.send(request, 7)
        second = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=one)])
        following = broker.client.send(second, 7)
        first = following - 1
        answer = broker.client.receive(request, 7, first)
        codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        assert codes.pop("t") == 0
        assert set(codes.values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert len(codes) == 20_000
        assert broker.client.receive(second, 7, following).topics[0].partitions[0].error_code == 0


def test_a_broker_with_a_table_of_handlers_of_its_own_is_no_open_door(tmp_path: Path) -> None:
    """The broker for users' tests wraps every handler to script faults."""
    closed = {**SETTINGS, "super.users": ADMIN}
    with (
        EmbeddedBroker(tmp_path / "data", properties=closed, handlers=Handlers()) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        assert wire.ask(describe_request()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
