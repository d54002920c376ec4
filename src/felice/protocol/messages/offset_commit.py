"""OffsetCommit (key 8): stores the offsets of a group, or of a consumer that is not a member of its group.

Versions 2 to 4 carry a retention time that brokers ignore since KIP-211; leader epochs from version 6; member
epochs of the new consumer protocol from version 9; topics by id from version 10.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import array, int16, int32, int64, request, response, string, struct, uid


@struct
class OffsetCommitRequestPartition:
    """One offset."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(versions="6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    """A topic by name, or by id from version 10."""

    name: str = string(versions="0-9", ignorable=True)
    topic_id: uuid.UUID = uid(versions="10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@request(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """A generation of -1 with an empty member id commits for a group without members."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(versions="1+", default=-1, ignorable=True)
    member_id: str = string(versions="1+", ignorable=True)
    group_instance_id: str | None = string(versions="7+", nullable="7+", default=None)
    retention_time_ms: int = int64(versions="2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetCommitResponsePartition:
    """The result for one offset."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    """The topic as the request named it."""

    name: str = string(versions="0-9", ignorable=True)
    topic_id: uuid.UUID = uid(versions="10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@response(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """Every partition of the request, each with its error."""

    throttle_time_ms: int = int32(versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
