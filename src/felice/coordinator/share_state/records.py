"""The records of `__share_group_state`, in Kafka's format.

Keeps true:  Kafka and its tools can read every record written here, and the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from felice.coordinator.share_state.states import (
    Batches,
    ShareKey,
    ShareState,
    ShareUpdate,
    combined,
    without,
)
from felice.dataclass import dataclass
from felice.protocol.codec import data_version, decode_data, encode_data
from felice.protocol.messages import share_state_topic as schema
from felice.replication.share.states import StateBatch

_SNAPSHOT_TYPE = 0
_UPDATE_TYPE = 1


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """The whole state of a group in a partition, or with None its removal."""

    key: ShareKey
    state: ShareState | None


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """The changes since the last snapshot or update."""

    key: ShareKey
    update: ShareUpdate


ShareRecord: TypeAlias = SnapshotRecord | UpdateRecord


class ShareRecordCodec:
    """Encodes and decodes snapshots and updates."""

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        """Key and value; no value is a tombstone, which removes the state."""
        group_id, topic_id, partition = record.key
        if isinstance(record, UpdateRecord):
            key = schema.ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
            return encode_data(key), _encode_update(record.update)
        snapshot_key = schema.ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
        return encode_data(snapshot_key), None if record.state is None else _encode_snapshot(record.state)

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        """The record; None for a kind of record that belongs to newer brokers, and for an update without a value."""
        record_type = data_version(key)
        if record_type == _SNAPSHOT_TYPE:
            found = decode_data(schema.ShareSnapshotKey, key)
            share_key = ShareKey(found.group_id, found.topic_id, found.partition)
            return SnapshotRecord(share_key, None if value is None else _decode_snapshot(value))
        if record_type == _UPDATE_TYPE and value is not None:
            asked = decode_data(schema.ShareUpdateKey, key)
            share_key = ShareKey(asked.group_id, asked.topic_id, asked.partition)
            return UpdateRecord(share_key, _decode_update(value))
        return None


def _encode_snapshot(state: ShareState) -> bytes:
    return encode_data(
        schema.ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.done_count,
            create_timestamp=state.created_ms,
            write_timestamp=state.written_ms,
            state_batches=_encoded(state.batches),
        )
    )


def _decode_snapshot(data: bytes) -> ShareState:
    value = decode_data(schema.ShareSnapshotValue, data)
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        done_count=value.delivery_complete_count,
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        batches=without(_decoded(value.state_batches), value.start_offset),
    )


def _encode_update(update: ShareUpdate) -> bytes:
    return encode_data(
        schema.ShareUpdateValue(
            snapshot_epoch=update.snapshot_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.done_count,
            state_batches=_encoded(update.batches),
        )
    )


def _decode_update(data: bytes) -> ShareUpdate:
    value = decode_data(schema.ShareUpdateValue, data)
    return ShareUpdate(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        done_count=value.delivery_complete_count,
        batches=_decoded(value.state_batches),
    )


def _encoded(batches: Iterable[StateBatch]) -> list[schema.StateBatch]:
    return [
        schema.StateBatch(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=deliveries
        )
        for first, last, state, deliveries in batches
    ]


def _decoded(batches: Iterable[schema.StateBatch]) -> Batches:
    """Sound batches, also if another writer was less careful."""
    return combined(
        [
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in batches
            if batch.first_offset <= batch.last_offset
        ]
    )
