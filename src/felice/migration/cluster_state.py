"""The state that the records of Kafka's metadata log describe: topics, configurations, quotas, access, ids. Pure.

`replay` applies records in the order of the log. A record about something that does not exist is damage: raises
`MigrationError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TypeVar
from uuid import UUID

from felice.dataclass import dataclass
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.migration.errors import MigrationError
from felice.migration.metadata_records import MetadataRecord
from felice.protocol.messages import cluster_metadata as records
from felice.security.acl import (
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from felice.security.sasl.scram import ScramCredential

T = TypeVar("T")

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""The types of resources that have a configuration."""
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

_UNCHANGED_LEADER = -2
# Ids that name no directory: Kafka reserves the first hundred (0 migrating, 1 unassigned, 2 lost).
_MAX_RESERVED_DIRECTORY_ID = 99
_ENTITY_FIELDS = {"user": "user", "client-id": "client_id", "ip": "ip"}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `directories` has the directory ids of the replicas, if the records name them."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    # After a clean stop of all replicas the ISR is empty, and these have all committed records (KIP-966).
    eligible: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()

    def is_complete_on(self, node_id: int) -> bool:
        """Whether the log on this node has all committed records."""
        return node_id in self.isr or node_id in self.eligible

    def directory_on(self, node_id: int) -> UUID | None:
        """The id of the log directory in which this node has the replica; None if it is not known."""
        if len(self.directories) != len(self.replicas) or node_id not in self.replicas:
            return None
        found = self.directories[self.replicas.index(node_id)]
        return found if found.int > _MAX_RESERVED_DIRECTORY_ID else None


@dataclass(slots=True)
class Topic:
    """A topic, and its partitions by number."""

    name: str
    topic_id: UUID
    partitions: dict[int, Partition] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterState:
    """The metadata of a cluster. Topics are by id; names are unique among them."""

    topics: dict[UUID, Topic] = field(default_factory=dict)
    # By the type and the name of the resource.
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[ClientEntity, dict[str, float]] = field(default_factory=dict)
    scram: dict[str, dict[str, ScramCredential]] = field(default_factory=dict)
    acls: dict[UUID, AclBinding] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    # Ids of delegation tokens.
    tokens: set[str] = field(default_factory=set)
    # The registered brokers, with the ids of their log directories.
    brokers: dict[int, tuple[UUID, ...]] = field(default_factory=dict)


def replay(found: Iterable[MetadataRecord]) -> ClusterState:
    """The state after these records. Raises `MigrationError`."""
    state = ClusterState()
    for offset, record in found:
        try:
            _APPLIED_BY[type(record)](state, record)
        except (KeyError, ValueError) as error:
            raise MigrationError(
                f"the metadata record at offset {offset}, {type(record).__name__}, contradicts the records before it: "
                f"{error}"
            ) from error
    return state


def _on_topic(state: ClusterState, record: records.TopicRecord) -> None:
    state.topics[record.topic_id] = Topic(record.name, record.topic_id)


def _on_topic_removed(state: ClusterState, record: records.RemoveTopicRecord) -> None:
    removed = state.topics.pop(record.topic_id)
    state.configs.pop((TOPIC, removed.name), None)


def _on_partition(state: ClusterState, record: records.PartitionRecord) -> None:
    state.topics[record.topic_id].partitions[record.partition_id] = Partition(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader_epoch,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.directories),
    )


def _on_partition_changed(state: ClusterState, record: records.PartitionChangeRecord) -> None:
    partitions = state.topics[record.topic_id].partitions
    old = partitions[record.partition_id]

    def changed(new: list[T] | None, before: tuple[T, ...]) -> tuple[T, ...]:
        return before if new is None else tuple(new)

    partitions[record.partition_id] = Partition(
        changed(record.replicas, old.replicas),
        changed(record.isr, old.isr),
        old.leader_epoch + (record.leader != _UNCHANGED_LEADER),
        changed(record.eligible_leader_replicas, old.eligible),
        changed(record.directories, old.directories),
    )


def _on_config(state: ClusterState, record: records.ConfigRecord) -> None:
    key = record.resource_type, record.resource_name
    config = state.configs.setdefault(key, {})
    if record.value is None:
        config.pop(record.name, None)
    else:
        config[record.name] = record.value
    if not config:
        del state.configs[key]


def _on_quota(state: ClusterState, record: records.ClientQuotaRecord) -> None:
    names = {_ENTITY_FIELDS[one.entity_type]: one.entity_name or DEFAULT for one in record.entity}
    entity = ClientEntity(**names)
    quotas = state.quotas.setdefault(entity, {})
    if record.remove:
        quotas.pop(record.key, None)
    else:
        quotas[record.key] = record.value
    if not quotas:
        del state.quotas[entity]


def _on_credential(state: ClusterState, record: records.UserScramCredentialRecord) -> None:
    credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
    state.scram.setdefault(record.name, {})[SCRAM_MECHANISMS[record.mechanism]] = credential


def _on_credential_removed(state: ClusterState, record: records.RemoveUserScramCredentialRecord) -> None:
    del state.scram[record.name][SCRAM_MECHANISMS[record.mechanism]]
    if not state.scram[record.name]:
        del state.scram[record.name]


def _on_acl(state: ClusterState, record: records.AccessControlEntryRecord) -> None:
    resource = ResourcePattern(
        ResourceType(record.resource_type), record.resource_name, PatternType(record.pattern_type)
    )
    acl = Acl(record.principal, record.host, Operation(record.operation), Permission(record.permission_type))
    state.acls[record.id] = AclBinding(resource, acl)


def _on_acl_removed(state: ClusterState, record: records.RemoveAccessControlEntryRecord) -> None:
    del state.acls[record.id]


def _on_feature(state: ClusterState, record: records.FeatureLevelRecord) -> None:
    state.features[record.name] = record.feature_level


def _on_producer_ids(state: ClusterState, record: records.ProducerIdsRecord) -> None:
    state.next_producer_id = max(state.next_producer_id, record.next_producer_id)


def _on_token(state: ClusterState, record: records.DelegationTokenRecord) -> None:
    state.tokens.add(record.token_id)


def _on_token_removed(state: ClusterState, record: records.RemoveDelegationTokenRecord) -> None:
    state.tokens.discard(record.token_id)


def _on_broker(state: ClusterState, record: records.RegisterBrokerRecord) -> None:
    state.brokers[record.broker_id] = tuple(record.log_dirs)


def _on_broker_removed(state: ClusterState, record: records.UnregisterBrokerRecord) -> None:
    state.brokers.pop(record.broker_id, None)


_APPLIED_BY: dict[type[object], Callable[..., None]] = {
    records.TopicRecord: _on_topic,
    records.RemoveTopicRecord: _on_topic_removed,
    records.PartitionRecord: _on_partition,
    records.PartitionChangeRecord: _on_partition_changed,
    records.ConfigRecord: _on_config,
    records.ClientQuotaRecord: _on_quota,
    records.UserScramCredentialRecord: _on_credential,
    records.RemoveUserScramCredentialRecord: _on_credential_removed,
    records.AccessControlEntryRecord: _on_acl,
    records.RemoveAccessControlEntryRecord: _on_acl_removed,
    records.FeatureLevelRecord: _on_feature,
    records.ProducerIdsRecord: _on_producer_ids,
    records.DelegationTokenRecord: _on_token,
    records.RemoveDelegationTokenRecord: _on_token_removed,
    records.RegisterBrokerRecord: _on_broker,
    records.UnregisterBrokerRecord: _on_broker_removed,
}
