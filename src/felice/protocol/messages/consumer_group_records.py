"""The records of `__consumer_offsets` about groups of KIP-848: types 3 to 8, and 16.

A key begins with the type of the record, a value with its version. A null value deletes what the key names. Kafka no
longer writes type 4, only null values of it.
"""

from __future__ import annotations

import uuid

from felice.protocol.messages.consumer_group_heartbeat import TopicPartitions
from felice.protocol.schema import (
    EMPTY,
    array,
    binary,
    int8,
    int32,
    int64,
    nested,
    record_key,
    record_value,
    string,
    struct,
    uid,
)


@record_key(record_type=3)
class ConsumerGroupMetadataKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The group epoch, and the metadata hash of the subscribed topics; 0 without topics."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@record_key(record_type=4)
class ConsumerGroupPartitionMetadataKey:
    """The id of a group."""

    group_id: str = string()


@struct
class PartitionMetadata:
    """The racks of the replicas of one partition."""

    partition: int = int32()
    racks: list[str] = array(string)


@struct
class TopicMetadata:
    """A topic that the group subscribes to."""

    topic_id: uuid.UUID = uid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


@record_value(record_type=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The topics of a group, as Kafka wrote them before it had the hash."""

    topics: list[TopicMetadata] = array(TopicMetadata)


@record_key(record_type=5)
class ConsumerGroupMemberMetadataKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@struct
class ClassicProtocol:
    """A protocol that a member of the classic protocol supports."""

    name: str = string()
    metadata: bytes = binary()


@struct
class ClassicMemberMetadata:
    """The further values of a member that uses the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@record_value(record_type=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member.

    `classic_member_metadata` must be None for a member of the new protocol. Its default, which a record without the
    field has, is a classic member that supports no protocol.
    """

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata, nullable="0+", tag=0, default=EMPTY
    )


@record_key(record_type=6)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch for which the assignor ran last, and the time when it ended."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


@record_key(record_type=7)
class ConsumerGroupTargetAssignmentMemberKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@record_value(record_type=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The member's target assignment."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@record_key(record_type=8)
class ConsumerGroupCurrentMemberAssignmentKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@struct
class CurrentTopicPartitions:
    """Partitions of one topic, each with the epoch in which the member got it. Old records have no epochs."""

    topic_id: uuid.UUID = uid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)


@record_value(record_type=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The member's current assignment. State 0 is stable, 1 waits for its revocations, 2 for those of other members."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


@record_key(record_type=16)
class ConsumerGroupRegularExpressionKey:
    """A group and a regular expression of a member."""

    group_id: str = string()
    regular_expression: str = string()


@record_value(record_type=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that match in this version of the cluster's metadata."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
