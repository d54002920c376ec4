"""ReadShareGroupState (key 84): the state of partitions of a share group (KIP-932), between brokers."""

from __future__ import annotations

import uuid

from felice.protocol.messages.share_state_topic import StateBatch
from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct, uid


@struct
class PartitionData:
    """A leader epoch above the stored epoch replaces it, and fences the older leader."""

    partition: int = int32()
    leader_epoch: int = int32()


@struct
class ReadStateData:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@request(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    """A request of a partition's leader to the share coordinator."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


@struct
class PartitionResult:
    """The state of one partition. Its start offset is -1 until its leader has set one."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@struct
class ReadStateResult:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """Every partition of the request, with its state or its error."""

    results: list[ReadStateResult] = array(ReadStateResult)
