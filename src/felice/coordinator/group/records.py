"""The records of a group shard in `__consumer_offsets`, in Kafka's format.

Keeps true:  Kafka and its tools can read every record written here, and the reverse.

An offset commit is written in version 4, which has the topic's id; if the client gave a retention time, in version 1,
the only version with an expiry. Group metadata is written in version 3: version 4 would only add flexibility. Kafka
4.3 writes the same versions.
"""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from felice.coordinator.group.consumer.values import CONSUMER_RECORDS, CONSUMER_TYPES, ConsumerRecord
from felice.dataclass import dataclass
from felice.protocol.codec import data_version, decode_data, encode_data
from felice.protocol.messages.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from felice.protocol.primitives import ZERO_UUID

_LEGACY_OFFSET_COMMIT_TYPE = 0
_OFFSET_COMMIT_TYPE = 1
_GROUP_METADATA_TYPE = 2
_GROUP_METADATA_VERSION = 3


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`expire_timestamp_ms` is -1 unless the commit brought a retention time of its own."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: UUID = ZERO_UUID

    def is_of(self, topic_id: UUID) -> bool:
        """Whether it was committed for the topic with this id; an unknown id on either side matches."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A commit, or with None its removal."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group in one generation, or with None its removal."""

    group_id: str
    value: GroupMetadataValue | None


Record: TypeAlias = GroupRecord | OffsetRecord | ConsumerRecord


class GroupRecordCodec:
    """Encodes and decodes the records of groups and of offsets."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        """Key and value; no value is a tombstone, which deletes the group or the offset."""
        if isinstance(record, CONSUMER_RECORDS):
            from felice.coordinator.group.consumer.codec import encode_consumer

            return encode_consumer(record)
        if isinstance(record, GroupRecord):
            key = encode_data(GroupMetadataKey(group=record.group_id))
            return key, None if record.value is None else encode_data(record.value, _GROUP_METADATA_VERSION)
        key = encode_data(
            OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
        )
        return key, None if record.committed is None else _encode_committed(record.committed)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """The record; None for a kind of record that belongs to newer brokers."""
        record_type = data_version(key)
        if record_type == _GROUP_METADATA_TYPE:
            group_key = decode_data(GroupMetadataKey, key)
            return GroupRecord(
                group_key.group, None if value is None else decode_data(GroupMetadataValue, value)
            )
        if record_type in (_LEGACY_OFFSET_COMMIT_TYPE, _OFFSET_COMMIT_TYPE):
            # Types 0 and 1 have the same format.
            offset_key = decode_data(OffsetCommitKey, _OFFSET_COMMIT_TYPE.to_bytes(2) + key[2:])
            committed = None if value is None else _decode_committed(value)
            return OffsetRecord(offset_key.group, offset_key.topic, offset_key.partition, committed)
        if record_type in CONSUMER_TYPES:
            from felice.coordinator.group.consumer.codec import decode_consumer

            return decode_consumer(record_type, key, value)
        return None


def _encode_committed(committed: CommittedOffset) -> bytes:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return encode_data(value, 4 if committed.expire_timestamp_ms == -1 else 1)


def _decode_committed(data: bytes) -> CommittedOffset:
    value = decode_data(OffsetCommitValue, data)
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )
