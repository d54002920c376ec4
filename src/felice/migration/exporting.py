"""Makes directories for Apache Kafka from those of a single-broker cluster of Felice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Disk
from felice.migration import bootstrap, felice_store, kafka_directory, transfer, znodes
from felice.migration.bootstrap import ExportPlan
from felice.migration.cluster_state import ClusterState
from felice.migration.errors import MigrationError
from felice.migration.metadata_records import encode_snapshot
from felice.migration.plan import Left
from felice.migration.transfer import Survey, Transferred

BOOTSTRAP_FILE = "bootstrap.checkpoint"


@dataclass(frozen=True, slots=True)
class ExportSurvey(Survey):
    """What an export would make of the directories."""

    state: ClusterState
    left: Sequence[Left]


def survey(disk: Disk, sources: Sequence[Path]) -> ExportSurvey:
    """Reads everything and changes nothing. Raises `MigrationError`."""
    contents = [kafka_directory.read(disk, path) for path in sources]
    nodes = felice_store.read(disk, sources[0])
    cluster_id = znodes.cluster_id_of(nodes)
    for one in contents:
        if (one.meta.cluster_id, one.meta.node_id) != (cluster_id, contents[0].meta.node_id):
            raise MigrationError(f"{one.path} belongs to another broker than {sources[0]}")
    state = znodes.state_of(nodes)
    ids = {topic.name: topic.topic_id for topic in state.topics.values()}
    partitions, left = [], []
    for log in (partition for other in contents for partition in other.partitions):
        topic_id = ids.get(log.key[0])
        if topic_id is not None and log.topic_id in (topic_id, None):
            partitions.append(log)
        else:
            left.append(Left("directory", str(log.path), "no topic of the metadata has this name and id"))
    left += [
        Left("directory", str(path), "it was set aside") for other in contents for path in other.set_aside
    ]
    found = {log.key for log in partitions}
    wanted = {
        (topic.name, number)
        for topic in state.topics.values()
        for number, partition in topic.partitions.items()
        if contents[0].meta.node_id in partition.replicas
    }
    if missing := sorted(wanted - found):
        raise MigrationError(
            f"{len(missing)} partitions have no log in the directories that were given, such as "
            "{}-{}; name all entries of log.dirs".format(*missing[0])
        )
    return ExportSurvey(contents, partitions, state, left)


def plan_of(found: ExportSurvey, new_uuid: Callable[[], UUID], done: Transferred | None = None) -> ExportPlan:
    """The records for Kafka. They name the new directories only if the copy is `done`."""
    unassigned = dict.fromkeys((one.key for one in found.partitions), bootstrap.UNASSIGNED)
    directory_ids = unassigned if done is None else done.directory_ids
    return bootstrap.plan_export(found.state, found.node_id, directory_ids, new_uuid)


def carry_out(
    disk: Disk,
    found: ExportSurvey,
    targets: Sequence[Path],
    new_uuid: Callable[[], UUID],
    on_bytes: Callable[[int], object],
    now_ms: int,
    *,
    may_link: bool,
    check: Callable[[], None],
) -> Transferred:
    """Makes the new directories. Raises `MigrationError`, also what `check` raises before the result counts."""

    def complete(directories: Sequence[Path], done: Transferred) -> None:
        snapshot = encode_snapshot(plan_of(found, new_uuid, done).records, now_ms)
        for path in directories:
            disk.write_atomic(path / BOOTSTRAP_FILE, snapshot)
            disk.restrict(path / BOOTSTRAP_FILE)

    return transfer.carry_out(
        disk, found, targets, new_uuid, on_bytes, complete, may_link=may_link, check=check
    )
