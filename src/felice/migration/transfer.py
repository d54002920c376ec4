"""Fills new log directories with partitions of others, and with the files that the partitions share.

Both directions use it: the files are the same in Kafka and in Felice. The source is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Disk, shared_files
from felice.log import checkpoints, clean_shutdown, meta_properties
from felice.log.meta_properties import MetaProperties
from felice.log.workers import workers
from felice.migration import new_directories, partition_files
from felice.migration.errors import MigrationError, explained
from felice.migration.kafka_directory import CHECKPOINTS, LogDirectoryContents
from felice.migration.partition_files import Taken
from felice.migration.plan import FoundPartition
from felice.protocol.topic_partition import PartitionKey

_THREADS = 8
_RESERVE_BYTES = 64 * 1024 * 1024
"""Room that stays free: directories and small files take some, too."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The directories that were read, and their partitions to take over."""

    contents: Sequence[LogDirectoryContents]
    partitions: Sequence[FoundPartition]

    @property
    def node_id(self) -> int:
        """The id of the node, which the new directories keep."""
        return self.contents[0].meta.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which the new directories keep."""
        return self.contents[0].meta.cluster_id

    @property
    def size_bytes(self) -> int:
        """The size of the logs of these partitions."""
        return sum(partition.size_bytes for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Transferred:
    """The bytes that were copied and hard-linked, and the id of the new directory of each partition."""

    copied_bytes: int
    linked_bytes: int
    directory_ids: Mapping[PartitionKey, UUID]


@dataclass(frozen=True, slots=True)
class _Job:
    partition: FoundPartition
    target: Path
    files: Sequence[Taken]


def unclean(contents: Sequence[LogDirectoryContents]) -> list[str]:
    """A note about each directory that was not closed cleanly."""
    return [
        f"{one.path} was not closed cleanly: the first start checks and repairs its logs"
        for one in contents
        if not one.was_clean
    ]


def carry_out(
    disk: Disk,
    found: Survey,
    targets: Sequence[Path],
    new_uuid: Callable[[], UUID],
    on_bytes: Callable[[int], object],
    complete: Callable[[Sequence[Path], Transferred], None],
    *,
    may_link: bool,
    check: Callable[[], None],
) -> Transferred:
    """Makes the new directories: one for all, or one for each that was read. Raises `MigrationError`.

    `complete` writes the metadata into them, and may raise OSError. `check` is called before the result counts, and
    raises if it must not count.
    """
    placed = _placed(found.contents, targets)
    new_directories.check_free(disk, targets, [one.path for one in found.contents])
    wanted = {partition.path for partition in found.partitions}
    with new_directories.being_built(disk, targets) as temporary:
        pairs = list(zip(temporary, placed, strict=True))
        done = _fill(disk, pairs, wanted, new_uuid, on_bytes, may_link=may_link)
        with explained("the copy failed", OSError):
            complete(temporary, done)
        check()
    return done


def _placed(
    contents: Sequence[LogDirectoryContents], targets: Sequence[Path]
) -> list[Sequence[LogDirectoryContents]]:
    """The directories that come into each target. Raises `MigrationError` if the numbers do not fit."""
    if len(targets) == 1:
        return [contents]
    if len(targets) != len(contents):
        raise MigrationError(
            f"{len(contents)} directories are read and {len(targets)} are to be made; give --to once, or as often"
        )
    return [[one] for one in contents]


def _fill(
    disk: Disk,
    pairs: Sequence[tuple[Path, Sequence[LogDirectoryContents]]],
    wanted: Collection[Path],
    new_uuid: Callable[[], UUID],
    on_bytes: Callable[[int], object],
    *,
    may_link: bool,
) -> Transferred:
    """Fills each new directory from those that belong to it. `wanted` are the directories of partitions to take."""
    with explained("the copy failed", OSError):
        jobs = [job for target, contents in pairs for job in _jobs(disk, target, contents, wanted)]
        _check_room(disk, jobs, may_link=may_link)
        directory_ids: dict[PartitionKey, UUID] = {}
        # First: a directory that belongs to a cluster whose metadata is missing does not start.
        for target, contents in pairs:
            directory_id = new_uuid()
            meta = contents[0].meta
            meta_properties.write(disk, target, MetaProperties(meta.node_id, meta.cluster_id, directory_id))
            directory_ids |= {
                one.key: directory_id for other in contents for one in other.partitions if one.path in wanted
            }
        copied_bytes = linked_bytes = 0

        def take(job: _Job) -> tuple[int, int]:
            return partition_files.take(
                disk, job.partition.path, job.target, job.files, on_bytes, may_link=may_link
            )

        # Several at a time: most of the time goes into syncs, which the file system then does together.
        with workers(_THREADS, "migration") as each:
            for copied, linked in each(take, jobs):
                copied_bytes += copied
                linked_bytes += linked
        for target, contents in pairs:
            _write_shared(disk, target, contents, wanted)
        return Transferred(copied_bytes, linked_bytes, directory_ids)


def _jobs(
    disk: Disk, target: Path, contents: Sequence[LogDirectoryContents], wanted: Collection[Path]
) -> list[_Job]:
    return [
        _Job(one, target / one.name, partition_files.choose(disk.listdir(one.path), other.trust(one.key)))
        for other in contents
        for one in other.partitions
        if one.path in wanted
    ]


def _check_room(disk: Disk, jobs: Sequence[_Job], *, may_link: bool) -> None:
    needed: dict[Path, int] = {}
    for job in jobs:
        root = job.target.parent
        links = may_link and shared_files.can_link(job.partition.path, root)
        size_bytes = sum(
            disk.size(job.partition.path / file.name) for file in job.files if not (file.is_linked and links)
        )
        needed[root] = needed.get(root, 0) + size_bytes
    for root, size_bytes in needed.items():
        usable = disk.volume(root).usable_bytes
        if size_bytes + _RESERVE_BYTES > usable:
            raise MigrationError(
                f"{size_bytes:,} bytes are to be copied, and {root.parent} has room for {usable:,}"
            )


def _write_shared(
    disk: Disk, target: Path, contents: Sequence[LogDirectoryContents], wanted: Collection[Path]
) -> None:
    for name in CHECKPOINTS:
        # Of the directory that has the log: another one may have a log of an older topic of this name.
        offsets = {
            one.key: other.offsets[name][one.key]
            for other in contents
            for one in other.partitions
            if one.path in wanted and one.key in other.offsets[name]
        }
        disk.write_atomic(target / name, checkpoints.format_offsets(offsets).encode())
    if all(other.was_clean for other in contents):
        clean_shutdown.write_marker(disk, target)
