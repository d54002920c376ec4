"""The records of `__share_group_state`: what a share group has done with the records of one partition (KIP-932).

A key begins with the type of the record, a value with its version. A snapshot has the whole state of a partition, and
an update has what changed since then. A snapshot without a value deletes the state.
"""

from __future__ import annotations

import uuid

from felice.protocol.schema import (
    array,
    int8,
    int16,
    int32,
    int64,
    record_key,
    record_value,
    string,
    struct,
    uid,
)


@record_key(record_type=0)
class ShareSnapshotKey:
    """A group and a partition."""

    group_id: str = string()
    topic_id: uuid.UUID = uid()
    partition: int = int32()


@struct
class StateBatch:
    """Offsets in one state: 0 is available, 2 acknowledged and 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@record_value(record_type=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    """`delivery_complete_count` counts the acknowledged or archived offsets from the start offset on; -1 if unknown."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@record_key(record_type=1)
class ShareUpdateKey:
    """A group and a partition."""

    group_id: str = string()
    topic_id: uuid.UUID = uid()
    partition: int = int32()


@record_value(record_type=1, versions="0", flexible="0+")
class ShareUpdateValue:
    """The batches that changed. With a start offset of -1 the start offset stays."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
