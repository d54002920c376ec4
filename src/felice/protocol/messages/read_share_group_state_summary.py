"""ReadShareGroupStateSummary (key 87): start offsets of partitions of a share group (KIP-932), between brokers.

Version 1 adds the number of acknowledged and archived offsets, from which the lag is computed.
"""

from __future__ import annotations

import uuid

from felice.protocol.messages.read_share_group_state import PartitionData
from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct, uid


@struct
class ReadStateSummaryData:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@request(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    """A request of the group's coordinator to the share coordinator."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


@struct
class PartitionResult:
    """The state of one partition without its batches."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(versions="1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """Every partition of the request, with its state or its error."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
