"""The meaning of the store's nodes: an immutable image of the cluster.

Keeps true: an image never changes; a new one shares the unchanged parts of the old one.
            A partition without a state node has no leader (yet).
            A topic is identified by the creation of its node: a recreated node is another topic, an edited one is the
            same topic. Its id is that of its topic-id node (`metadata/identity.py`), or else that in its node.
            A topic with an unreadable node is in `topic_faults`, and stays as it was known. A node with ACLs that is
            unreadable leaves its resource with the ACLs known before, or with none that allows anything.
How:        `ImageBuilder` takes nodes one by one and builds the next image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from felice.dataclass import dataclass
from felice.metadata import layout
from felice.metadata.client_entity import ClientEntity
from felice.metadata.layout import Endpoint, TopicIdNode
from felice.metadata.store import Node
from felice.metadata.token_nodes import decode_token
from felice.security.acl import AclsByResource
from felice.security.delegation_tokens import DelegationToken

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


# The fields of an image with configurations by entity, by the name of their root below /config.
_CONFIG_FIELDS = {
    "topics": "topic_configs",
    "brokers": "broker_configs",
    "client-metrics": "client_metrics",
    "groups": "group_configs",
}
# Entities that exist only as configurations: an entity without configurations has no entry.
_KNOWN_BY_CONFIG = ("client-metrics", "groups")


class _Meaningless(ValueError):
    """A node that can be parsed, but that neither Felice nor Kafka would have written."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """The replicas of one partition and its leadership. `partition_epoch` is the version of its state node."""

    partition: int
    replicas: tuple[int, ...]
    leader: int = layout.NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    # The zxid at which the state node was created: no other state node of this path has the same.
    state_created_zxid: int = -1

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way: replicas are being added or removed (KIP-455)."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment under way (KIP-455)."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment under way, or the current ones."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `partitions` has them by number. `version` is that of the topic's node."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]
    version: int = 0
    # The zxid at which the topic's node was created: no other topic of its name has the same.
    created_zxid: int = 0

    def partition(self, partition: int) -> PartitionImage | None:
        """The partition of that number, or None."""
        return self.partitions[partition] if 0 <= partition < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One live broker. `epoch` is the zxid at which it registered; `endpoints` are by listener name."""

    broker_id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None
    epoch: int
    # The levels of each feature that the broker supports: (lowest, highest).
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Partitions, by topic, whose replicas this broker cannot serve because of its disks.
    offline_replicas: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster as the store showed it at one time. Brokers with a session are the live ones."""

    cluster_id: str | None = None
    # Images with the same number are connected by watched changes: of two such images the later one is the newer state
    # of the store. After a reading of the whole store that is uncertain, because an operator may have restored an older
    # state.
    reading: int = field(default=0, compare=False)
    controller_id: int = -1
    controller_epoch: int = 0
    # Every decision's write checks this version.
    controller_epoch_version: int = -1
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    # Topics that are deleted, but whose nodes are not all gone yet, by name.
    pending_deletions: Mapping[str, UUID] = field(default_factory=dict)
    # Topics whose deletion was requested: the brokers that may still have logs of them, and the zxids at which these
    # records were created.
    deleted_topics: Mapping[UUID, Mapping[int, int]] = field(default_factory=dict)
    # Faults of topics' nodes, by topic name.
    topic_faults: Mapping[str, str] = field(default_factory=dict)
    # The topic-id nodes found below topics, and the zxids at which they were created.
    topic_id_nodes: Mapping[str, tuple[tuple[TopicIdNode, int], ...]] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # By broker id, or `layout.DEFAULT_ENTITY` for the configuration of all brokers.
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Quotas of users, clients and addresses, and SCRAM credentials of users by mechanism.
    client_configs: Mapping[ClientEntity, Mapping[str, str]] = field(default_factory=dict, repr=False)
    # Client metrics resources (KIP-714) by name. A resource without configurations does not exist.
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Configurations of groups by id. A group without configurations has no entry. A group with an entry need not exist.
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Finalized levels by feature. The epoch is the version of their node, -1 without one.
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1
    acls: AclsByResource = field(default_factory=dict)
    # Delegation tokens by id, also those that have expired and were not deleted yet.
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """The partition, or None if topic or partition do not exist."""
        image = self.topics.get(topic)
        return image.partition(partition) if image else None

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic with that id, or None."""
        name = self.topic_names.get(topic_id)
        return self.topics.get(name) if name is not None else None

    def offline_replicas(self, topic: str, partition: PartitionImage) -> list[int]:
        """The brokers whose replicas cannot be served: they are not alive, or their disk has failed."""
        return [
            replica
            for replica in partition.replicas
            if (broker := self.brokers.get(replica)) is None
            or partition.partition in broker.offline_replicas.get(topic, ())
        ]

    def config_at(self, path: str) -> Mapping[str, str]:
        """The overrides in the configuration node at this path; empty without the node."""
        kind, _, entity = path.removeprefix(f"{layout.CONFIG}/").partition("/")
        if kind in _CONFIG_FIELDS:
            configs: Mapping[str, Mapping[str, str]] = getattr(self, _CONFIG_FIELDS[kind])
            return configs.get(layout.entity_of(path), {})
        client = ClientEntity.of_path(f"{kind}/{entity}")
        assert client is not None, f"{path} is a configuration node"
        return self.client_configs.get(client, {})

    def is_deletion_requested(self, topic_id: UUID) -> bool:
        """Whether the store has a record that somebody requested the deletion of this topic."""
        return topic_id in self.deleted_topics or topic_id in self.pending_deletions.values()

    def without_leaders(self) -> ClusterImage:
        """The image for a broker that was cut off from the store: no partition has a leader."""
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
    """The next image: `put` every node that changed, then `build`.

    Topic-id nodes come before their topics' nodes, and never without them; topics' nodes before their partitions'
    states.
    """

    def __init__(self, image: ClusterImage, *, is_complete: bool = False) -> None:
        """With `is_complete` every node of the store will be `put`."""
        self._image = ClusterImage(reading=image.reading + 1) if is_complete else image
        self._known = image.topics
        self._known_acls = image.acls
        self._changes: dict[str, object] = {}
        self._topics: dict[str, TopicImage] | None = None
        # Whether a topic came, went or changed its node; the states of partitions leave the names as they are.
        self._are_names_changed = is_complete
        # Partitions of topics whose states come one by one: copying a topic for each of thousands would be slow.
        self._partitions: dict[str, list[PartitionImage]] = {}

    def put(self, path: str, node: Node | None) -> None:
        """`node` is what is at `path` now, None if nothing is."""
        parts = path.split("/")[1:]
        match parts:
            case ["brokers", "topics", topic]:
                self._put_topic(topic, node)
            case ["brokers", "topics", topic, "topic_id", name]:
                self._put_topic_id_node(topic, name, node)
            case ["brokers", "topics", topic, "partitions", partition, "state"]:
                self._put_state(topic, int(partition), node)
            case ["admin", "deleted_topics", name]:
                self._put_deletion_record(name, node)
            case ["brokers", "ids", broker_id]:
                self._put_broker(int(broker_id), node)
            case ["config", "users" | "clients" | "ips", *_]:
                self._put_client_config("/".join(parts[1:]), node)
            case ["config", kind, _] if kind in _CONFIG_FIELDS:
                self._put_config(kind, layout.entity_of(path), node)
            case ["kafka-acl", _, _] | ["kafka-acl-extended", "prefixed", _, _]:
                self._put_acls(path, node)
            case ["delegation_token", "tokens", token_id]:
                self._put_token(token_id, node)
            case ["cluster", "id"]:
                if node is not None:  # a cluster keeps its id, even if an operator removes the node
                    self._changes["cluster_id"] = layout.decode_cluster_id(node.data)
            case ["controller"]:
                self._changes["controller_id"] = layout.decode_controller(node.data) if node else -1
            case ["controller_epoch"]:
                self._changes["controller_epoch"] = int(node.data) if node else 0
                self._changes["controller_epoch_version"] = node.version if node else -1
            case ["feature"]:
                self._changes["features"] = layout.decode_features(node.data) if node else {}
                self._changes["features_epoch"] = node.version if node else -1

    def end_topics(self) -> None:
        """Completes the topics whose nodes were put so far. Call it after each group of topics.

        Otherwise `build` completes all topics of the cluster, and holds the event loop for long.
        """
        for name, partitions in self._partitions.items():
            topic = replace(self._writable_topics()[name], partitions=tuple(partitions))
            known = self._known.get(name)
            self._writable_topics()[name] = known if known is not None and topic == known else topic
        self._partitions.clear()

    def gained(self, topic: str) -> range:
        """The partitions that the topic has gained, after `end_topics`; none for a topic that was not known before."""
        topics = self._image.topics if self._topics is None else self._topics
        known, current = self._known.get(topic), topics.get(topic)
        if known is None or current is None:
            return range(0)
        return range(len(known.partitions), len(current.partitions))

    def build(self) -> ClusterImage:
        """The new image; the old one itself if nothing changed."""
        if self._topics is not None:
            self.end_topics()
            if self._are_names_changed:
                self._changes["topic_names"] = MappingProxyType(self._named())
            self._changes["topics"] = MappingProxyType(self._topics)
        return replace(self._image, **self._changes) if self._changes else self._image  # type: ignore[arg-type]

    def _named(self) -> dict[UUID, str]:
        """Topics by id. A copy of a topic's node is not a topic: its id is the other topic's."""
        topics = self._writable_topics()
        names: dict[UUID, str] = {}
        for name in list(topics):
            other = names.setdefault(topics[name].topic_id, name)
            if other != name:
                first, copy = sorted((name, other), key=self._claim)
                names[topics[first].topic_id] = first
                self._put_fault(copy, f"its topic id is that of {first}")
                del topics[copy]
        return names

    def _claim(self, name: str) -> tuple[bool, int, str]:
        """Sort key for topics with the same id: the topic with a topic-id node, or the one that had the id before, is
        first.
        """
        assert self._topics is not None
        topic = self._topics[name]
        is_marked = any(
            id_node.topic_id == topic.topic_id
            for id_node in self._topic_id_nodes_of(name, topic.created_zxid)
        )
        return not is_marked, topic.created_zxid, name

    def _put_topic_id_node(self, topic: str, name: str, node: Node | None) -> None:
        id_node = layout.parse_topic_id_node(name)
        topic_id_nodes = self._writable("topic_id_nodes", self._image.topic_id_nodes)
        found = tuple(entry for entry in topic_id_nodes.pop(topic, ()) if entry[0] != id_node)
        if node is not None:
            found = (*found, (id_node, node.created_zxid))
        if found:
            topic_id_nodes[topic] = found

    def _put_deletion_record(self, name: str, node: Node | None) -> None:
        topic_id, broker_id = layout.parse_deletion_record(name)
        deleted = self._writable("deleted_topics", self._image.deleted_topics)
        brokers = {**deleted.pop(topic_id, {})}
        brokers.pop(broker_id, None)
        if node is not None:
            brokers[broker_id] = node.created_zxid
        if brokers:
            deleted[topic_id] = brokers

    def _topic_id_nodes_of(self, topic: str, created_zxid: int) -> list[TopicIdNode]:
        """Topic-id nodes of the topic created at this zxid, not of an earlier topic of its name."""
        topic_id_nodes = self._changes.get("topic_id_nodes", self._image.topic_id_nodes)
        assert isinstance(topic_id_nodes, Mapping)
        return [id_node for id_node, zxid in topic_id_nodes.get(topic, ()) if zxid >= created_zxid]

    def _put_topic(self, name: str, node: Node | None) -> None:
        if node is not None and self._is_known(name, node):
            return
        self._are_names_changed = True
        topics = self._writable_topics()
        for kind in ("pending_deletions", "topic_faults"):
            current = getattr(self._image, kind)
            if name in current or name in self._changes.get(kind, ()):  # type: ignore[operator]
                self._writable(kind, current).pop(name, None)
        partitions = self._open_partitions(name)
        self._partitions.pop(name, None)
        old = topics.pop(name, None) or self._known.get(name)
        if node is None:
            return
        if old is not None and old.created_zxid != node.created_zxid:
            old, partitions = None, []  # deleted and recreated between two reads
        topic_id_nodes = self._topic_id_nodes_of(name, node.created_zxid)
        if end := next((id_node for id_node in topic_id_nodes if id_node.is_pending_deletion), None):
            self._writable("pending_deletions", self._image.pending_deletions)[name] = end.topic_id
            return
        try:
            topics[name] = self._topic_of(name, node, topic_id_nodes, partitions, old)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._put_fault(name, str(error) if isinstance(error, _Meaningless) else repr(error))
            if old is not None:
                topics[name] = old
                self._partitions[name] = partitions or list(old.partitions)

    def _is_known(self, name: str, node: Node) -> bool:
        """Whether the node was only read again because of the nodes below it."""
        topic = (self._image.topics if self._topics is None else self._topics).get(name)
        topic_id_nodes = self._changes.get("topic_id_nodes", self._image.topic_id_nodes)
        assert isinstance(topic_id_nodes, Mapping)
        return (
            topic is not None
            and (topic.created_zxid, topic.version) == (node.created_zxid, node.version)
            and name not in self._image.topic_faults
            and topic_id_nodes.get(name) == self._image.topic_id_nodes.get(name)
        )

    def _topic_of(
        self,
        name: str,
        node: Node,
        topic_id_nodes: list[TopicIdNode],
        known: list[PartitionImage],
        old: TopicImage | None,
    ) -> TopicImage:
        value = layout.decode_topic(node.data)
        count = len(value.partitions)
        if not count:
            raise _Meaningless("it has no partitions")
        if sorted(value.partitions) != list(range(count)):
            raise _Meaningless(f"its {count} partitions are not those from 0 to {count - 1}")
        if old is not None and count < len(old.partitions):
            raise _Meaningless(f"it has {count} partitions, and had {len(old.partitions)}")
        marked = [id_node.topic_id for id_node in topic_id_nodes]
        topic_id = value.topic_id if not marked or value.topic_id in marked else marked[0]
        if topic_id is None:
            raise _Meaningless("it has no topic id")
        if topic_id != value.topic_id:
            self._put_fault(name, f"its topic id is {value.topic_id}, and was {topic_id}")
        partitions = [
            replace(
                known[partition] if partition < len(known) else PartitionImage(partition, ()),
                replicas=value.partitions[partition],
                adding=value.adding.get(partition, ()),
                removing=value.removing.get(partition, ()),
            )
            for partition in range(count)
        ]
        return TopicImage(name, topic_id, tuple(partitions), node.version, node.created_zxid)

    def _put_fault(self, topic: str, reason: str) -> None:
        self._writable("topic_faults", self._image.topic_faults)[topic] = reason

    def _put_state(self, name: str, partition: int, node: Node | None) -> None:
        partitions = self._open_partitions(name)
        if not 0 <= partition < len(partitions):
            return
        known = partitions[partition]
        if node is None or node.created_zxid < self._writable_topics()[name].created_zxid:
            # There is no state, or it belongs to an earlier topic of this name.
            partitions[partition] = PartitionImage(
                partition, known.replicas, adding=known.adding, removing=known.removing
            )
            return
        state = layout.decode_state(node.data)
        partitions[partition] = replace(
            known,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=node.version,
            state_created_zxid=node.created_zxid,
        )

    def _open_partitions(self, name: str) -> list[PartitionImage]:
        """The partitions of a topic so far, to be changed in place."""
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
        brokers[broker_id] = BrokerImage(
            broker_id, endpoints, value.rack, node.created_zxid, value.features, value.offline_replicas
        )

    def _put_config(self, kind: str, entity: str, node: Node | None) -> None:
        field_name = _CONFIG_FIELDS[kind]
        configs: dict[str, Mapping[str, str]] = self._writable(field_name, getattr(self._image, field_name))
        found = None if node is None else layout.decode_config(node.data)
        if found is None or (not found and kind in _KNOWN_BY_CONFIG):
            configs.pop(entity, None)
        else:
            configs[entity] = MappingProxyType(found)

    def _put_client_config(self, path: str, node: Node | None) -> None:
        entity = ClientEntity.of_path(path)
        if entity is None:
            return
        configs = self._writable("client_configs", self._image.client_configs)
        found = layout.decode_config(node.data) if node is not None else {}
        if found:
            configs[entity] = MappingProxyType(found)
        else:
            configs.pop(entity, None)

    def _put_acls(self, path: str, node: Node | None) -> None:
        resource = layout.resource_of_acls(path)
        assert resource is not None
        acls = self._writable("acls", self._image.acls)
        if node is None:
            acls.pop(resource, None)
            return
        # Without any ACL the resource is closed: `allow.everyone.if.no.acl.found` must not open it.
        acls[resource] = self._known_acls.get(resource, ())
        acls[resource] = layout.decode_acls(node.data)

    def _put_token(self, token_id: str, node: Node | None) -> None:
        tokens = self._writable("tokens", self._image.tokens)
        tokens.pop(token_id, None)
        if node is not None:
            token = decode_token(node.data)
            if token.token_id != token_id:
                raise _Meaningless(f"it has the id {token.token_id}")
            tokens[token_id] = token

    def _writable_topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
        return self._topics

    def _writable(self, name: str, current: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
        changed = self._changes.setdefault(name, dict(current))
        assert isinstance(changed, dict)
        return changed
