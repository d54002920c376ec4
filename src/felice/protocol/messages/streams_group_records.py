"""The records of `__consumer_offsets` about groups of Kafka Streams (KIP-1071): types 17 and 19 to 23.

A key begins with the type of the record, a value with its version. A null value deletes what the key names.
"""

from __future__ import annotations

from felice.protocol.messages.streams_group_heartbeat import Endpoint, KeyValue, Subtopology, TaskIds
from felice.protocol.schema import (
    array,
    int8,
    int32,
    int64,
    nested,
    record_key,
    record_value,
    string,
    struct,
)


@record_key(record_type=17)
class StreamsGroupMetadataKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """A group in one epoch. `validated_topology_epoch` is -1 until all topics of the topology exist."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = array(KeyValue, nullable="0+", tag=1)


@record_key(record_type=19)
class StreamsGroupMemberMetadataKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@record_value(record_type=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member: one thread of an instance of the application."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)


@record_key(record_type=20)
class StreamsGroupTargetAssignmentMetadataKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch for which the assignor ran last, and the time when it ended."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


@record_key(record_type=21)
class StreamsGroupTargetAssignmentMemberKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@record_value(record_type=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The member's target assignment."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@record_key(record_type=22)
class StreamsGroupCurrentMemberAssignmentKey:
    """A group and a member of it."""

    group_id: str = string()
    member_id: str = string()


@struct
class CurrentTaskIds:
    """Tasks of one subtopology; active tasks each with the epoch in which the member got them."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)


@record_value(record_type=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The member's current assignment. State 1 is stable, 2 waits for its revocations, 3 for those of other members."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)


@record_key(record_type=23)
class StreamsGroupTopologyKey:
    """The id of a group."""

    group_id: str = string()


@record_value(record_type=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology, as the first member sent it."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
