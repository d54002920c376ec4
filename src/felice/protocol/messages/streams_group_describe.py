"""StreamsGroupDescribe (key 89): topology, epochs and members of groups of Kafka Streams (KIP-1071)."""

from __future__ import annotations

from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from felice.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from felice.protocol.schema import array, boolean, int16, int32, nested, request, response, string, struct


@request(api_key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    """Groups by id."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@struct
class Subtopology:
    """One subtopology, with the numbers of partitions that the broker chose."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


@struct
class Topology:
    """All subtopologies of an application; none if the broker has not validated the topology."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)


@struct
class Assignment:
    """The current or the target assignment of a member."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@struct
class Member:
    """A member: one thread of an instance of the application."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    is_classic: bool = boolean()


@struct
class DescribedGroup:
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = nested(Topology, nullable="0+")
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=OPERATIONS_NOT_REQUESTED)


@response(api_key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    """Groups, in the order of the request."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
