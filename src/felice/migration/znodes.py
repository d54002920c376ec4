"""A cluster of ZooKeeper mode: its nodes, as `felice zookeeper export` prints them, as a `ClusterState`. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from uuid import UUID

from felice.metadata import ClusterImage, layout
from felice.metadata.image import ImageBuilder
from felice.metadata.store import Node
from felice.migration.cluster_state import (
    BROKER,
    CLIENT_METRICS,
    SCRAM_MECHANISMS,
    TOPIC,
    ClusterState,
    Partition,
    Topic,
)
from felice.migration.errors import MigrationError, explained
from felice.migration.plan import FoundPartition
from felice.protocol.uuids import format_uuid
from felice.security.acl import AclBinding
from felice.security.sasl.scram import ScramCredential

# Nothing says which producer ids were given out. Kafka gives them out in order, and no cluster has reached this one.
_ABOVE_ALL_PRODUCER_IDS = 10**12
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError)


def read_nodes(text: str) -> dict[str, bytes]:
    """The nodes in the output of `felice zookeeper export` or `felice metadata journal export`."""
    with explained("this is not the output of `felice zookeeper export`", *_MALFORMED):
        return {row["path"]: _bytes(row["data"]) for row in json.loads(text)["nodes"]}


def _bytes(data: str | Mapping[str, str]) -> bytes:
    return data.encode() if isinstance(data, str) else base64.b64decode(data["base64"])


def image_of(nodes: Mapping[str, bytes]) -> ClusterImage:
    """The cluster that the nodes describe. Raises `MigrationError` for a node that cannot be read."""
    builder = ImageBuilder(ClusterImage(), is_complete=True)
    for path in sorted(nodes, key=_rank):
        with explained(f"the node {path} cannot be read", *_MALFORMED):
            builder.put(path, Node(nodes[path], 0, 0, 0))
    image = builder.build()
    for topic, fault in image.topic_faults.items():
        raise MigrationError(f"the node of topic {topic} cannot be read: {fault}")
    return image


def _rank(path: str) -> tuple[int, str]:
    """The order that `ImageBuilder` needs."""
    if layout.topic_of_id_node(path) is not None:
        return 0, path
    return (2 if path.endswith("/state") else 1), path


def state_of(nodes: Mapping[str, bytes]) -> ClusterState:
    """The state of the cluster in these nodes. Raises `MigrationError`."""
    image = image_of(nodes)
    state = ClusterState()
    for topic in image.topics.values():
        if f"{layout.DELETE_TOPICS}/{topic.name}" in nodes:
            continue  # its deletion was requested, and Kafka had not carried it out yet
        state.topics[topic.topic_id] = Topic(
            topic.name,
            topic.topic_id,
            {one.partition: Partition(one.replicas, one.isr, one.leader_epoch) for one in topic.partitions},
        )
    for kind, configs in (
        (TOPIC, image.topic_configs),
        (BROKER, image.broker_configs),
        (CLIENT_METRICS, image.client_metrics),
    ):
        for name, config in configs.items():
            if config:
                state.configs[kind, "" if name == layout.DEFAULT_ENTITY else name] = dict(config)
    mechanisms = set(SCRAM_MECHANISMS.values())
    for entity, config in image.client_configs.items():
        with explained(f"the node /config/{entity.path} cannot be read", ValueError):
            quotas = {key: float(text) for key, text in config.items() if key not in mechanisms}
            scram = {key: ScramCredential.parse(text) for key, text in config.items() if key in mechanisms}
        if quotas:
            state.quotas[entity] = quotas
        if scram and entity.user is not None:
            state.scram[entity.user] = scram
    rules = (AclBinding(resource, acl) for resource, acls in image.acls.items() for acl in acls)
    state.acls = {UUID(int=number): rule for number, rule in enumerate(rules, 1)}
    state.features = dict(image.features)
    state.tokens = set(image.tokens)
    if block := nodes.get(layout.PRODUCER_ID_BLOCK):
        with explained(f"the node {layout.PRODUCER_ID_BLOCK} cannot be read", *_MALFORMED):
            state.next_producer_id = layout.decode_producer_id_block(block).end + 1
    return state


def cluster_id_of(nodes: Mapping[str, bytes]) -> str:
    """The id of the cluster. Raises `MigrationError`."""
    with explained(f"the node {layout.CLUSTER_ID} cannot be read", *_MALFORMED):
        return layout.decode_cluster_id(nodes[layout.CLUSTER_ID])


def state_of_logs(found: Iterable[FoundPartition], node_id: int) -> ClusterState:
    """What is known from the directories alone: topics with their ids, and the partitions that have a log here.

    Raises `MigrationError` if topics of one name have different ids, because nothing says which of them exists.
    """
    state = ClusterState()
    ids: dict[str, UUID] = {}
    for log in sorted(found, key=lambda log: log.key):
        name, number = log.key
        if log.topic_id is None:
            raise MigrationError(f"{log.path} has no topic id, and there is no metadata that has it")
        if ids.setdefault(name, log.topic_id) != log.topic_id:
            both = f"{format_uuid(ids[name])} and {format_uuid(log.topic_id)}"
            raise MigrationError(
                f"the logs of topic {name} have different ids, {both}; move the older ones away"
            )
        topic = state.topics.setdefault(log.topic_id, Topic(name, log.topic_id))
        topic.partitions[number] = Partition((node_id,), (node_id,), log.last_epoch)
    for topic in state.topics.values():
        for number in range(max(topic.partitions)):
            topic.partitions.setdefault(number, Partition((node_id,), (node_id,), -1))
    state.next_producer_id = _ABOVE_ALL_PRODUCER_IDS
    return state
