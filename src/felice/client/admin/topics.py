"""Topics and their records: create, delete, add partitions, describe, look up offsets, delete records.

Each function sends one request and returns a result or an error per item; `aio.Admin` retries.
"""

from __future__ import annotations

from collections.abc import Iterable

from felice.client.admin.enumerations import authorized_operations
from felice.client.admin.model import (
    DeletedRecords,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    Node,
    TopicDescription,
    TopicPartitionInfo,
)
from felice.client.admin.results import Results, WorkTime, by_leader, from_each, outcome
from felice.client.error import KafkaException
from felice.client.model import ClusterMetadata, Partition, TopicMetadata, Uuid
from felice.client.net.cluster import Cluster
from felice.client.net.requests import by_topic, list_offsets_request, topic_operations_request
from felice.client.net.wire import ByVersion
from felice.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from felice.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.primitives import ZERO_UUID


async def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], work: WorkTime, validate_only: bool
) -> Results:
    """Create topics. Returns None or the error by topic."""
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics], timeout_ms=work.ms, validate_only=validate_only
    )
    response = await cluster.call_controller(request, work.answer_s(cluster.timeout_s))
    return {row.name: outcome(row.error_code, row.error_message, row.name) for row in response.topics}


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
        for number, brokers in enumerate(topic.replica_assignment)
    ]
    return CreatableTopic(
        name=topic.topic,
        num_partitions=-1 if assignments else topic.num_partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[
            CreatableTopicConfig(name=name, value=None if value is None else str(value))
            for name, value in topic.config.items()
        ],
    )


async def delete_topics(cluster: Cluster, names: Iterable[str], work: WorkTime) -> Results:
    """Delete topics. Returns None or the error by topic."""
    wanted = list(names)

    def build(version: int) -> DeleteTopicsRequest:
        if version >= 6:
            return DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in wanted], timeout_ms=work.ms
            )
        return DeleteTopicsRequest(topic_names=wanted, timeout_ms=work.ms)

    asked = ByVersion(DeleteTopicsRequest, build)
    response = await cluster.call_controller(asked, work.answer_s(cluster.timeout_s))
    return {
        row.name: outcome(row.error_code, row.error_message, row.name or "") for row in response.responses
    }


async def create_partitions(
    cluster: Cluster, topics: Iterable[NewPartitions], work: WorkTime, validate_only: bool
) -> Results:
    """Add partitions. Returns None or the error by topic."""
    rows = [
        CreatePartitionsTopic(
            name=topic.topic,
            count=topic.new_total_count,
            assignments=[
                CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in topic.replica_assignment
            ]
            or None,
        )
        for topic in topics
    ]
    request = CreatePartitionsRequest(topics=rows, timeout_ms=work.ms, validate_only=validate_only)
    response = await cluster.call_controller(request, work.answer_s(cluster.timeout_s))
    return {row.name: outcome(row.error_code, row.error_message, row.name) for row in response.results}


async def describe_topics(
    cluster: Cluster, names: Iterable[str], include_authorized_operations: bool = False
) -> Results:
    """Return `TopicDescription` or the error by topic."""
    wanted = list(names)
    await cluster.refresh(wanted)
    picture = cluster.topology.describe(wanted)
    described = {name: _describe(picture, picture.topics[name]) for name in wanted}
    if include_authorized_operations:
        response = await cluster.call_any(topic_operations_request(wanted))
        for row in response.topics:
            found = described.get(row.name)
            if isinstance(found, TopicDescription):
                found.authorized_operations = authorized_operations(row.topic_authorized_operations)
    return described


def _describe(picture: ClusterMetadata, topic: TopicMetadata) -> TopicDescription | KafkaException:
    if topic.error is not None:
        return KafkaException(topic.error)
    nodes = nodes_of(picture)
    partitions = [
        TopicPartitionInfo(
            row.id,
            nodes.get(row.leader),
            [nodes.get(number, _unknown_node(number)) for number in row.replicas],
            [nodes.get(number, _unknown_node(number)) for number in row.isrs],
        )
        for row in topic.partitions.values()
    ]
    topic_id = Uuid.of(topic.topic_id or ZERO_UUID)
    return TopicDescription(topic.topic, topic_id, topic.is_internal, partitions)


def nodes_of(picture: ClusterMetadata) -> dict[int, Node]:
    """The brokers in the metadata, by node id."""
    return {row.id: Node(row.id, row.host, row.port, row.rack) for row in picture.brokers.values()}


def _unknown_node(number: int) -> Node:
    return Node(number, "", -1)


async def list_offsets(
    cluster: Cluster, asked: Iterable[tuple[Partition, int]], isolation_level: int
) -> Results:
    """Look for timestamps. Return `ListOffsetsResultInfo` or the error by partition."""
    timestamps = dict(asked)
    led, errors = await by_leader(cluster, timestamps)

    async def ask(node_id: int, partitions: list[Partition]) -> Results:
        questions = {partition: timestamps[partition] for partition in partitions}
        response = await cluster.call(node_id, list_offsets_request(questions, isolation_level))
        found: Results = {}
        for topic in response.topics:
            for row in topic.partitions:
                info = ListOffsetsResultInfo(row.offset, row.timestamp, row.leader_epoch)
                what = f"{topic.name}-{row.partition_index}"
                found[topic.name, row.partition_index] = outcome(row.error_code, None, what, info)
        return found

    return errors | await from_each(led, ask)


async def delete_records(cluster: Cluster, asked: Iterable[tuple[Partition, int]], work: WorkTime) -> Results:
    """Delete the records before the offsets; -1 deletes all up to the high watermark."""
    offsets = dict(asked)
    led, errors = await by_leader(cluster, offsets)

    async def ask(node_id: int, partitions: list[Partition]) -> Results:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=number, offset=offsets[topic, number])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=work.ms)
        response = await cluster.call(node_id, request, timeout_s=work.answer_s(cluster.timeout_s))
        found: Results = {}
        for topic in response.topics:
            for row in topic.partitions:
                what = f"{topic.name}-{row.partition_index}"
                deleted = DeletedRecords(row.low_watermark)
                found[topic.name, row.partition_index] = outcome(row.error_code, None, what, deleted)
        return found

    return errors | await from_each(led, ask)
