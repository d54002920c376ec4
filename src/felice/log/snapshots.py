"""Snapshot files of producer state: `<offset>.snapshot`.

Keeps true: a damaged snapshot is refused, by its CRC or its length.

A snapshot has the state from all batches below `offset`. Layout, big endian: int16
version (1), uint32 CRC-32C of all that follows, int32 count, then the producers. Like
Kafka it keeps only the last batch of each producer, so after a restart one batch is
known for finding duplicates, instead of five.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple

from felice.env import Disk
from felice.records.crc import crc32c

SUFFIX = ".snapshot"
_VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """The file is not a complete snapshot."""


class SnapshotEntry(NamedTuple):
    """One producer in the file; -1 stands for none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode(entries: Iterable[SnapshotEntry]) -> bytes:
    """The bytes of a snapshot file."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = len(packed).to_bytes(4, "big") + b"".join(packed)
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode(data: bytes) -> list[SnapshotEntry]:
    """The producers in a snapshot file. Raises `CorruptSnapshot`."""
    try:
        version, crc, count = _HEAD.unpack_from(data)
    except error:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot") from None
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not {_VERSION}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptSnapshot("its CRC does not hold")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} producers do not fit {len(data)} bytes")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]


def path_of(directory: Path, offset: int) -> Path:
    """Path of the snapshot at `offset`."""
    return directory / f"{offset:020d}{SUFFIX}"


def offsets_in(disk: Disk, directory: Path) -> list[int]:
    """Offsets of the snapshots in a partition's directory, ascending."""
    stems = (name.removesuffix(SUFFIX) for name in disk.listdir(directory) if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit())
