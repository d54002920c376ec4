"""The calls of web consoles: kafbat's kafka-ui, Redpanda Console, AKHQ and kafdrop, at their start and for each page.

A console hides a page, or shows the whole cluster as offline, if one of these calls fails. So each test sends the calls
of one page, in versions that the client library of that console uses, and checks the fields that the page shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.batches import fetch_records
from conformance.group_calls import Member, stable_member
from conformance.secured import Rule, Secured, describe_request, rows_of, secured
from conformance.targets import Target
from conformance.topics import create_topic_over, produce_values
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import describe_client_quotas as quotas
from felice.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from felice.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from felice.records.reader import read_records
from felice.security.acl import Operation, ResourceType
from waiting import wait_until

TOPIC, BROKER = 2, 4
EARLIEST, LATEST = -2, -1
ORDERS, PAYMENTS, GROUP = "orders", "payments", "shop"
PARTITIONS = {ORDERS: 3, PAYMENTS: 1}
RULE = Rule(ResourceType.TOPIC, ORDERS, Operation.READ, principal="User:alice")
# The versions of an old and of a new client library. The Java clients of the consoles are 3.x and 4.x; kafdrop's and
# AKHQ's older releases have 2.x; Redpanda Console uses franz-go.
OLD_AND_NEW = ("old", "new")


def version(age: str, old: int, new: int) -> int:
    return old if age == "old" else new


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with topics, records, a group with one member that has committed offsets, and a rule."""
    with secured(tmp_path_factory.mktemp("consoles") / "data") as found:
        for name, partitions in PARTITIONS.items():
            create_topic_over(found.admin, name, partitions)
        produce_values(found.admin, ORDERS, [b"one", b"two", b"three"])
        with found.user("admin") as connection:
            committed_member(connection)
            found.grant(RULE)
            yield found


def committed_member(wire: Wire) -> Member:
    member = stable_member(wire, GROUP, session_timeout_ms=600_000)
    assert member.commit(ORDERS, 2) == 0
    return member


@pytest.fixture
def admin(cluster: Secured) -> Wire:
    return cluster.admin


# Calls that several consoles send


def topics_of(wire: Wire, asked: int) -> dict[str, Any]:
    """The rows of all topics. One topic with an error would fail the whole page."""
    answer = wire.ask(MetadataRequest(topics=None), asked)
    assert all(topic.error_code == 0 for topic in answer.topics), answer
    assert all(row.error_code == 0 for topic in answer.topics for row in topic.partitions), answer
    return {topic.name: topic for topic in answer.topics}


def offsets_of(wire: Wire, timestamp: int, asked: int) -> dict[tuple[str, int], int]:
    rows = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in range(count)],
        )
        for name, count in PARTITIONS.items()
    ]
    answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=rows), asked)
    assert all(row.error_code == 0 for topic in answer.topics for row in topic.partitions), answer
    return {(t.name, row.partition_index): row.offset for t in answer.topics for row in t.partitions}


