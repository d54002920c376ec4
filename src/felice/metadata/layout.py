"""Paths and contents of the nodes: Kafka's znode paths and their JSON.

Kept byte-compatible with Kafka 3.x, so that operators and existing tools can read a store. Felice adds topic-id nodes
(`identity`), records of deleted topics (`deleted_topics`), client metrics and configurations of groups, which Kafka's
tools ignore.
Everything here is a pure translation between values and (path, data).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from urllib.parse import quote, unquote
from uuid import UUID

from felice.dataclass import dataclass
from felice.metadata.client_entity import ClientEntity
from felice.metadata.token_nodes import TOKENS
from felice.protocol.uuids import format_uuid, parse_uuid
from felice.security.acl import Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType

# Partition states that one store transaction changes. They fit well into 1 MB, ZooKeeper's limit of a request.
MAX_STATES_PER_TRANSACTION = 500

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CLIENT_CONFIGS = "/config/clients"
USER_CONFIGS = "/config/users"
IP_CONFIGS = "/config/ips"
# Kafka has client metrics and configurations of groups only with KRaft, where these are the names of the entity types.
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
GROUP_CONFIGS = "/config/groups"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
DELETED_TOPICS = "/admin/deleted_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURES = "/feature"
LITERAL_ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
LITERAL_ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACL_CHANGES = "/kafka-acl-extended-changes"

# The name of the configuration that applies to every broker.
DEFAULT_ENTITY = "<default>"

# Every broker creates these at its start if they are missing.
PERSISTENT_PATHS = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    CONFIG,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    DELETED_TOPICS,
    "/isr_change_notification",
    "/log_dir_event_notification",
)

# The nodes that an image is built from.
IMAGE_ROOTS = (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    BROKER_IDS,
    TOPICS,
    DELETED_TOPICS,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    LITERAL_ACLS,
    PREFIXED_ACLS,
    TOKENS,
)

NO_LEADER = -1
_FEATURES_ENABLED = 1
_PENDING_DELETION_SUFFIX = ".deleted"

_RESOURCE_TYPES = {kind.text: kind for kind in ResourceType if kind > ResourceType.ANY}
_OPERATIONS = {operation.text: operation for operation in Operation if operation > Operation.ANY}
_PERMISSIONS = {permission.text: permission for permission in (Permission.ALLOW, Permission.DENY)}


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic's assignment: each partition's replicas, and those that a reassignment adds and removes (KIP-455)."""

    topic_id: UUID | None
    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]]
    removing: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TopicIdNode:
    """A topic-id node: the topic that a topic's node stands for, and whether its deletion is pending."""

    topic_id: UUID
    is_pending_deletion: bool = False


@dataclass(frozen=True, slots=True)
class StateNode:
    """A partition's leadership. The node's version is the partition epoch."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener of a broker and the address that clients connect to."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker's registration. `security_protocols` has the protocol of each listener."""

    endpoints: tuple[Endpoint, ...]
    security_protocols: Mapping[str, str]
    rack: str | None
    timestamp_ms: int
    # The levels of each feature that the broker supports: (lowest, highest).
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Felice's own: partitions, by topic, whose replicas this broker cannot serve because of its disks.
    offline_replicas: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids from `start` to `end`, both inclusive as Kafka writes them."""

    broker_id: int
    start: int
    end: int


def topic_path(topic: str) -> str:
    """The topic's node; it holds a `TopicNode`."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The node below which a topic's partitions are."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The parent of a partition's state node; it holds nothing."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def identity_path(topic: str) -> str:
    """The node below which the topic-id nodes of a topic are."""
    return f"{TOPICS}/{topic}/topic_id"


def topic_id_path(topic: str, topic_id: UUID) -> str:
    """Felice's own: exists while the topic of this name has this id (`metadata/identity.py`)."""
    return f"{identity_path(topic)}/{format_uuid(topic_id)}"


def pending_deletion_path(topic: str, topic_id: UUID) -> str:
    """Felice's own: replaces the topic-id node while the deletion of the topic is pending."""
    return f"{topic_id_path(topic, topic_id)}{_PENDING_DELETION_SUFFIX}"


def parse_topic_id_node(name: str) -> TopicIdNode:
    """Parses the name of a node below `identity_path`. Raises ValueError."""
    return TopicIdNode(
        parse_uuid(name.removesuffix(_PENDING_DELETION_SUFFIX)), name.endswith(_PENDING_DELETION_SUFFIX)
    )


def topic_of_id_node(path: str) -> str | None:
    """The topic whose topic-id node has this path, or None."""
    parts = path.removeprefix(f"{TOPICS}/").split("/")
    return parts[0] if path.startswith(TOPICS) and len(parts) == 3 and parts[1] == "topic_id" else None


