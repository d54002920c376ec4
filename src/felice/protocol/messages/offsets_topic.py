"""The records of `__consumer_offsets`: committed offsets and the state of groups.

A key begins with the type of the record, a value with its version (`codec.encode_data`, `decode_data`). Type 0 is
an offset from a very old broker, whose key has the layout of type 1. A null value deletes what the key names.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import (
    array,
    binary,
    int32,
    int64,
    record_key,
    record_value,
    string,
    struct,
    uid,
)


@record_key(record_type=0)
class LegacyOffsetCommitKey:
    """The group and partition of an offset, as brokers before 0.8.2 wrote it."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@record_value(record_type=0, versions="0")
class LegacyOffsetCommitValue:
    """An offset, as brokers before 0.8.2 wrote it."""

    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


@record_key(record_type=1)
class OffsetCommitKey:
    """The group and partition of an offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@record_value(record_type=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    """An offset. Only version 1 has a time of expiry; the leader epoch needs version 3."""

    offset: int = int64()
    leader_epoch: int = int32(versions="3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(versions="1", default=-1, ignorable=True)
    topic_id: uuid.UUID = uid(versions="4+", tag=0, ignorable=True)


@record_key(record_type=2)
class GroupMetadataKey:
    """The id of a group."""

    group: str = string()


@struct
class MemberMetadata:
    """A member with its subscription and assignment."""

    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(versions="1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@record_value(record_type=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A group after a completed rebalance; without members, an empty group."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64(versions="2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
