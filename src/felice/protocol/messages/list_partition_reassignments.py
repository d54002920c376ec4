"""ListPartitionReassignments (key 46): the reassignments in progress (KIP-455)."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, request, response, string, struct


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@request(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """The requested partitions; None means all."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@struct
class OngoingPartitionReassignment:
    """One reassignment: all replicas, and those that it adds and removes."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@struct
class OngoingTopicReassignment:
    """Reassignments of one topic's partitions."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@response(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The reassignments in progress. Other partitions are left out."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
