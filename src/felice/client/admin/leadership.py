"""Who has partitions and who leads them: elections and reassignments.

Each function asks once and answers per partition with a result or its error; retrying is `aio.Admin`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from felice.client.admin.enumerations import ElectionType
from felice.client.admin.model import PartitionReassignment
from felice.client.admin.topics import Results, outcome
from felice.client.error import KafkaException
from felice.client.model import Partition
from felice.client.net.cluster import Cluster
from felice.client.net.requests import by_topic
from felice.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from felice.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from felice.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


async def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Iterable[Partition] | None, timeout_ms: int
) -> Results:
    """None, or why there was no election, by partition. All partitions: only those that needed one."""
    topics = None
    if partitions is not None:
        topics = [
            TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(election_type=kind.value, topic_partitions=topics, timeout_ms=timeout_ms)
    response = await cluster.call_controller(request)
    _raise(response.error_code, None, "elections")
    return {
        (topic.topic, row.partition_id): outcome(
            row.error_code, row.error_message, f"{topic.topic}-{row.partition_id}"
        )
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


async def alter_reassignments(
    cluster: Cluster, wanted: Mapping[Partition, Sequence[int] | None], timeout_ms: int
) -> Results:
    """Begins to move partitions to other brokers (None: cancels a move); None, or the error, by partition."""
    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=_replicas(wanted[topic, number]))
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(wanted).items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)
    response = await cluster.call_controller(request)
    _raise(response.error_code, response.error_message, "reassignments")
    return {
        (topic.name, row.partition_index): outcome(
            row.error_code, row.error_message, f"{topic.name}-{row.partition_index}"
        )
        for topic in response.responses
        for row in topic.partitions
    }


def _replicas(brokers: Sequence[int] | None) -> list[int] | None:
    return None if brokers is None else list(brokers)


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[Partition] | None, timeout_ms: int
) -> dict[Partition, PartitionReassignment]:
    """The moves under way, of these partitions or (None) of all."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    response = await cluster.call_controller(
        ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)
    )
    _raise(response.error_code, response.error_message, "reassignments")
    return {
        (topic.name, row.partition_index): PartitionReassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }


def _raise(code: int, message: str | None, what: str) -> None:
    failed = outcome(code, message, what)
    if isinstance(failed, KafkaException):
        raise failed
