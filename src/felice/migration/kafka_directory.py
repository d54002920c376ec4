"""Reads the directories of a stopped Kafka, and changes nothing in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from felice.dataclass import dataclass
from felice.env import Disk
from felice.log import (
    checkpoints,
    clean_shutdown,
    directory_names,
    epochs,
    meta_properties,
    partition_metadata,
)
from felice.log.errors import CorruptLog, LogDirectoryError
from felice.log.meta_properties import MetaProperties
from felice.log.segment import LOG_SUFFIX
from felice.migration import metadata_records, partition_files
from felice.migration.cluster_state import ClusterState, replay
from felice.migration.errors import MigrationError, explained
from felice.migration.metadata_records import Batches
from felice.migration.partition_files import Trust
from felice.migration.plan import METADATA_TOPIC, FoundPartition
from felice.protocol.topic_partition import PartitionKey
from felice.records.batch import MAGIC, MAGIC_POSITION

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEAN_OFFSETS,
)
_OFFSET_DIGITS = 20
_SNAPSHOT_NAME = re.compile(r"\d{20}-\d{10}\.checkpoint")
_QUORUM_STATE = "quorum-state"


@dataclass(frozen=True, slots=True)
class LogDirectoryContents:
    """What lies in one entry of `log.dirs`. `offsets` are those of the checkpoint files, by their names."""

    path: Path
    meta: MetaProperties
    was_clean: bool
    partitions: tuple[FoundPartition, ...]
    set_aside: tuple[Path, ...]
    offsets: Mapping[str, Mapping[PartitionKey, int]]

    def trust(self, key: PartitionKey) -> Trust:
        """How far the files of a partition can be believed."""
        return Trust(
            self.offsets[checkpoints.RECOVERY_POINTS].get(key, 0),
            self.offsets[checkpoints.HIGH_WATERMARKS].get(key, 0),
            self.was_clean,
        )


def read(disk: Disk, path: Path) -> LogDirectoryContents:
    """Reads one entry of `log.dirs`. Raises `MigrationError`."""
    with (
        explained(str(path), OSError),
        explained("the directory cannot be read", LogDirectoryError, CorruptLog),
    ):
        meta = meta_properties.read(disk, path)
        if meta is None:
            raise MigrationError(f"{path} has no {meta_properties.FILE_NAME}: it is no entry of log.dirs")
        offsets = {name: _offsets(disk, path / name) for name in CHECKPOINTS}
        partitions, set_aside = [], []
        for name in disk.listdir(path):
            if not disk.is_dir(path / name):
                continue
            if directory_names.is_set_aside(name):
                set_aside.append(path / name)
            elif (key := directory_names.partition_of(name)) is not None and key[0] != METADATA_TOPIC:
                partitions.append(_partition(disk, path / name, key))
        was_clean = disk.exists(path / clean_shutdown.MARKER_NAME)
        return LogDirectoryContents(path, meta, was_clean, tuple(partitions), tuple(set_aside), offsets)


def _offsets(disk: Disk, path: Path) -> dict[PartitionKey, int]:
    text = _text(disk, path)
    with explained(f"{path} is damaged", ValueError):
        return checkpoints.parse(text) if text else {}


def _text(disk: Disk, path: Path) -> str:
    """The text of a checkpoint; empty without one. Kafka creates its checkpoints empty, and fills them later."""
    try:
        return disk.read_bytes(path).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _partition(disk: Disk, path: Path, key: PartitionKey) -> FoundPartition:
    names = disk.listdir(path)
    logs = [f"{base:020d}{LOG_SUFFIX}" for base in partition_files.base_offsets(names)]
    return FoundPartition(
        key,
        path,
        partition_metadata.read(disk, path),
        _last_epoch(disk, path),
        any(_is_legacy(disk, path / name) for name in logs),
        sum(disk.size(path / name) for name in logs),
    )


def _last_epoch(disk: Disk, path: Path) -> int:
    text = _text(disk, path / epochs.FILE_NAME)
    with explained(f"{path / epochs.FILE_NAME} is damaged", ValueError):
        found = epochs.parse(text) if text else []
    return found[-1].epoch if found else -1


def _is_legacy(disk: Disk, path: Path) -> bool:
    """Whether a segment begins in an old message format. Kafka changed the format of a topic upwards only."""
    file = disk.open(path, read_only=True)
    try:
        magic = file.pread(1, MAGIC_POSITION)
    finally:
        file.close()
    return bool(magic) and magic[0] < MAGIC


@dataclass(frozen=True, slots=True)
class KraftMetadata:
    """The metadata of a KRaft cluster, up to `end_offset`. `voters` is None if their number is not on disk."""

    state: ClusterState
    end_offset: int
    snapshot: str | None
    torn_bytes: int
    voters: int | None


def read_metadata(disk: Disk, directory: Path) -> KraftMetadata:
    """Reads `__cluster_metadata-0`: the newest whole snapshot, then the log. Raises `MigrationError`."""
    with explained(str(directory), OSError):
        names = disk.listdir(directory)
        snapshot = _newest_snapshot(disk, directory, names)
        snapshot_name = None if snapshot is None else Path(snapshot.name).name
        start = int(snapshot_name[:_OFFSET_DIGITS]) if snapshot_name else 0
        bases = partition_files.base_offsets(names)
        # A segment that ends at or below the snapshot adds nothing.
        ends = [*bases[1:], None]
        needed = [base for base, end in zip(bases, ends, strict=True) if end is None or end > start]
        segments = [_batches_of(disk, directory / f"{base:020d}{LOG_SUFFIX}") for base in needed]
        if not segments and snapshot is None:
            raise MigrationError(f"{directory} has neither a log nor a whole snapshot")
        end_offset = metadata_records.check_continuous(segments, start)
        values = [] if snapshot is None else list(metadata_records.data_values(snapshot))
        for segment in segments:
            values += [row for row in metadata_records.data_values(segment) if row[0] >= start]
        voters = _static_voters(disk, directory / _QUORUM_STATE)
        for file in segments if snapshot is None else (snapshot, *segments):
            voters = metadata_records.voters_in(file) or voters
        torn_bytes = segments[-1].torn_bytes if segments else 0
        state = replay(metadata_records.committed(values))
        return KraftMetadata(state, end_offset, snapshot_name, torn_bytes, voters)


def _batches_of(disk: Disk, path: Path) -> Batches:
    return metadata_records.batches_of(disk.read_bytes(path), str(path))


def _newest_snapshot(disk: Disk, directory: Path, names: Iterable[str]) -> Batches | None:
    """The newest snapshot that was completed."""
    for name in sorted((name for name in names if _SNAPSHOT_NAME.fullmatch(name)), reverse=True):
        snapshot = _batches_of(disk, directory / name)
        if metadata_records.is_whole_snapshot(snapshot):
            return snapshot
    return None


def _static_voters(disk: Disk, path: Path) -> int | None:
    """The number of voters that the configuration sets; None for a quorum that can change (KIP-853)."""
    try:
        voters = json.loads(disk.read_bytes(path)).get("currentVoters")
        return len(voters) if voters is not None else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
