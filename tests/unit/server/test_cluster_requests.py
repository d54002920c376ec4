"""Metadata and administrative requests to any broker of a cluster of three."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from felice.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from felice.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.elect_leaders import ElectionType, ElectLeadersRequest, TopicPartitions
from felice.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.server.process.embedded import EmbeddedCluster
from waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("cluster") / "data", 3) as started:
        yield started


@pytest.fixture
def wires(cluster: EmbeddedCluster) -> Iterator[list[Wire]]:
    opened = [Wire(f"127.0.0.1:{port}") for port in cluster.cluster.ports.values()]
    yield opened
    for wire in opened:
        wire.close()


def create(wire: Wire, name: str, *replicas: list[int]) -> None:
    rows = [CreatableReplicaAssignment(partition_index=n, broker_ids=row) for n, row in enumerate(replicas)]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
    assert wire.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0


def described(wire: Wire, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return wire.ask(request).topics[0]


def test_every_broker_describes_the_same_cluster(wires: list[Wire]) -> None:
    answers = [wire.ask(DescribeClusterRequest()) for wire in wires]
    assert {answer.cluster_id for answer in answers} == {answers[0].cluster_id}
    assert {answer.controller_id for answer in answers} <= {1, 2, 3}
    assert len({answer.controller_id for answer in answers}) == 1
    for answer in answers:
        assert sorted(row.broker_id for row in answer.brokers) == [1, 2, 3]


def test_whichever_broker_is_asked_changes_topics(wires: list[Wire]) -> None:
    for place, wire in enumerate(wires):
        name = f"made-by-{place + 1}"
        create(wire, name, [1], [2], [3])
        grown = wire.ask(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=5, assignments=None)])
        )
        assert grown.results[0].error_code == 0
        assert len(described(wire, name).partitions) == 5
        deleted = wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        assert deleted.responses[0].error_code == 0
        assert described(wire, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_moves_and_its_leader_with_it(cluster: EmbeddedCluster, wires: list[Wire]) -> None:
    create(wires[0], "moves", [1], [1])

    def move(index: int, replicas: list[int] | None) -> Any:
        row = ReassignablePartition(partition_index=index, replicas=replicas)
        topic = ReassignableTopic(name="moves", partitions=[row])
        return wires[2].ask(AlterPartitionReassignmentsRequest(topics=[topic])).responses[0].partitions[0]

    assert move(0, [1, 2]).error_code == 0
    under_way = wires[2].ask(ListPartitionReassignmentsRequest())
    assert [topic.name for topic in under_way.topics] in (["moves"], [])
    assert move(1, [9]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(1, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(7, [1]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_elections_by_request(cluster: EmbeddedCluster, wires: list[Wire]) -> None:
    create(wires[0], "elections", [1, 2], [2, 1])

    def elect(kind: int, wanted: list[int] | None) -> Any:
        topics = None if wanted is None else [TopicPartitions(topic="elections", partitions=wanted)]
        answer = wires[1].ask(ElectLeadersRequest(election_type=kind, topic_partitions=topics))
        rows = [row for topic in answer.replica_election_results for row in topic.partition_result]
        return answer.error_code, [(row.partition_id, row.error_code) for row in rows]

    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    assert elect(ElectionType.PREFERRED, [0, 1]) == (0, [(0, not_needed), (1, not_needed)])
    assert elect(ElectionType.UNCLEAN, [0]) == (0, [(0, not_needed)])
    assert elect(ElectionType.PREFERRED, [5]) == (0, [(5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    assert elect(ElectionType.PREFERRED, None) == (0, [])
    assert elect(7, [0])[0] == ErrorCode.INVALID_REQUEST


def test_metadata_shows_partitions_of_a_dead_broker_without_leader(
    cluster: EmbeddedCluster, wires: list[Wire]
) -> None:
    create(wires[0], "orphan", [3])
    cluster.run(cluster.cluster.kill_broker(3))
    try:
        wait_until(lambda: described(wires[0], "orphan").partitions[0].leader_id == -1)
        [row] = described(wires[0], "orphan").partitions
        assert row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([3], [3], [3])
    finally:
        cluster.run(cluster.cluster.start_broker(3))
    wait_until(lambda: described(wires[0], "orphan").partitions[0].leader_id == 3)


def test_metadata_does_not_name_a_dead_leader_before_the_election(
    cluster: EmbeddedCluster, wires: list[Wire]
) -> None:
    create(wires[0], "headless", [3, 1])
    brokers = cluster.cluster.brokers
    for broker in brokers.values():
        cluster.run(broker.controller.stop())
    cluster.run(cluster.cluster.kill_broker(3))
    try:
        wait_until(lambda: 3 not in brokers[1].image.brokers)
        [row] = described(wires[0], "headless").partitions
        known = brokers[1].image.partition("headless", 0)
        assert known is not None
        assert known.leader == 3
        assert (row.leader_id, row.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    finally:
        cluster.run(_start_roles(cluster))
        cluster.run(cluster.cluster.start_broker(3))
    wait_until(lambda: described(wires[0], "headless").partitions[0].leader_id in (1, 3))


async def _start_roles(cluster: EmbeddedCluster) -> None:
    for broker in cluster.cluster.brokers.values():
        broker.controller.start()
