"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, for consumers and followers to find truncation."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct

DEBUGGING_REPLICA_ID = -2


@struct
class OffsetForLeaderPartition:
    """A partition. `leader_epoch` is the requested epoch."""

    partition: int = int32()
    current_leader_epoch: int = int32(versions="2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@request(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """`replica_id` is -1 from a consumer."""

    replica_id: int = int32(versions="3+", default=DEBUGGING_REPLICA_ID, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct
class EpochEndOffset:
    """The largest epoch not above the requested one, and the offset after its last record."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(versions="1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderTopicResult:
    """Results of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@response(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """Results, by topic."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
