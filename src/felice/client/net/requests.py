"""What the asyncio client and the blocking client share: requests, built from the known topology, and found offsets.

Keeps true:  Topics are sent by id if the version has ids and the topology knows them, otherwise by name (KIP-516). No
             version is chosen that needs an unknown id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict
from uuid import UUID

from felice.client.error import KafkaError, error_of, failure
from felice.client.model import OffsetAndTimestamp, Partition
from felice.client.net.topology import Topology
from felice.client.net.wire import ByVersion
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.primitives import ZERO_UUID, Buffer

LAST_VERSION_BY_NAME = 12
"""The last version of Produce and Fetch with topic names; from 13 on they have ids only."""

OPERATIONS_IN_METADATA = 8
"""The first version of Metadata that reports authorized operations."""

TOPIC_IDS_IN_METADATA = 12
"""The first version of Metadata that may ask for topics by id."""

LAST_EXPLICIT_PRODUCE = 11
"""From version 12 on, a transactional Produce adds its partitions to the transaction implicitly (KIP-890)."""

LAST_INIT_PRODUCER_ID = 5
"""Version 6 is unstable in Kafka 4.3, and only two-phase commits need it."""


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Group partition numbers by topic, in the given order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def metadata_request(topics: Iterable[str] | None, *, allow_auto_create: bool) -> MetadataRequest:
    """A Metadata request for these topics: None means all topics, an empty list none."""
    rows = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=rows, allow_auto_topic_creation=allow_auto_create)


def topic_ids_request(topic_ids: Iterable[UUID]) -> ByVersion:
    """A Metadata request for the topics with these ids; needs version 12."""
    rows = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]

    def build(version: int) -> MetadataRequest:
        if version < TOPIC_IDS_IN_METADATA:
            raise failure(KafkaError._UNSUPPORTED_FEATURE, "the broker does not look up topics by their ids")
        return MetadataRequest(topics=rows, allow_auto_topic_creation=False)

    return ByVersion(MetadataRequest, build)


def topic_operations_request(topics: Iterable[str]) -> ByVersion:
    """A Metadata request that asks for the operations allowed on each topic; needs version 8."""

    def build(version: int) -> MetadataRequest:
        if version < OPERATIONS_IN_METADATA:
            raise failure(KafkaError._UNSUPPORTED_FEATURE, "the broker does not report authorized operations")
        request = metadata_request(topics, allow_auto_create=False)
        request.include_topic_authorized_operations = True
        return request

    return ByVersion(MetadataRequest, build)


def list_offsets_request(timestamps: Mapping[Partition, int], isolation_level: int) -> ListOffsetsRequest:
    """A ListOffsets request by time in milliseconds; -1 and -2 name the end and the start of the log."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=number, timestamp=timestamps[topic, number])
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(timestamps).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def found_offsets(
    response: ListOffsetsResponse, asked: Iterable[Partition]
) -> dict[Partition, OffsetAndTimestamp | KafkaError]:
    """The offset or the error of each partition that was asked for, also of one that the response leaves out."""
    rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
    found: dict[Partition, OffsetAndTimestamp | KafkaError] = {}
    for key in asked:
        name, row = f"{key[0]}-{key[1]}", rows.get(key)
        if row is None:
            found[key] = error_of(KafkaError._BAD_MSG, f"the reply leaves out {name}", retriable=True)
        elif row.error_code:
            found[key] = error_of(row.error_code, name)
        else:
            found[key] = OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
    return found


def _cap(topology: Topology, topics: Iterable[str]) -> int | None:
    known = all(topology.topic_id(topic) != ZERO_UUID for topic in topics)
    return None if known else LAST_VERSION_BY_NAME


def fetch_request(
    topology: Topology,
    positions: Mapping[Partition, int],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_max_bytes: int,
    isolation_level: int,
    min_bytes: int = 1,
    rack_id: str = "",
) -> ByVersion:
    """A Fetch request without a fetch session."""
    topics = [
        FetchTopic(
            topic=topic,
            topic_id=topology.topic_id(topic),
            partitions=[
                FetchPartition(
                    partition=number,
                    current_leader_epoch=topology.leader_epoch(topic, number),
                    fetch_offset=positions[topic, number],
                    partition_max_bytes=partition_max_bytes,
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(positions).items()
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=topics,
        rack_id=rack_id,
    )
    return ByVersion(FetchRequest, lambda version: request, _cap(topology, by_topic(positions)))


class ProducerFields(TypedDict):
    """The fields that all requests of a transactional producer have."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def produce_request(
    topology: Topology,
    batches: Mapping[Partition, Buffer],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
    *,
    adds_partitions: bool = False,
) -> ByVersion:
    """A Produce request with one batch per partition. `adds_partitions`: it adds them to the transaction."""
    topics = [
        TopicProduceData(
            name=topic,
            topic_id=topology.topic_id(topic),
            partition_data=[
                PartitionProduceData(index=number, records=batches[topic, number]) for number in numbers
            ],
        )
        for topic, numbers in by_topic(batches).items()
    ]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topics
    )

    def build(version: int) -> ProduceRequest:
        if adds_partitions and version <= LAST_EXPLICIT_PRODUCE:
            raise failure(
                KafkaError._UNSUPPORTED_FEATURE,
                f"Produce version {version} cannot write to a transaction of version 2",
            )
        return request

    explicit = transactional_id is not None and not adds_partitions
    cap = LAST_EXPLICIT_PRODUCE if explicit else _cap(topology, by_topic(batches))
    return ByVersion(ProduceRequest, build, cap)