def configs_of(
    wire: Wire, kind: int, names: list[str], asked: int, keys: list[str] | None = None
) -> list[dict[str, Any]]:
    """The options of each resource by name, with their synonyms and, if the version has it, documentation."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for name in names
    ]
    request = DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=asked >= 3
    )
    answer = wire.ask(request, asked)
    assert [row.resource_name for row in answer.results] == names
    assert all(row.error_code == 0 for row in answer.results), answer
    return [{option.name: option for option in row.configs} for row in answer.results]


def sizes_of(wire: Wire, asked: int) -> dict[tuple[str, int], int]:
    """The size of each partition on disk."""
    answer = wire.ask(DescribeLogDirsRequest(topics=None), asked)
    assert all(found.error_code == 0 for found in answer.results), answer
    return {
        (topic.name, row.partition_index): row.partition_size
        for found in answer.results
        for topic in found.topics
        for row in topic.partitions
    }


def groups_of(wire: Wire, asked: int) -> list[str]:
    answer = wire.ask(ListGroupsRequest(), asked)
    assert answer.error_code == 0, answer
    return [row.group_id for row in answer.groups]


def described_group(wire: Wire, asked: int) -> Any:
    [group] = wire.ask(DescribeGroupsRequest(groups=[GROUP]), asked).groups
    assert group.error_code == 0, group
    return group


def committed_offsets(wire: Wire, asked: int) -> dict[tuple[str, int], int]:
    """All offsets of the group, as version 8 asks for several groups and older ones for a single group."""
    if asked >= 8:
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
        [answer] = wire.ask(OffsetFetchRequest(groups=groups), asked).groups
    else:
        answer = wire.ask(OffsetFetchRequest(group_id=GROUP, topics=None), asked)
    assert answer.error_code == 0, answer
    return {
        (t.name, row.partition_index): row.committed_offset for t in answer.topics for row in t.partitions
    }


def shows_topics(wire: Wire, age: str) -> None:
    topics = topics_of(wire, version(age, 5, 12))
    assert {name: len(topics[name].partitions) for name in PARTITIONS} == PARTITIONS
    assert {name for name, topic in topics.items() if topic.is_internal} == {"__consumer_offsets"}
    for row in topics[ORDERS].partitions:
        assert row.leader_id in row.replica_nodes and row.isr_nodes == row.replica_nodes


def shows_lag(wire: Wire, age: str) -> None:
    latest = offsets_of(wire, LATEST, version(age, 1, 7))
    committed = committed_offsets(wire, version(age, 2, 8))
    assert {where: latest[where] - offset for where, offset in committed.items()} == {(ORDERS, 0): 1}


def shows_groups(wire: Wire, age: str) -> None:
    assert GROUP in groups_of(wire, version(age, 0, 4))
    group = described_group(wire, version(age, 0, 5))
    assert (group.group_state, group.protocol_type, len(group.members)) == ("Stable", "consumer", 1)
    assert group.members[0].client_id == "wire" and group.members[0].client_host


def shows_sizes(wire: Wire, age: str) -> None:
    sizes = sizes_of(wire, version(age, 1, 4))
    assert {(name, p) for name, count in PARTITIONS.items() for p in range(count)} <= sizes.keys()
    assert sizes[ORDERS, 0] > 0 == sizes[PAYMENTS, 0]


# kafbat kafka-ui


@pytest.mark.parametrize("age", OLD_AND_NEW)
def test_kafka_ui_finds_the_features_of_the_cluster_at_its_start(admin: Wire, age: str) -> None:
    cluster = admin.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert cluster.error_code == 0 and cluster.cluster_id
    assert cluster.controller_id in [row.broker_id for row in cluster.brokers]
    # The page of ACLs can be edited only if the user may alter the cluster.
    assert cluster.cluster_authorized_operations & 1 << Operation.ALTER
    [options] = configs_of(admin, BROKER, [str(cluster.controller_id)], version(age, 1, 4))
    features = admin.ask(ApiVersionsRequest(client_software_name="java", client_software_version="1"), 3)
    levels = {row.name for row in features.finalized_features}
    # It takes a version from one of these; without one it hides quotas and the documentation of options.
    assert "inter.broker.protocol.version" in options or "metadata.version" in levels
    assert RULE.row in rows_of(admin.ask(describe_request(), version(age, 1, 3)))


@pytest.mark.parametrize("age", OLD_AND_NEW)
def test_kafka_ui_refreshes_its_pages(admin: Wire, age: str) -> None:
    shows_topics(admin, age)
    shows_sizes(admin, age)
    shows_groups(admin, age)
    shows_lag(admin, age)
    names = sorted(topics_of(admin, 12))
    for options in configs_of(admin, TOPIC, names, version(age, 1, 4)):
        assert {"cleanup.policy", "retention.ms", "min.insync.replicas"} <= options.keys()
    earliest = offsets_of(admin, EARLIEST, version(age, 1, 7))
    assert earliest[ORDERS, 0] == 0


def test_kafka_ui_shows_quotas(admin: Wire) -> None:
    answer = admin.ask(quotas.DescribeClientQuotasRequest(components=[], strict=False), 1)
    assert (answer.error_code, answer.entries) == (0, [])


@pytest.mark.felice_only
def test_kafka_ui_takes_a_missing_quorum_from_the_list_of_calls(admin: Wire) -> None:
    # The Java client fails this call by itself, with UNSUPPORTED_VERSION, which kafka-ui shows as ZooKeeper.
    describe_quorum = 55
    assert describe_quorum not in advertised(admin)


# Redpanda Console

MENU_OF_REDPANDA_CONSOLE = {
    "topic configs": {32},
    "groups": {15, 16},
    "delete records": {21},
    "broker log dirs": {35},
    "delete groups": {42},
    "delete offsets": {47},
    "reassignments": {45, 46},
    "incremental configs": {44},
    "quotas": {48},
    "users": {50, 51},
    "ACLs": {29, 30, 31},
}


def advertised(wire: Wire) -> set[int]:
    answer = wire.ask(ApiVersionsRequest(client_software_name="kgo", client_software_version="1"), 3)
    assert answer.error_code == 0
    return {row.api_key for row in answer.api_keys}


@pytest.mark.parametrize("item", MENU_OF_REDPANDA_CONSOLE)
def test_redpanda_console_shows_all_menu_items(admin: Wire, item: str) -> None:
    assert MENU_OF_REDPANDA_CONSOLE[item] <= advertised(admin)


def test_redpanda_console_shows_topics(admin: Wire) -> None:
    shows_topics(admin, "new")
    shows_sizes(admin, "new")
    for options in configs_of(admin, TOPIC, sorted(topics_of(admin, 12)), 4, ["cleanup.policy"]):
        assert options["cleanup.policy"].value in ("delete", "compact")


def test_redpanda_console_shows_brokers_and_the_defaults_of_a_new_topic(admin: Wire) -> None:
    [broker] = admin.ask(MetadataRequest(topics=[]), 12).brokers
    [options] = configs_of(admin, BROKER, [str(broker.node_id)], 4)
    for name in ("num.partitions", "default.replication.factor", "log.retention.ms", "log.cleanup.policy"):
        assert name in options
    assert options["num.partitions"].value == "1"
    assert options["num.partitions"].documentation
    assert options["num.partitions"].synonyms[-1].name == "num.partitions"


def test_redpanda_console_shows_groups_messages_and_users(admin: Wire) -> None:
    shows_groups(admin, "new")
    shows_lag(admin, "new")
    assert offsets_of(admin, 0, 7)[ORDERS, 0] == 0
    values = [record.value for record in read_records(fetch_records(admin, ORDERS, 1))]
    assert values[-2:] == [b"two", b"three"]
    assert admin.ask(ListPartitionReassignmentsRequest(topics=None), 0).error_code == 0
    users = admin.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert (users.error_code, users.results) == (0, [])


# AKHQ


@pytest.mark.parametrize("age", OLD_AND_NEW)
def test_akhq_shows_topics_groups_and_rules(admin: Wire, age: str) -> None:
    shows_topics(admin, age)
    # AKHQ asks for the offset at timestamp 0 instead of the earliest offset. An empty partition has none.
    begin = offsets_of(admin, 0, version(age, 1, 7))
    assert (begin[ORDERS, 0], begin[PAYMENTS, 0]) == (0, -1)
    shows_sizes(admin, age)
    shows_groups(admin, age)
    shows_lag(admin, age)
    by_topic = describe_request(ResourceType.TOPIC, ORDERS)
    assert rows_of(admin.ask(by_topic, version(age, 1, 3))) == {RULE.row}


def test_akhq_saves_an_option_of_a_topic(admin: Wire) -> None:
    option = AlterableConfig(name="retention.ms", value="86400000")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=PAYMENTS, configs=[option])
    [saved] = admin.ask(AlterConfigsRequest(resources=[resource]), 1).responses
    assert saved.error_code == 0
    wait_until(
        lambda: configs_of(admin, TOPIC, [PAYMENTS], 1)[0]["retention.ms"].value == "86400000",
    )


def test_consoles_are_told_that_there_are_no_rules_without_an_authorizer(broker: Target) -> None:
    # kafka-ui hides its page of ACLs then, and kafdrop and AKHQ show an empty one. Another error fails the page.
    with broker.wire() as wire:
        assert wire.ask(describe_request(), 2).error_code == ErrorCode.SECURITY_DISABLED


# kafdrop


@pytest.mark.parametrize("age", OLD_AND_NEW)
def test_kafdrop_shows_topics_and_their_consumers(admin: Wire, age: str) -> None:
    shows_topics(admin, age)
    assert offsets_of(admin, EARLIEST, version(age, 1, 7))[ORDERS, 0] == 0
    configs_of(admin, TOPIC, [ORDERS, PAYMENTS], version(age, 1, 4))
    assert GROUP in groups_of(admin, version(age, 0, 4))
    shows_lag(admin, age)
    assert RULE.row in rows_of(admin.ask(describe_request(), version(age, 1, 3)))
