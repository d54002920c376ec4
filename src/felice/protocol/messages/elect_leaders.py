"""ElectLeaders (key 43): elects the preferred leaders, or any live replica where none is in sync (KIP-183).

The kind of election and a top-level error from version 1 (KIP-460).
"""

from __future__ import annotations

from enum import IntEnum

from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct


class ElectionType(IntEnum):
    """The replicas that may become leader."""

    PREFERRED = 0
    """The first replica of the assignment, if it is in sync."""
    UNCLEAN = 1
    """The first live replica, if no in-sync replica is alive. Records may be lost."""


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@request(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """The partitions; None requests an election in every partition."""

    election_type: int = int8(versions="1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60_000)


@struct
class PartitionResult:
    """The result of one election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReplicaElectionResult:
    """Elections in one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@response(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """One entry for each topic."""

    throttle_time_ms: int = int32()
    error_code: int = int16(versions="1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
