"""Imports the directories of a node of Apache Kafka into new directories of Felice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Disk
from felice.migration import felice_store, kafka_directory, open_transactions, transfer, znodes
from felice.migration.cluster_state import ClusterState
from felice.migration.errors import MigrationError
from felice.migration.kafka_directory import METADATA_DIRECTORY
from felice.migration.open_transactions import OpenTransaction
from felice.migration.plan import Here, ImportPlan, plan_import
from felice.migration.transfer import Survey, Transferred


@dataclass(frozen=True, slots=True)
class ImportSurvey(Survey):
    """What an import would do. `notes` say what else an operator should know."""

    plan: ImportPlan
    transactions: Sequence[OpenTransaction]
    notes: Sequence[str]


def survey(
    disk: Disk,
    sources: Sequence[Path],
    *,
    nodes: Mapping[str, bytes] | None = None,
    without_metadata: bool = False,
    may_miss_logs: bool = False,
) -> ImportSurvey:
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
    if with_log := [one.path for one in contents if disk.exists(one.path / METADATA_DIRECTORY)]:
        if nodes is not None or without_metadata:
            raise MigrationError(
                f"{with_log[0]} has the metadata of its cluster (KRaft); leave the option out"
            )
        state = _of_kraft(disk, with_log[0], notes)
    elif nodes is not None:
        if (other := znodes.cluster_id_of(nodes)) != first.cluster_id:
            raise MigrationError(
                f"the nodes are of cluster {other}, and the directories of {first.cluster_id}"
            )
        state = znodes.state_of(nodes)
    elif without_metadata:
        state = znodes.state_of_logs(found, first.node_id)
        notes.append(
            "configurations, access rules, SCRAM users and quotas are not imported: ZooKeeper has them"
        )
    else:
        raise MigrationError(
            f"none of the directories has {METADATA_DIRECTORY}. If it is elsewhere (metadata.log.dir), name that "
            "directory too. If the cluster used ZooKeeper, give its nodes with --znodes, or take topics and records "
            "alone with --without-metadata"
        )
    ids = frozenset(one.meta.directory_id for one in contents if one.meta.directory_id is not None)
    here = Here(first.node_id, first.cluster_id, ids, nodes is not None, may_miss_logs)
    plan = plan_import(state, found, set_aside, here)
    transactions = open_transactions.find(disk, plan.partitions)
    return ImportSurvey(contents, plan.partitions, plan, transactions, notes)


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
            f"the cluster had {how_many} controllers: the records of the metadata log after {since} may not have "
            "been committed"
        )
    return metadata.state


def carry_out(
    disk: Disk,
    found: ImportSurvey,
    targets: Sequence[Path],
    new_uuid: Callable[[], UUID],
    on_bytes: Callable[[int], object],
    *,
    may_link: bool,
    check: Callable[[], None],
) -> Transferred:
    """Makes the new directories: one for all, or one for each that was read. Raises `MigrationError`.

    `check` is called before the result counts, and raises if it must not.
    """

    def complete(directories: Sequence[Path], done: Transferred) -> None:
        # Last of all: without it no broker starts on what is there so far.
        felice_store.write(disk, directories[0], found.plan.nodes)

    return transfer.carry_out(
        disk, found, targets, new_uuid, on_bytes, complete, may_link=may_link, check=check
    )
