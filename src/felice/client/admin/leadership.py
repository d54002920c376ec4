"""Leaders and replicas of partitions: elections and reassignments.

Each function sends one request and returns a result or an error per partition; `aio.Admin` retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from felice.client.admin.enumerations import ElectionType
from felice.client.admin.model import PartitionReassignment
from felice.client.admin.results import Results, WorkTime, outcome
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
    cluster: Cluster, kind: ElectionType, partitions: Iterable[Partition] | None, work: WorkTime
) -> Results:
    """Elect leaders. Returns None or the error by partition; of all partitions only those that needed an election."""
    topics = None
    if partitions is not None:
        topics = [
            TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(election_type=kind.value, topic_partitions=topics, timeout_ms=work.ms)
    response = await cluster.call_controller(request, work.answer_s(cluster.timeout_s))
    _raise(response.error_code, None, "elections")
    return {
        (topic.topic, row.partition_id): outcome(
            row.error_code, row.error_message, f"{topic.topic}-{row.partition_id}"
        )
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


async def alter_reassignments(
    cluster: Cluster, asked: Iterable[tuple[Partition, Sequence[int] | None]], timeout_ms: int
) -> Results:
    """Start to reassign partitions (None cancels a reassignment). Returns None or the error by partition."""
    wanted = dict(asked)
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
    """Return the reassignments in progress, of these partitions or (None) of all."""
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
