"""Imports the directories of a node of Apache Kafka into new directories of Felice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Disk, DiskLocked
from felice.env.shared_files import SharedLock, hold_shared
from felice.log.directory import LOCK_NAME
from felice.migration import (
    felice_store,
    kafka_directory,
    new_directories,
    open_transactions,
    transfer,
    znodes,
)
from felice.migration.cluster_state import ClusterState
from felice.migration.errors import MigrationError
from felice.migration.kafka_directory import METADATA_DIRECTORY, LogDirectoryContents
from felice.migration.open_transactions import OpenTransaction
from felice.migration.plan import Here, ImportPlan, plan_import


@dataclass(frozen=True, slots=True)
class Survey:
    """What an import would do. `notes` say what else an operator should know."""

    contents: Sequence[LogDirectoryContents]
    plan: ImportPlan
    transactions: Sequence[OpenTransaction]
    notes: Sequence[str]

    @property
    def node_id(self) -> int:
        """The id of the node, which Felice takes over."""
        return self.contents[0].meta.node_id

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which Felice takes over."""
        return self.contents[0].meta.cluster_id

    @property
    def size_bytes(self) -> int:
        """The size of the logs that come."""
        return sum(partition.size_bytes for partition in self.plan.partitions)


@contextmanager
def held(sources: Sequence[Path], owner: str) -> Iterator[Callable[[], None]]:
    """Within, no broker can start on these directories. Raises `MigrationError` if one uses them now.

    Kafka removes its lock file when it stops, and nothing may be created in its directories. So what this yields must
    be called before the result counts: it raises `MigrationError` if a broker was started meanwhile.
    """
    locks: list[SharedLock] = []
    unlocked: list[Path] = []

    def check() -> None:
        for path in unlocked:
            if (path / LOCK_NAME).exists():
                raise MigrationError(f"{path} was used by {owner} meanwhile; stop it and begin again")

    try:
        for path in sources:
            try:
                lock = hold_shared(path / LOCK_NAME)
            except DiskLocked:
                raise MigrationError(f"{path} is in use by a running {owner}; stop it first") from None
            if lock is None:
                unlocked.append(path)
            else:
                locks.append(lock)
        yield check
    finally:
        for lock in locks:
            lock.release()


def survey(
    disk: Disk,
    sources: Sequence[Path],
    *,
    nodes: Mapping[str, bytes] | None = None,
    without_metadata: bool = False,
    may_miss_logs: bool = False,
) -> Survey:
    """Reads everything and changes nothing. `nodes` are those of ZooKeeper. Raises `MigrationError`."""
    contents = [kafka_directory.read(disk, path) for path in sources]
    first = contents[0].meta
    for one in contents[1:]:
        if (one.meta.node_id, one.meta.cluster_id) != (first.node_id, first.cluster_id):
            raise MigrationError(
                f"{one.path} belongs to node {one.meta.node_id} of cluster {one.meta.cluster_id}, and "
                f"{contents[0].path} to node {first.node_id} of cluster {first.cluster_id}; import one node"
            )
    found = [partition for one in contents for partition in one.partitions]
    set_aside = [path for one in contents for path in one.set_aside]
    notes = transfer.unclean(contents)
    is_zookeeper = False
    if with_log := [one.path for one in contents if disk.exists(one.path / METADATA_DIRECTORY)]:
        if nodes is not None or without_metadata:
            raise MigrationError(
                f"{with_log[0]} has the metadata of its cluster (KRaft); leave the option out"
            )
        state = _of_kraft(disk, with_log[0], notes)
    elif nodes is not None:
        is_zookeeper = True
        if (other := znodes.cluster_id_of(nodes)) != first.cluster_id:
            raise MigrationError(
                f"the nodes are of cluster {other}, and the directories of {first.cluster_id}"
            )
        state = znodes.state_of(nodes)
    elif without_metadata:
        state = znodes.state_of_logs(found, first.node_id)
        notes.append("configurations, access rules, SCRAM users and quotas do not come: ZooKeeper has them")
    else:
        raise MigrationError(
            f"none of the directories has {METADATA_DIRECTORY}. If it is elsewhere (metadata.log.dir), name that "
            "directory too. If the cluster used ZooKeeper, give its nodes with --znodes, or take topics and records "
            "alone with --without-metadata"
        )
    ids = frozenset(one.meta.directory_id for one in contents if one.meta.directory_id is not None)
    here = Here(first.node_id, first.cluster_id, ids, is_zookeeper, may_miss_logs)
    plan = plan_import(state, found, set_aside, here)
    return Survey(contents, plan, open_transactions.find(disk, plan.partitions), notes)


def _of_kraft(disk: Disk, path: Path, notes: list[str]) -> ClusterState:
    metadata = kafka_directory.read_metadata(disk, path / METADATA_DIRECTORY)
    if metadata.torn_bytes:
        notes.append(
            f"the last write to the metadata log was cut short; its {metadata.torn_bytes} bytes do not count"
        )
    if metadata.voters != 1:
        how_many = "several" if metadata.voters is None else metadata.voters
        since = metadata.snapshot or "its beginning"
        notes.append(
            f"the cluster had {how_many} controllers: what the metadata log says since {since} may not have been "
            "committed by them"
        )
    return metadata.state


def carry_out(
    disk: Disk,
    found: Survey,
    targets: Sequence[Path],
    new_uuid: Callable[[], UUID],
    on_bytes: Callable[[int], object],
    *,
    may_link: bool,
    check: Callable[[], None],
) -> transfer.Transferred:
    """Makes the new directories: one for all, or one for each that was read. Raises `MigrationError`.

    `check` is called before the result counts, and raises if it must not.
    """
    placed = transfer.place(found.contents, targets)
    new_directories.check_free(disk, targets, [one.path for one in found.contents])
    wanted = {partition.path for partition in found.plan.partitions}
    with new_directories.being_built(disk, targets) as temporary:
        done = transfer.transfer(
            disk,
            [(path, placed[target]) for path, target in zip(temporary, targets, strict=True)],
            wanted,
            new_uuid,
            on_bytes,
            may_link=may_link,
        )
        # Last of all: without it no broker starts on what is there so far.
        felice_store.write(disk, temporary[0], found.plan.nodes)
        check()
    return done
