"""What the store's nodes mean: an immutable picture of the cluster.

Keeps true: an image never changes; a new one shares with the old what did not change.
            A partition whose state node is not there (yet) has no leader.
How:        `ImageBuilder` takes nodes one by one, in any order, and gives the next image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from felice.metadata import layout
from felice.metadata.layout import Endpoint
from felice.metadata.store import Node
from felice.protocol.primitives import ZERO_UUID

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class PartitionImage:
    partition: int
    replicas: tuple[int, ...]
    leader: int = layout.NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas that a reassignment under way began with (KIP-455)."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that there are to be."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    version: int = 0

    @property
    def known_id(self) -> UUID | None:
        """None where the topic's node has none: Kafka wrote such nodes before 2.8."""
        return None if self.topic_id == ZERO_UUID else self.topic_id

    def partition(self, partition: int) -> PartitionImage | None:
        return self.partitions[partition] if 0 <= partition < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class BrokerImage:
    broker_id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None
    epoch: int
    # The levels of each feature that it can run with: (lowest, highest).
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str | None = None
    controller_id: int = -1
    controller_epoch: int = 0
    # What every decision's write is guarded by.
    controller_epoch_version: int = -1
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    # Topics that are gone, but whose nodes are not yet, by name.
    doomed: Mapping[str, UUID] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # By broker id, or `layout.DEFAULT_ENTITY` for the configuration of every broker.
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Finalized levels by feature. The epoch is the version of their node, -1 where there is none.
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return image.partition(partition) if image else None

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return self.topics.get(name) if name is not None else None

    def without_leaders(self) -> ClusterImage:
        """What a broker that was cut off from the store may still take for granted: that nobody leads."""
        topics = {
            name: replace(
                topic,
                partitions=tuple(
                    replace(partition, leader=layout.NO_LEADER) for partition in topic.partitions
                ),
            )
            for name, topic in self.topics.items()
        }
        return replace(self, topics=MappingProxyType(topics))


class ImageBuilder:
    """The next image: give it every node that changed, then `build`."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._changes: dict[str, object] = {}
        self._topics: dict[str, TopicImage] | None = None
        # Partitions of topics whose states come one by one: thousands of them must not each copy the rest.
        self._partitions: dict[str, list[PartitionImage]] = {}

    def put(self, path: str, node: Node | None) -> None:
        """`node` is what is at `path` now, None when nothing is."""
        parts = path.split("/")[1:]
        match parts:
            case ["brokers", "topics", topic]:
                self._put_topic(topic, node)
            case ["brokers", "topics", topic, "partitions", partition, "state"]:
                self._put_state(topic, int(partition), node)
            case ["brokers", "ids", broker_id]:
                self._put_broker(int(broker_id), node)
            case ["config", "topics", _]:
                self._put_config("topic_configs", layout.entity_of(path), node)
            case ["config", "brokers", _]:
                self._put_config("broker_configs", layout.entity_of(path), node)
            case ["cluster", "id"]:
                self._changes["cluster_id"] = layout.decode_cluster_id(node.data) if node else None
            case ["controller"]:
                self._changes["controller_id"] = layout.decode_controller(node.data) if node else -1
            case ["controller_epoch"]:
                self._changes["controller_epoch"] = int(node.data) if node else 0
                self._changes["controller_epoch_version"] = node.version if node else -1
            case ["feature"]:
                self._changes["features"] = layout.decode_features(node.data) if node else {}
                self._changes["features_epoch"] = node.version if node else -1

    def build(self) -> ClusterImage:
        if self._topics is not None:
            for name, partitions in self._partitions.items():
                self._topics[name] = replace(self._topics[name], partitions=tuple(partitions))
            self._partitions.clear()
            self._changes["topics"] = MappingProxyType(self._topics)
            self._changes["topic_names"] = MappingProxyType(
                {topic.topic_id: name for name, topic in self._topics.items() if topic.topic_id != ZERO_UUID}
            )
        return replace(self._image, **self._changes) if self._changes else self._image  # type: ignore[arg-type]

    def _put_topic(self, name: str, node: Node | None) -> None:
        topics = self._writable_topics()
        if name in self._image.doomed:
            self._writable("doomed", self._image.doomed).pop(name, None)
        known = self._open_partitions(name)
        self._partitions.pop(name, None)
        if node is None:
            topics.pop(name, None)
            return
        value = layout.decode_topic(node.data)
        topic_id = value.topic_id or ZERO_UUID
        if not value.partitions:
            topics.pop(name, None)
            self._writable("doomed", self._image.doomed)[name] = topic_id
            return
        old = topics.get(name)
        if old is not None and old.topic_id != topic_id:
            known = []  # deleted and made again between two reads
        partitions = []
        for partition in range(len(value.partitions)):
            fresh = known[partition] if partition < len(known) else PartitionImage(partition, ())
            partitions.append(
                replace(
                    fresh,
                    replicas=value.partitions[partition],
                    adding=value.adding.get(partition, ()),
                    removing=value.removing.get(partition, ()),
                )
            )
        topics[name] = TopicImage(name, topic_id, tuple(partitions), node.version)

    def _put_state(self, name: str, partition: int, node: Node | None) -> None:
        partitions = self._open_partitions(name)
        if not 0 <= partition < len(partitions):
            return
        known = partitions[partition]
        if node is None:
            partitions[partition] = PartitionImage(partition, known.replicas)
            return
        state = layout.decode_state(node.data)
        partitions[partition] = replace(
            known,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=node.version,
        )

    def _open_partitions(self, name: str) -> list[PartitionImage]:
        """The partitions of a topic as they are so far, to be changed in place."""
        partitions = self._partitions.get(name)
        if partitions is None:
            topic = self._writable_topics().get(name)
            if topic is None:
                return []
            partitions = self._partitions[name] = list(topic.partitions)
        return partitions

    def _put_broker(self, broker_id: int, node: Node | None) -> None:
        brokers = self._writable("brokers", self._image.brokers)
        if node is None:
            brokers.pop(broker_id, None)
            return
        value = layout.decode_broker(node.data)
        endpoints = {endpoint.listener: endpoint for endpoint in value.endpoints}
        brokers[broker_id] = BrokerImage(broker_id, endpoints, value.rack, node.created_zxid, value.features)

    def _put_config(self, kind: str, entity: str, node: Node | None) -> None:
        current = self._image.topic_configs if kind == "topic_configs" else self._image.broker_configs
        configs = self._writable(kind, current)
        if node is None:
            configs.pop(entity, None)
        else:
            configs[entity] = MappingProxyType(layout.decode_config(node.data))

    def _writable_topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
        return self._topics

    def _writable(self, name: str, current: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
        changed = self._changes.setdefault(name, dict(current))
        assert isinstance(changed, dict)
        return changed
