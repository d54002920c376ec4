"""CreatePartitions (key 37): give topics more partitions."""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int16, int32, request, response, string, struct


@struct
class CreatePartitionsAssignment:
    """Replicas of one new partition."""

    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    """`count` is the new total; `assignments` None leaves the placing to the broker."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@request(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """With `validate_only` nothing is made."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
