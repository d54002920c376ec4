"""The records of `__consumer_offsets` about share groups (KIP-932): types 10 to 15.

A key begins with the type of the record, a value with its version. A null value deletes what the key names.
"""

from __future__ import annotations

import uuid

from felice.protocol.messages.consumer_group_heartbeat import TopicPartitions
from felice.protocol.schema import (
    array,
    int8,
    int32,
    int64,
    record_key,
    record_value,
    string,
    struct,
    uid,
)


@record_key(record_type=10)
class ShareGroupMemberMetadataKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@record_value(record_type=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@record_key(record_type=11)
class ShareGroupMetadataKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The group epoch, and the metadata hash of the subscribed topics; 0 without topics."""

    epoch: int = int32()
    metadata_hash: int = int64()


@record_key(record_type=12)
class ShareGroupTargetAssignmentMetadataKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The group epoch for which the assignor ran last, and the time when it ended."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


@record_key(record_type=13)
class ShareGroupTargetAssignmentMemberKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@record_value(record_type=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The member's target assignment."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@record_key(record_type=14)
class ShareGroupCurrentMemberAssignmentKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@record_value(record_type=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The member's current assignment."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


@record_key(record_type=15)
class ShareGroupStatePartitionMetadataKey:
    """The id of a group."""

    group_id: str = string()


@struct
class TopicPartitionsInfo:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class TopicInfo:
    """One topic."""

    topic_id: uuid.UUID = uid()
    topic_name: str = string()


@record_value(record_type=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions whose share state is initializing or initialized, and the topics whose share state is deleting."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
