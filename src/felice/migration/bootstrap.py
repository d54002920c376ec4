"""The records from which Kafka makes its metadata log for a cluster of Felice. Pure.

Kafka reads them from `bootstrap.checkpoint` at the first start of a node without a metadata log, and begins the log
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from felice.dataclass import dataclass
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.metadata.layout import NO_LEADER
from felice.migration.cluster_state import BROKER, CLIENT_METRICS, SCRAM_MECHANISMS, TOPIC, ClusterState
from felice.migration.plan import Left
from felice.protocol.messages.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from felice.protocol.topic_partition import PartitionKey

METADATA_VERSION = 30
"""The level of `metadata.version` of Kafka 4.3 (4.3-IV0)."""
_FEATURES = {
    "metadata.version": METADATA_VERSION,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
_PARTITION_VERSION = 2
_OWN_OPTION_PREFIX = "felice."
UNASSIGNED = UUID(int=1)
"""The directory id of a replica whose directory is not known yet, as in Kafka."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The records for Kafka, each with the version to write it in."""

    records: Sequence[tuple[object, int]]
    left: Sequence[Left]
    counts: Mapping[str, int]


def plan_export(
    state: ClusterState,
    node_id: int,
    directory_ids: Mapping[PartitionKey, UUID],
    new_uuid: Callable[[], UUID],
) -> ExportPlan:
    """`directory_ids` has the new directory of each partition's log."""
    left: list[Left] = []
    levels = {**_FEATURES, **state.features}
    records: list[object] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    ]
    topics = sorted(state.topics.values(), key=lambda topic: topic.name)
    for topic in topics:
        records.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        for number, partition in sorted(topic.partitions.items()):
            # An import may have left partitions without a replica here: they stay offline.
            is_here = node_id in partition.replicas
            replicas = [node_id] if is_here else list(partition.replicas)
            directory_id = directory_ids.get((topic.name, number), UNASSIGNED)
            records.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic.topic_id,
                    replicas=replicas,
                    isr=[node_id] if is_here else list(partition.isr),
                    leader=node_id if is_here else NO_LEADER,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=0,
                    directories=[directory_id] * len(replicas),
                )
            )
    configs = list(_configs(state, left))
    quotas = [
        ClientQuotaRecord(entity=_entity(entity), key=key, value=value)
        for entity, found in state.quotas.items()
        for key, value in found.items()
    ]
    credentials = list(_credentials(state))
    rules = [
        AccessControlEntryRecord(
            id=new_uuid(),
            resource_type=rule.resource.kind,
            resource_name=rule.resource.name,
            pattern_type=rule.resource.pattern,
            principal=rule.acl.principal,
            host=rule.acl.host,
            operation=rule.acl.operation,
            permission_type=rule.acl.permission,
        )
        for rule in state.acls.values()
    ]
    records += [*configs, *quotas, *credentials, *rules]
    if state.next_producer_id:
        records.append(ProducerIdsRecord(broker_id=node_id, next_producer_id=state.next_producer_id))
    left += [
        Left("delegation token", token, "delegation tokens are not exported; create them again")
        for token in sorted(state.tokens)
    ]
    counts = {
        "topics": len(topics),
        "partitions": len(directory_ids),
        "configurations": len(configs),
        "quotas": len(quotas),
        "SCRAM credentials": len(credentials),
        "access rules": len(rules),
    }
    versioned = [(one, _PARTITION_VERSION if isinstance(one, PartitionRecord) else 0) for one in records]
    return ExportPlan(versioned, left, counts)


def _configs(state: ClusterState, left: list[Left]) -> Iterable[ConfigRecord]:
    for (kind, resource), config in sorted(state.configs.items()):
        if kind not in (TOPIC, BROKER, CLIENT_METRICS):
            continue
        for name, value in sorted(config.items()):
            if name.startswith(_OWN_OPTION_PREFIX):
                left.append(Left("configuration", f"{resource}: {name}", "Kafka has no such option"))
            else:
                yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def _credentials(state: ClusterState) -> Iterable[UserScramCredentialRecord]:
    numbers = {name: number for number, name in SCRAM_MECHANISMS.items()}
    for user, credentials in state.scram.items():
        for mechanism, credential in credentials.items():
            yield UserScramCredentialRecord(
                name=user,
                mechanism=numbers[mechanism],
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )


def _entity(entity: ClientEntity) -> list[EntityData]:
    names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return [
        EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
        for kind, name in names.items()
        if name is not None
    ]
