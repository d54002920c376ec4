"""Fetch (key 1): record batches from some offset on, for consumers and followers.

Fetch sessions from version 7, zstd from 10, reading from the closest replica from 11, divergence by epoch from
12, topics by id from 13, the follower's broker epoch (`replica_state`) from 15, new leaders' addresses from 16.
"""

from __future__ import annotations

import uuid
from typing import Any

from felice.protocol.schema import (
    array,
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

HIGH_WATERMARK_UNSUPPORTED = 2**63 - 1
"""The high watermark in a request of a replica that does not tell it."""


@struct
class ReplicaState:
    """The sender: a follower and its broker epoch, or -1 for a consumer."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@struct
class FetchPartition:
    """`last_fetched_epoch` lets the leader find where the follower's log diverged."""

    partition: int = int32()
    current_leader_epoch: int = int32(versions="9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(versions="12+", default=-1)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: uuid.UUID = uid(versions="17+", tag=0, ignorable=True)
    high_watermark: int = int64(versions="18+", tag=1, default=HIGH_WATERMARK_UNSUPPORTED, ignorable=True)


@struct
class FetchTopic:
    """A topic by name, or by id from version 13."""

    topic: str = string(versions="0-12", ignorable=True)
    topic_id: uuid.UUID = uid(versions="13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    """Partitions to drop from the session."""

    topic: str = string(versions="7-12", ignorable=True)
    topic_id: uuid.UUID = uid(versions="13+", ignorable=True)
    partitions: list[int] = array(int32, versions="7+")


@request(api_key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Up to version 14 a follower names itself in `replica_id`, after that in `replica_state`."""

    cluster_id: str | None = string(versions="12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = int32(versions="0-14", default=-1)
    replica_state: ReplicaState | None = nested(ReplicaState, versions="15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(versions="3+", default=2**31 - 1, ignorable=True)
    isolation_level: int = int8(versions="4+", ignorable=True)
    session_id: int = int32(versions="7+", ignorable=True)
    session_epoch: int = int32(versions="7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, versions="7+")
    rack_id: str = string(versions="11+", ignorable=True)


@struct
class EpochEndOffset:
    """The largest epoch not after the follower's, and where it ended."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct
class LeaderIdAndEpoch:
    """The current leader of a partition."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct
class SnapshotId:
    """Used only by Raft replicas (KRaft)."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    """Records of this producer from `first_offset` to its abort marker are to be dropped."""

    producer_id: int = int64(versions="4+")
    first_offset: int = int64(versions="4+")


@struct
class PartitionData:
    """`records` holds whole batches, the last of which may be cut short."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(versions="4+", default=-1, ignorable=True)
    log_start_offset: int = int64(versions="5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = nested(EpochEndOffset, versions="12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = nested(LeaderIdAndEpoch, versions="12+", tag=1)
    snapshot_id: SnapshotId | None = nested(SnapshotId, versions="12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, versions="4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32(versions="11+", default=-1)
    records: Any = records()
    """A slice of a file in a response to encode, a view of the frame in a decoded one."""


@struct
class FetchableTopicResponse:
    """The topic as the request named it."""

    topic: str = string(versions="0-12", ignorable=True)
    topic_id: uuid.UUID = uid(versions="13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@struct
class NodeEndpoint:
    """Address of a broker named in some `current_leader`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@response(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """`session_id` is 0 if the fetch has no session."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="7+", ignorable=True)
    session_id: int = int32(versions="7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, versions="16+", tag=0)
