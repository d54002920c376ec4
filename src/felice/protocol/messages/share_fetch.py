"""ShareFetch (key 78): acknowledges records of a share group, and acquires more of them (KIP-932).

A request belongs to the share session of its member: epoch 0 opens it, -1 closes it. Version 2 adds the mode of
acquisition and renewed locks.
"""

from __future__ import annotations

import uuid
from typing import Any

from felice.protocol.messages.fetch import NodeEndpoint as NodeEndpoint
from felice.protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    request,
    response,
    string,
    struct,
    uid,
)


@struct
class AcknowledgementBatch:
    """A range of offsets, with one type for all of them or one for each.

    0 is a gap; 1 accepts, 2 releases and 3 rejects; 4 renews the lock (version 2).
    """

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@struct
class FetchPartition:
    """One partition, with what the member acknowledges there."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct
class FetchTopic:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    """Partitions to drop from the session."""

    topic_id: uuid.UUID = uid()
    partitions: list[int] = array(int32)


@request(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """`share_acquire_mode` is 0 for whole batches and 1 for exactly `max_records`."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    max_records: int = int32(versions="1+")
    batch_size: int = int32(versions="1+")
    share_acquire_mode: int = int8(versions="2+", ignorable=True)
    is_renew_ack: bool = boolean(versions="2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@struct
class LeaderIdAndEpoch:
    """The current leader of a partition."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@struct
class AcquiredRecords:
    """Offsets that the member holds now, and how often they were delivered."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@struct
class PartitionData:
    """`records` may have more records than were acquired: the member drops the others."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)
    records: Any = records(nullable="0")
    """As in Fetch. There must be a value: empty bytes if nothing was read."""
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@struct
class ShareFetchableTopicResponse:
    """Partitions of one topic."""

    topic_id: uuid.UUID = uid()
    partitions: list[PartitionData] = array(PartitionData)


@response(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """The locks of the acquired records end after `acquisition_lock_timeout_ms`."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32(versions="1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
