"""What the client knows of the cluster: brokers, topics and partition leaders. Pure.

Keeps true:  A known leader epoch never goes back: an older response from a slower broker does not undo a newer one. A
             topic that was deleted and created again (a new id) is a new topic without the old epochs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import field, replace

from felice.client.error import KafkaError, error_of, failure
from felice.client.model import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from felice.protocol.primitives import ZERO_UUID

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """Leader, replicas and error of one partition, from the last Metadata response."""

    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    error_code: int = 0
    offline: tuple[int, ...] = ()


@dataclass(slots=True)
class KnownTopic:
    """Id and partitions of one topic."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool = False
    partitions: dict[int, KnownPartition] = field(default_factory=dict)


class Topology:
    """Updated by Metadata responses and by the leader hints in Produce and Fetch responses (KIP-951)."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, KnownTopic] = {}
        self.topic_errors: dict[str, int] = {}
        self.names_by_id: dict[uuid.UUID, str] = {}
        self.version = 0
        # The broker that answered last: its id (-1 if only its address is known) and name.
        self.origin_id = -1
        self.origin_name: str | None = None

    def answered_by(self, host: str, port: int) -> None:
        """Note which broker answered last; its name has librdkafka's form."""
        ids = (broker.id for broker in self.brokers.values() if (broker.host, broker.port) == (host, port))
        self.origin_id = next(ids, -1)
        self.origin_name = f"{host}:{port}/{'bootstrap' if self.origin_id < 0 else self.origin_id}"

    def update(self, response: MetadataResponse, *, complete: bool = False) -> None:
        """Apply a response. `complete`: it covers all topics, so topics missing from it no longer exist."""
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            broker.node_id: BrokerMetadata(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        if complete:
            answered = {topic.name for topic in response.topics}
            self.forget(name for name in list(self.topics) if name not in answered)
        for topic in response.topics:
            self._update_topic(topic)
        self.version += 1

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        if topic.name is None:
            return
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            self.topic_errors[topic.name] = topic.error_code
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.forget([topic.name])
            return
        if topic.error_code:
            self.topic_errors[topic.name] = topic.error_code
        else:
            self.topic_errors.pop(topic.name, None)
        known = self.topics.get(topic.name)
        if known is not None and known.topic_id not in (ZERO_UUID, topic.topic_id):
            self.forget([topic.name])
            known = None
        fresh = KnownTopic(topic.name, topic.topic_id, topic.is_internal)
        for partition in topic.partitions:
            before = known.partitions.get(partition.partition_index) if known else None
            fresh.partitions[partition.partition_index] = _newer(before, partition)
        self.topics[topic.name] = fresh
        if topic.topic_id != ZERO_UUID:
            self.names_by_id[topic.topic_id] = topic.name

    def forget(self, names: Iterable[str]) -> None:
        """Drop topics that no longer exist."""
        for name in names:
            topic = self.topics.pop(name, None)
            if topic is not None:
                self.names_by_id.pop(topic.topic_id, None)

    def on_leader_hint(self, topic: str, partition: int, leader_id: int, leader_epoch: int) -> bool:
        """Apply a leader reported by another broker; True if its leader epoch is newer than the known one."""
        known = self.partition(topic, partition)
        if known is None or leader_id not in self.brokers or leader_epoch <= known.leader_epoch:
            return False
        fresh = replace(known, leader_id=leader_id, leader_epoch=leader_epoch)
        self.topics[topic].partitions[partition] = fresh
        self.version += 1
        return True

    def broker(self, node_id: int) -> BrokerMetadata:
        """The broker with this id. Raises _UNKNOWN_BROKER, which new metadata may resolve, if it is unknown."""
        broker = self.brokers.get(node_id)
        if broker is None:
            why = f"broker {node_id} is not in the metadata"
            raise failure(KafkaError._UNKNOWN_BROKER, why, retriable=True)
        return broker

    def partition(self, topic: str, partition: int) -> KnownPartition | None:
        """The partition, or None if it is unknown."""
        known = self.topics.get(topic)
        return known.partitions.get(partition) if known else None

    def partition_count(self, topic: str) -> int:
        """Number of partitions; 0 if the topic is unknown."""
        known = self.topics.get(topic)
        return len(known.partitions) if known else 0

    def leader(self, topic: str, partition: int) -> int:
        """Node id of the leader; NO_LEADER if there is none or the partition is unknown."""
        known = self.partition(topic, partition)
        return known.leader_id if known else NO_LEADER

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch; -1 if the partition is unknown."""
        known = self.partition(topic, partition)
        return known.leader_epoch if known else -1

    def topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id; ZERO_UUID if it is unknown."""
        known = self.topics.get(topic)
        return known.topic_id if known else ZERO_UUID

    def describe(self, names: Iterable[str] | None = None) -> ClusterMetadata:
        """The metadata for applications. A requested topic that is unknown carries an error."""
        wanted = sorted(self.topics) if names is None else list(names)
        return ClusterMetadata(
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            brokers=dict(self.brokers),
            topics={name: self._describe_topic(name) for name in wanted},
            orig_broker_id=self.origin_id,
            orig_broker_name=self.origin_name,
        )

    def _describe_topic(self, name: str) -> TopicMetadata:
        topic = self.topics.get(name)
        if topic is None:
            code = self.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return TopicMetadata(name, error=error_of(code))
        partitions = {
            number: PartitionMetadata(
                number,
                known.leader_id,
                list(known.replicas),
                list(known.isr),
                error_of(known.error_code) if known.error_code else None,
                known.leader_epoch,
            )
            for number, known in sorted(topic.partitions.items())
        }
        return TopicMetadata(name, partitions, None, topic.topic_id, topic.is_internal)


def _newer(known: KnownPartition | None, found: MetadataResponsePartition) -> KnownPartition:
    fresh = KnownPartition(
        found.leader_id,
        found.leader_epoch,
        tuple(found.replica_nodes),
        tuple(found.isr_nodes),
        found.error_code,
        tuple(found.offline_replicas),
    )
    stale = known is not None and 0 <= fresh.leader_epoch < known.leader_epoch
    return known if stale and known is not None else fresh
