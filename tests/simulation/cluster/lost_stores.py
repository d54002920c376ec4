"""A store that loses its data: emptied, without its newest topics, edited by hand, or suspended again and again.

Keeps true for the checkers: what was lost is restored after a while, exactly as it was. So every acknowledged record is
still promised, and every log with records must still be on its disk, unless a client requested otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from felice.log import directory_names, partition_metadata
from felice.metadata import layout
from felice.metadata.store import Create, Delete, Node
from felice.testing.simulation.ensemble import SimEnsemble
from felice.testing.simulation.world import BrokerMachine, World
from simulation.observations import PLAIN

_NO_SESSION = 0
Row = tuple[str, Node, int]
# A log on the disk of one broker: the broker, the topic's id, and the partition.
Held = tuple[int, UUID, int]


class LostStores:
    """Takes data from the store and gives it back."""

    def __init__(self, world: World, ensemble: SimEnsemble) -> None:
        self._world = world
        self._ensemble = ensemble
        self._is_lost = False

    @property
    def is_lost(self) -> bool:
        """Whether the store is without some of its data."""
        return self._is_lost

    def _rows(self) -> list[Row]:
        return [row for row in self._ensemble.tree.walk() if not row[1].ephemeral_owner]

    def empty(self, other_cluster: str | None) -> None:
        """Empty the store; another cluster may have begun there."""
        self._saved = self._ensemble.tree.zxid, self._rows()
        self._is_lost = True
        nodes: list[Row] = [("/", Node(b"", 0, 0, 0), 0)]
        if other_cluster is not None:
            roots = [path for path, _, _ in self._saved[1] if path in layout.PERSISTENT_PATHS]
            nodes += [(path, Node(b"", 0, 1, 1), 0) for path in roots]
            nodes.append((layout.CONTROLLER_EPOCH, Node(b"0", 0, 1, 1), 0))
            nodes.append((layout.CLUSTER_ID, Node(layout.encode_cluster_id(other_cluster), 0, 1, 1), 0))
        self._world.note(f"the store is emptied, and has cluster {other_cluster}")
        self._ensemble.restore(1, nodes)

    def fill(self) -> None:
        """Restore what `empty` removed."""
        self._world.note("the store is filled again")
        self._ensemble.restore(*self._saved)
        self._is_lost = False

    def take_topics(self, *, ends_sessions: bool) -> list[Row]:
        """Remove the nodes of the clients' topics: by hand, or because a snapshot is older than these topics."""
        inside = layout.topic_path(PLAIN)[: -len(PLAIN)]
        taken = [
            row for row in self._rows() if row[0].startswith(inside) and not row[0].startswith(f"{inside}__")
        ]
        self._world.note(f"{len(taken)} nodes of topics are removed, sessions end: {ends_sessions}")
        self._is_lost = True
        if ends_sessions:
            paths = {path for path, _, _ in taken}
            kept = [row for row in self._rows() if row[0] not in paths]
            self._ensemble.restore(self._ensemble.tree.zxid, kept)
        else:
            self._ensemble.multi([Delete(path) for path, _, _ in reversed(taken)], _NO_SESSION)
        return taken

    def give_topics(self, taken: list[Row], *, ends_sessions: bool) -> None:
        """Restore the nodes that `take_topics` removed."""
        self._world.note(f"{len(taken)} nodes of topics are restored")
        if ends_sessions:
            self._ensemble.restore(
                self._ensemble.tree.zxid, sorted([*self._rows(), *taken], key=lambda row: row[0])
            )
        else:
            self._ensemble.multi([Create(path, node.data) for path, node, _ in taken], _NO_SESSION)
        self._is_lost = False


class HeldLogs:
    """Which brokers held logs with records, and whether these logs are still on their disks."""

    def __init__(self, world: World, ensemble: SimEnsemble, brokers: dict[int, BrokerMachine]) -> None:
        self._world = world
        self._ensemble = ensemble
        self._brokers = brokers
        self._held: dict[Held, str] = {}

    def observe(self) -> None:
        """Note the logs with records of every running broker."""
        for number, machine in self._brokers.items():
            broker = machine.broker
            if not machine.is_running or broker is None or not broker.is_composed:
                continue
            for partition in broker.services.partitions:
                if partition.is_open and partition.log_end_offset > partition.log_start_offset:
                    held = number, partition.topic_id, partition.partition
                    self._held.setdefault(held, f"{partition.name} of broker {number}")

    def anomalies(self) -> list[str]:
        """Logs that disappeared although no client requested the deletion of the topic, or of this replica."""
        on_disk = {held for number, machine in self._brokers.items() for held in _on_disk(number, machine)}
        requested = set(self._requested())
        deleted = {topic_id for _, topic_id, partition in requested if partition < 0}
        return [
            f"deleted without a request: {name}"
            for held, name in self._held.items()
            if held not in on_disk and held not in requested and held[1] not in deleted
        ]

    def _requested(self) -> Iterator[Held]:
        """Replicas that a broker's write removed, and (0, id, -1) for each topic that a broker's write deleted.

        Read from the history of the store's nodes, not from deletion records: those are what is tested.
        """
        replicas: dict[tuple[UUID, int], set[int]] = {}
        for written in self._ensemble.history:
            parts = written.path.split("/")
            if written.data is None and len(parts) == 6 and parts[4] == "topic_id" and written.by:
                yield 0, layout.parse_topic_id_node(parts[5]).topic_id, -1
            if written.data is None or len(parts) != 4 or not written.path.startswith(f"{layout.TOPICS}/"):
                continue
            node = layout.decode_topic(written.data)
            if node.topic_id is None:
                continue
            for partition, assigned in node.partitions.items():
                before = replicas.setdefault((node.topic_id, partition), set())
                for removed in before - set(assigned) if written.by else ():
                    yield removed, node.topic_id, partition
                before.update(assigned)


def _on_disk(number: int, machine: BrokerMachine) -> Iterator[Held]:
    """The logs of one broker, also those that were set aside as strays."""
    disk = machine.disk
    before = disk.on_operation, disk._faults
    disk.on_operation, disk._faults = None, []
    try:
        log_dir = Path(machine.properties["log.dirs"])
        for name in disk.listdir(log_dir):
            stem = name.partition(".")[0] if name.endswith(directory_names.STRAY_SUFFIX) else name
            key = directory_names.partition_of(stem)
            topic_id = partition_metadata.read(disk, log_dir / name) if key is not None else None
            if key is not None and topic_id is not None:
                yield number, topic_id, key[1]
    finally:
        disk.on_operation, disk._faults = before
