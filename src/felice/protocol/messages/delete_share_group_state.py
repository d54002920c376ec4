"""DeleteShareGroupState (key 86): deletes the state of partitions of a share group (KIP-932), between brokers."""

from __future__ import annotations

import uuid

from felice.protocol.messages.initialize_share_group_state import PartitionResult
from felice.protocol.schema import array, int32, request, response, string, struct, uid


@struct
class PartitionData:
    """One partition."""

    partition: int = int32()


@struct
class DeleteStateData:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@request(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    """A request to the share coordinator of these partitions."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


@struct
class DeleteStateResult:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionResult] = array(PartitionResult)


@response(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """Every partition of the request, each with its error."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
