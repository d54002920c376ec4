"""ShareAcknowledge (key 79): acknowledges records of a share group without fetching others (KIP-932)."""

from __future__ import annotations

import uuid

from felice.protocol.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from felice.protocol.schema import (
    array,
    boolean,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    struct,
    uid,
)


@struct
class AcknowledgePartition:
    """What the member acknowledges in one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class AcknowledgeTopic:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


@request(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """A request of the member's share session. The session epoch counts ShareFetch requests, too."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(versions="2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@struct
class PartitionData:
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@response(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """Every partition of the request, each with its error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32(versions="2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
