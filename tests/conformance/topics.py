"""Topics, produce requests and offsets by plain requests, which most tests of rules share."""

import time
from collections.abc import Sequence
from typing import Any

from conformance.targets import Target
from conformance.wire import Wire, unique_name
from felice.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.builder import build_batch
from felice.records.record import Record
from waiting import wait_until

PRODUCE_BY_NAME = 11
NOW_MS = int(time.time() * 1000)
# What a broker may take for a request on a machine under heavy load.
REQUEST_TIMEOUT_MS = 60_000


def record(
    value: bytes | None = b"value",
    key: bytes | None = None,
    timestamp_ms: int = NOW_MS,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    return Record(0, timestamp_ms, key, value, headers)


def batch_of(*values: bytes, **producer: Any) -> bytes:
    return build_batch([record(value) for value in values], **producer)


def create_topic(broker: Target, name: str, partitions: int = 1, **configs: object) -> str:
    """Creates a topic, and returns when it accepts produce requests."""
    with broker.wire() as wire:
        return create_topic_over(wire, name, partitions, **configs)


def create_topic_over(wire: Wire, name: str, partitions: int = 1, **configs: object) -> str:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=str(v)) for k, v in configs.items()],
    )
    answer = wire.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS), 5)
    assert answer.topics[0].error_code == 0, answer
    wait_until(lambda: has_leaders(wire, name, partitions))
    # A KRaft broker shows a leader in Metadata a moment before that leader takes requests.
    for number in range(partitions):
        wait_until(lambda number=number: list_offset(wire, name, -1, number).error_code == 0)
    return name


def new_topic(wire: Wire, partitions: int = 1, prefix: str = "topic", **configs: object) -> str:
    return create_topic_over(wire, unique_name(prefix), partitions, **configs)


def has_leaders(wire: Wire, name: str, partitions: int) -> bool:
    topic = metadata_of(wire, name)
    leaders = [row.leader_id for row in topic.partitions]
    return topic.error_code == 0 and len(leaders) == partitions and -1 not in leaders


def metadata_of(wire: Wire, name: str) -> Any:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return wire.ask(asked, 12).topics[0]


def produce_request(
    topic: str,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def produce(
    wire: Wire,
    topic: str,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    version: int = PRODUCE_BY_NAME,
) -> Any:
    """The partition's row of the response."""
    answer = wire.ask(produce_request(topic, records, partition, acks), version)
    return answer.responses[0].partition_responses[0]


def produce_values(wire: Wire, topic: str, values: Sequence[bytes], partition: int = 0) -> int:
    row = produce(wire, topic, batch_of(*values), partition)
    assert row.error_code == 0, row
    return int(row.base_offset)


def list_offset(
    wire: Wire, topic: str, timestamp: int, partition: int = 0, version: int = 7, isolation_level: int = 0
) -> Any:
    wanted = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=wanted)],
    )
    return wire.ask(asked, version).topics[0].partitions[0]
