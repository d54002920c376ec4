"""WriteShareGroupState (key 85): changes the state of partitions of a share group (KIP-932), between brokers.

Version 1 adds the number of acknowledged and archived offsets, from which the lag is computed.
"""

from __future__ import annotations

import uuid

from felice.protocol.messages.initialize_share_group_state import PartitionResult
from felice.protocol.messages.share_state_topic import StateBatch
from felice.protocol.schema import array, int32, int64, request, response, string, struct, uid


@struct
class PartitionData:
    """The batches that changed. With a start offset of -1 the start offset stays."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(versions="1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


@struct
class WriteStateData:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@request(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """A request of a partition's leader to the share coordinator."""

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


@struct
class WriteStateResult:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """Every partition of the request, each with its error."""

    results: list[WriteStateResult] = array(WriteStateResult)
