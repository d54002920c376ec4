"""The records of the mirrors' own topics: offset syncs, checkpoints, heartbeats.

Source: KIP-382, and the classes of the same names in `org.apache.kafka.connect.mirror`. Keys of all of them and the
        values of offset syncs have no version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.schema import BYTES, Schema
from felice.protocol.codec import decode, decode_data, encode, encode_data
from felice.protocol.schema import data, int32, int64, string

_BYTES = Schema(BYTES)
_NO_OFFSET = {"offset": 0}


@data(versions="0")
class OffsetSyncKey:
    """A partition of the source cluster."""

    topic: str = string()
    partition: int = int32()


@data(versions="0")
class OffsetSyncValue:
    """The record at `upstream_offset` of the source's partition has `downstream_offset` in the target's."""

    upstream_offset: int = int64()
    downstream_offset: int = int64()


@data(versions="0")
class CheckpointKey:
    """A group, and a partition of the target cluster."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@data(versions="0")
class CheckpointValue:
    """Where the group is in the source's partition, and the offset in the target's from which it can read on."""

    upstream_offset: int = int64()
    downstream_offset: int = int64()
    metadata: str = string()


@data(versions="0")
class HeartbeatKey:
    """The clusters between which a mirror runs."""

    source: str = string()
    target: str = string()


@data(versions="0")
class HeartbeatValue:
    """A time, in milliseconds since 1970."""

    timestamp: int = int64()


def encoded(key: object, value: object) -> tuple[bytes, bytes]:
    """The bytes of a record's key and value."""
    has_version = not isinstance(value, OffsetSyncValue)
    return encode(key, 0), encode_data(value) if has_version else encode(value, 0)


def offset_sync(key: bytes, value: bytes) -> tuple[OffsetSyncKey, OffsetSyncValue]:
    """An offset sync of these bytes. Raises `MalformedMessage`."""
    return decode(OffsetSyncKey, key, 0), decode(OffsetSyncValue, value, 0)


def checkpoint(key: bytes, value: bytes) -> tuple[CheckpointKey, CheckpointValue]:
    """A checkpoint of these bytes. Raises `MalformedMessage`."""
    return decode(CheckpointKey, key, 0), decode_data(CheckpointValue, value)


def heartbeat(key: bytes, value: bytes) -> tuple[HeartbeatKey, HeartbeatValue]:
    """A heartbeat of these bytes. Raises `MalformedMessage`."""
    return decode(HeartbeatKey, key, 0), decode_data(HeartbeatValue, value)


def source_record(topic: str, key: object, value: object, place: Mapping[str, object]) -> SourceRecord:
    """A checkpoint or heartbeat for its topic, with the time of now. `place` is its partition of the source."""
    key_bytes, value_bytes = encoded(key, value)
    return SourceRecord(
        topic,
        0,
        _BYTES,
        key_bytes,
        _BYTES,
        value_bytes,
        int(time.time() * 1000),
        source_partition=place,
        source_offset=_NO_OFFSET,
    )
