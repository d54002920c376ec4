"""The records of `__cluster_metadata`, the log in which the controllers of Apache Kafka (KRaft) keep its metadata.

The records about topics, configurations, quotas, access and ids are declared. `SKIPPED` has the others. A value begins
with a frame (`migration/metadata_records`).
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import (
    array,
    binary,
    boolean,
    data,
    float64,
    int8,
    int16,
    int32,
    int64,
    metadata_record,
    nested,
    schema_of,
    string,
    struct,
    uid,
    uint16,
)


@struct
class BrokerEndpoint:
    """An address of a broker."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class BrokerFeature:
    """The levels of a feature that a broker supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@metadata_record(api_key=0, versions="0-4")
class RegisterBrokerRecord:
    """A broker has registered."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(versions="2+")
    incarnation_id: uuid.UUID = uid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(versions="1+")
    log_dirs: list[uuid.UUID] = array(uid, versions="3+", tag=0)
    cordoned_log_dirs: list[uuid.UUID] | None = array(uid, versions="4+", nullable="4+", tag=1, default=None)


@metadata_record(api_key=1)
class UnregisterBrokerRecord:
    """A broker was removed from the cluster."""

    broker_id: int = int32()
    broker_epoch: int = int64()


@metadata_record(api_key=2)
class TopicRecord:
    """A topic was created."""

    name: str = string()
    topic_id: uuid.UUID = uid()


@metadata_record(api_key=3, versions="0-2")
class PartitionRecord:
    """A partition, as it was created or as it was when the snapshot was written. Leader -1: it has none."""

    partition_id: int = int32(default=-1)
    topic_id: uuid.UUID = uid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[uuid.UUID] = array(uid, versions="1+")
    eligible_leader_replicas: list[int] | None = array(
        int32, versions="2+", nullable="2+", tag=1, default=None
    )
    last_known_elr: list[int] | None = array(int32, versions="2+", nullable="2+", tag=2, default=None)


@metadata_record(api_key=4)
class ConfigRecord:
    """A configuration has changed. A null value removes it."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@metadata_record(api_key=5, versions="0-2")
class PartitionChangeRecord:
    """The fields of a partition that have changed. Null means unchanged, and for the leader -2 does."""

    partition_id: int = int32(default=-1)
    topic_id: uuid.UUID = uid()
    isr: list[int] | None = array(int32, nullable="0+", tag=0, default=None)
    leader: int = int32(tag=1, default=-2)
    replicas: list[int] | None = array(int32, nullable="0+", tag=2, default=None)
    removing_replicas: list[int] | None = array(int32, nullable="0+", tag=3, default=None)
    adding_replicas: list[int] | None = array(int32, nullable="0+", tag=4, default=None)
    leader_recovery_state: int = int8(tag=5, default=-1)
    directories: list[uuid.UUID] | None = array(uid, versions="1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[int] | None = array(
        int32, versions="2+", nullable="2+", tag=6, default=None
    )
    last_known_elr: list[int] | None = array(int32, versions="2+", nullable="2+", tag=7, default=None)


@metadata_record(api_key=9)
class RemoveTopicRecord:
    """A topic was deleted, with its partitions."""

    topic_id: uuid.UUID = uid()


@metadata_record(api_key=10)
class DelegationTokenRecord:
    """A delegation token was created or renewed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@metadata_record(api_key=11)
class UserScramCredentialRecord:
    """The credential of a user for one mechanism of SCRAM."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


@metadata_record(api_key=12)
class FeatureLevelRecord:
    """The finalized level of a feature; 0 means that it is off."""

    name: str = string()
    feature_level: int = int16()


@struct
class EntityData:
    """The entity of a quota: a user, client id or IP. The default entity has no name."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@metadata_record(api_key=14)
class ClientQuotaRecord:
    """A quota was set or removed."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@metadata_record(api_key=15)
class ProducerIdsRecord:
    """The first producer id that was not given out yet."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


@metadata_record(api_key=18)
class AccessControlEntryRecord:
    """An access rule (ACL)."""

    id: uuid.UUID = uid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@metadata_record(api_key=19)
class RemoveAccessControlEntryRecord:
    """An access rule was removed."""

    id: uuid.UUID = uid()


@metadata_record(api_key=22)
class RemoveUserScramCredentialRecord:
    """The credential of a user was removed."""

    name: str = string()
    mechanism: int = int8()


@metadata_record(api_key=23)
class BeginTransactionRecord:
    """The records up to the end of this transaction count together, or not at all."""

    name: str | None = string(nullable="0+", tag=0, default=None)


@metadata_record(api_key=24)
class EndTransactionRecord:
    """The records of the transaction count."""


@metadata_record(api_key=25)
class AbortTransactionRecord:
    """The records of the transaction do not count."""

    reason: str | None = string(nullable="0+", tag=0, default=None)


@metadata_record(api_key=26)
class RemoveDelegationTokenRecord:
    """A delegation token was removed."""

    token_id: str = string()


@struct
class Endpoint:
    """An address of a controller."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class KRaftVersionFeature:
    """The versions of the quorum's protocol that a controller supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@struct
class Voter:
    """A controller that votes."""

    voter_id: int = int32()
    voter_directory_id: uuid.UUID = uid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


@data(versions="0", flexible="0+")
class VotersRecord:
    """The value of a control record: the voters from its offset on, in a quorum that can change (KIP-853)."""

    version: int = int16()
    voters: list[Voter] = array(Voter)


RECORDS: dict[int, type[object]] = {
    schema_of(cls).api_key: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
    )
}
"""The declared records by their key."""

SKIPPED: dict[int, int] = {7: 0, 8: 0, 17: 3, 20: 0, 21: 0, 27: 0, 28: 0}
"""Keys of records that an import does not need, with their highest versions: brokers fenced and unfenced, changes of
registrations, no operation, the state of a migration from ZooKeeper, registrations of controllers, and eligible leader
replicas cleared."""
