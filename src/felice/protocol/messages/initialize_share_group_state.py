"""InitializeShareGroupState (key 83): creates the state of partitions of a share group (KIP-932), between brokers."""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct, uid


@struct
class PartitionData:
    """With a start offset of -1 the partition's leader chooses the start offset."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


@struct
class InitializeStateData:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@request(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    """A request to the share coordinator of these partitions."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


@struct
class PartitionResult:
    """The result for one partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class InitializeStateResult:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """Every partition of the request, each with its error."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
