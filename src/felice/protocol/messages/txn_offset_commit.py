"""TxnOffsetCommit (key 28): offsets that count when the transaction commits.

Leader epochs from version 2; member and generation from version 3 (KIP-447), so that a consumer that lost its
partitions cannot commit; TRANSACTION_ABORTABLE from version 4. Version 5 belongs to transaction V2, where this request
also adds the group to the transaction.
"""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct


@struct
class TxnOffsetCommitRequestPartition:
    """One offset."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    """Offsets of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@request(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """A request to the group's coordinator. Without a generation, membership is not checked."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(versions="3+", default=-1)
    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class TxnOffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic:
    """Offsets of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@response(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """Every partition of the request, each with its error."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
