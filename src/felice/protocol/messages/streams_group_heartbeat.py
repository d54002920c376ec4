"""StreamsGroupHeartbeat (key 88): a member of a group of Kafka Streams, whose tasks the broker assigns (KIP-1071).

The epoch of a request is 0 to join, -1 to leave, and otherwise that of the member. A field that is None (the timeout:
-1) has not changed since the last heartbeat. Only a member that joins sends the topology of its application.
"""

from __future__ import annotations

from felice.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    request,
    response,
    string,
    struct,
    uint16,
)


@struct
class KeyValue:
    """A configuration, or a tag of a client."""

    key: str = string()
    value: str = string()


@struct
class TopicInfo:
    """An internal topic. With 0 partitions or replicas the broker chooses their number."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


@struct
class CopartitionGroup:
    """Topics that must have equally many partitions, as indexes into the lists of their subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@struct
class Subtopology:
    """One subtopology. Each task processes one partition of it."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@struct
class Topology:
    """All subtopologies of an application."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


@struct
class TaskIds:
    """Tasks of one subtopology."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@struct
class Endpoint:
    """The endpoint at which an instance answers interactive queries."""

    host: str = string()
    port: int = uint16()


@struct
class TaskOffset:
    """The offset up to which one task has read its changelog topics, or their end offset."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@request(api_key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """The lists of tasks have the tasks that the member owns."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = nested(Topology, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: Endpoint | None = nested(Endpoint, nullable="0+")
    client_tags: list[KeyValue] | None = array(KeyValue, nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean()


@struct
class Status:
    """The reason why the group cannot work, or a request to stop."""

    status_code: int = int8()
    status_detail: str = string()


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@struct
class EndpointToPartitions:
    """The partitions whose state one instance of the application has."""

    user_endpoint: Endpoint = nested(Endpoint)
    active_partitions: list[TopicPartitions] = array(TopicPartitions)
    standby_partitions: list[TopicPartitions] = array(TopicPartitions)


@response(api_key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """Without lists of tasks, the member keeps the tasks that it has."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="0+", default=None
    )