def deletion_record_path(topic_id: UUID, broker_id: int) -> str:
    """Felice's own: says that the deletion of a topic was requested, until this broker has deleted its logs."""
    return f"{DELETED_TOPICS}/{format_uuid(topic_id)}.{broker_id}"


def parse_deletion_record(name: str) -> tuple[UUID, int]:
    """The topic id and the broker in the name of a node below `DELETED_TOPICS`. Raises ValueError."""
    topic_id, _, broker_id = name.rpartition(".")
    return parse_uuid(topic_id), int(broker_id)


def state_path(topic: str, partition: int) -> str:
    """The partition's state node; it holds a `StateNode`."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def broker_path(broker_id: int) -> str:
    """The ephemeral node with which a broker registers; it holds a `BrokerNode`."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_config_path(topic: str) -> str:
    """The node of a topic's configuration overrides."""
    return f"{TOPIC_CONFIGS}/{_sanitize(topic)}"


def broker_config_path(entity: str) -> str:
    """The node of a broker's dynamic configuration. `entity` is a broker id, or `DEFAULT_ENTITY`."""
    return f"{BROKER_CONFIGS}/{_sanitize(entity)}"


def client_metrics_path(name: str) -> str:
    """The node of a client metrics resource (KIP-714)."""
    return f"{CLIENT_METRICS_CONFIGS}/{_sanitize(name)}"


def group_config_path(group_id: str) -> str:
    """The node of a group's configuration."""
    return f"{GROUP_CONFIGS}/{_sanitize(group_id)}"


def client_config_path(entity: ClientEntity) -> str:
    """The node of the configuration of users, clients or addresses: quotas, and the credentials of users."""
    return f"{CONFIG}/{entity.path}"


def entity_of(config_path: str) -> str:
    """The topic, broker, client metrics resource or group that a configuration node belongs to.

    The reverse of `topic_config_path`, `broker_config_path`, `client_metrics_path` and `group_config_path`.
    """
    return unquote(config_path.rpartition("/")[2])


def acls_path(resource: ResourcePattern) -> str:
    """The node with the ACLs of a resource. Its name is not encoded, as in Kafka: it cannot contain a slash."""
    root = PREFIXED_ACLS if resource.pattern is PatternType.PREFIXED else LITERAL_ACLS
    return f"{root}/{resource.kind.text}/{resource.name}"


def resource_of_acls(path: str) -> ResourcePattern | None:
    """The resource whose ACLs a node has, or None for a node above such nodes. Raises ValueError."""
    is_prefixed = path.startswith(f"{PREFIXED_ACLS}/")
    parts = path.removeprefix(PREFIXED_ACLS if is_prefixed else LITERAL_ACLS).split("/")
    if len(parts) != 3:
        return None
    pattern = PatternType.PREFIXED if is_prefixed else PatternType.LITERAL
    return ResourcePattern(_RESOURCE_TYPES[parts[1]], parts[2], pattern)


def acl_change_prefix(resource: ResourcePattern) -> str:
    """The path of change notifications about this kind of resource, without the number at its end."""
    is_prefixed = resource.pattern is PatternType.PREFIXED
    return f"{PREFIXED_ACL_CHANGES if is_prefixed else LITERAL_ACL_CHANGES}/acl_changes_"


def encode_acl_change(resource: ResourcePattern) -> bytes:
    """A notification that tells Kafka's tools which ACLs changed."""
    if resource.pattern is PatternType.LITERAL:
        return f"{resource.kind.name}:{resource.name}".encode()
    return _json(
        {
            "version": 1,
            "resourceType": resource.kind.name,
            "name": resource.name,
            "patternType": resource.pattern.name,
        }
    )


def encode_acls(acls: Sequence[Acl]) -> bytes:
    """Content of the node that holds the ACLs of one resource pattern."""
    rows = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission.text,
            "operation": acl.operation.text,
            "host": acl.host,
        }
        for acl in acls
    ]
    return _json({"version": 1, "acls": rows})


def decode_acls(data: bytes) -> tuple[Acl, ...]:
    """The ACLs of a resource. An operation of a newer Kafka becomes UNKNOWN, which matches no request."""
    return tuple(
        Acl(
            row["principal"],
            row["host"],
            _OPERATIONS.get(row["operation"], Operation.UNKNOWN),
            _PERMISSIONS[row["permissionType"]],
        )
        for row in (json.loads(data)["acls"] if data else ())
    )


