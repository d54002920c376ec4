"""CreatePartitions (key 37): adds partitions to topics."""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int16, int32, request, response, string, struct


@struct
class CreatePartitionsAssignment:
    """Replicas of one new partition."""

    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    """`count` is the new total. If `assignments` is None, the broker places the new partitions."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@request(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """With `validate_only` the broker checks the request and creates nothing."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@response(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
