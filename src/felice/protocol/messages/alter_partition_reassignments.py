"""AlterPartitionReassignments (key 45): begins or cancels moves of partitions to other brokers (KIP-455).

From version 1 a request can insist that the number of replicas stays (KIP-860).
"""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int16, int32, request, response, string, struct


@struct
class ReassignablePartition:
    """The new replicas of a partition; None cancels its reassignment."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@struct
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@request(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """The wanted replicas of partitions, by topic."""

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(versions="1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    """The result for one partition: whether its reassignment began or was cancelled."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReassignableTopicResponse:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@response(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """One entry for each topic."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(versions="1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