def encode_cluster_id(cluster_id: str) -> bytes:
    """Content of the node `CLUSTER_ID`."""
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster id in the node `CLUSTER_ID`."""
    return str(json.loads(data)["id"])


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Content of the node `CONTROLLER`. The KRaft epoch -1 says that no migration to KRaft is under way (KIP-866)."""
    return _json(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode_controller(data: bytes) -> int:
    """The id of the broker that is the controller."""
    return int(json.loads(data)["brokerid"])


def encode_topic(node: TopicNode) -> bytes:
    """Content of a topic's node: version 3 with a topic id, version 1 without, as Kafka before 2.8 wrote it."""
    value: dict[str, object] = {"version": 3 if node.topic_id else 1}
    if node.topic_id:
        value["topic_id"] = format_uuid(node.topic_id)
    value["partitions"] = _replicas(node.partitions)
    if node.topic_id:
        value["adding_replicas"] = _replicas(node.adding)
        value["removing_replicas"] = _replicas(node.removing)
    return _json(value)


def decode_topic(data: bytes) -> TopicNode:
    """The assignment in a topic's node. A malformed id, for example with a typing error, counts as missing.

    Raises ValueError, KeyError, TypeError or AttributeError if it is not Kafka's JSON.
    """
    value = json.loads(data)
    return TopicNode(
        _topic_id(value.get("topic_id")),
        _replica_map(value["partitions"]),
        _replica_map(value.get("adding_replicas", {})),
        _replica_map(value.get("removing_replicas", {})),
    )


def encode_deletion_record(topic: str) -> bytes:
    """Content of a deletion record; it is for people."""
    return _json({"version": 1, "topic": topic})


def encode_state(node: StateNode) -> bytes:
    """Content of a partition's state node."""
    return _json(
        {
            "controller_epoch": node.controller_epoch,
            "leader": node.leader,
            "version": 1,
            "leader_epoch": node.leader_epoch,
            "isr": list(node.isr),
        }
    )


def decode_state(data: bytes) -> StateNode:
    """The leadership in a state node. Raises ValueError or KeyError if it is not Kafka's JSON."""
    value = json.loads(data)
    return StateNode(
        value["leader"], value["leader_epoch"], value.get("controller_epoch", 0), tuple(value["isr"])
    )


def encode_broker(node: BrokerNode) -> bytes:
    """Content of a broker's node, version 5. `host` and `port` repeat a plaintext listener, for old tools."""
    plaintext = next(
        (e for e in node.endpoints if node.security_protocols.get(e.listener) == "PLAINTEXT"), None
    )
    return _json(
        {
            "version": 5,
            "host": plaintext.host if plaintext else None,
            "port": plaintext.port if plaintext else -1,
            "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in node.endpoints],
            "listener_security_protocol_map": dict(node.security_protocols),
            "rack": node.rack,
            "jmx_port": -1,
            "timestamp": str(node.timestamp_ms),
            "features": {
                name: {"min_version": low, "max_version": high} for name, (low, high) in node.features.items()
            },
            **({"offline_replicas": dict(node.offline_replicas)} if node.offline_replicas else {}),
        }
    )


def decode_broker(data: bytes) -> BrokerNode:
    """The registration in a broker's node. Raises ValueError or KeyError if it is not Kafka's JSON."""
    value = json.loads(data)
    endpoints = tuple(_endpoint(text) for text in value["endpoints"])
    protocols = value.get("listener_security_protocol_map", {})
    features = {
        name: (int(levels["min_version"]), int(levels["max_version"]))
        for name, levels in value.get("features", {}).items()
    }
    offline = _replica_lists(value.get("offline_replicas", {}))
    return BrokerNode(
        endpoints, protocols, value.get("rack"), int(value.get("timestamp", 0)), features, offline
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    """Content of a configuration node."""
    return _json({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """The overrides in a configuration node; none in an empty one."""
    return dict(json.loads(data)["config"]) if data else {}


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Content of the node `PRODUCER_ID_BLOCK`. The numbers are texts, as in Kafka."""
    value = {
        "version": 1,
        "broker": block.broker_id,
        "block_start": str(block.start),
        "block_end": str(block.end),
    }
    return _json(value)


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """The block of producer ids that was allocated last."""
    value = json.loads(data)
    return ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Content of the node `FEATURES`: finalized levels by feature (KIP-584)."""
    return _json({"version": 2, "status": _FEATURES_ENABLED, "features": dict(sorted(levels.items()))})


def decode_features(data: bytes) -> dict[str, int]:
    """Finalized levels; empty if an older Kafka left the node disabled."""
    value = json.loads(data)
    if value["status"] != _FEATURES_ENABLED:
        return {}
    return {name: int(level) for name, level in value["features"].items()}


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sanitize(name: str) -> str:
    if name in (".", ".."):  # ZooKeeper refuses paths with these
        return name.replace(".", "%2E")
    return name if name == DEFAULT_ENTITY else quote(name, safe="")


def _topic_id(text: object) -> UUID | None:
    try:
        topic_id = parse_uuid(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return topic_id if topic_id != UUID(int=0) else None


def _replicas(partitions: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas) for partition, replicas in sorted(partitions.items())}


def _replica_map(value: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    return {int(partition): tuple(replicas) for partition, replicas in value.items()}


def _replica_lists(value: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {topic: tuple(partitions) for topic, partitions in value.items()}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(text: str) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(listener, host.strip("[]"), int(port))
