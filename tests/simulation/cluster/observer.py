"""Observes all brokers of a simulated cluster at once and passes what it sees to the checkers of replicas."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from checkers.replicas import Batch, Replicas, Seen, State
from felice.metadata import layout
from felice.replication.partition import Partition
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.ensemble import SimEnsemble
from felice.testing.simulation.world import BrokerMachine, World

_HEADER = struct.Struct(">qiiBIhi")
_AT_MOST_BYTES = 1 << 20


class ClusterObserver:
    """Reads the replicas of every broker and the nodes of the store, without taking part in the cluster."""

    def __init__(self, world: World, ensemble: SimEnsemble, brokers: dict[int, BrokerMachine]) -> None:
        self.replicas = Replicas()
        self._world = world
        self._ensemble = ensemble
        self._brokers = brokers
        # The offset up to which each replica was read, in each incarnation of the replica.
        self._read_to: dict[tuple[int, int, str], int] = {}
        # The replica of each broker and partition. A replica that was moved away and came back is another
        # incarnation.
        self._known: dict[tuple[int, str], tuple[Partition, int]] = {}

    # Replicas

    def observe(self) -> None:
        """Check every replica of every running broker."""
        for number, machine in self._brokers.items():
            if machine.is_running:
                with _undisturbed(machine.disk):
                    for partition in self._partitions(machine):
                        if partition.is_open:
                            self._observe(number, partition)
                self._check_for_zombies(number, machine)

    def _check_for_zombies(self, number: int, machine: BrokerMachine) -> None:
        """Report a broker that still leads after its session timed out.

        A stopped process (SIGSTOP) is exempt: it sends nothing, and checks its clock before it does.
        """
        ended_s = self._ensemble.unheard.get(machine.name)
        if ended_s is None or machine.process is None or machine.process.is_stopped:
            return
        for partition in self._partitions(machine):
            if partition.is_leader:
                at_s = self._world.loop.time()
                self.replicas.report_zombie(at_s, _name(partition), number, partition.leader_epoch, ended_s)

    def _on_advance(self, number: int, partition: Partition) -> Callable[[], None]:
        def look() -> None:
            if partition.is_open:
                self.replicas.check_high_watermark(
                    self._world.loop.time(),
                    _name(partition),
                    number,
                    partition.high_watermark,
                    partition.log_end_offset,
                )

        return look

    def _partitions(self, machine: BrokerMachine) -> list[Partition]:
        broker = machine.broker
        if broker is None or not broker.is_composed:
            return []
        return list(broker.services.partitions)

    def _observe(self, number: int, partition: Partition) -> None:
        name = _name(partition)
        log, mark = partition.log, partition.high_watermark
        before, incarnation = self._known.get((number, name), (None, -1))
        if before is not partition:
            incarnation += 1
            partition.on_advance.add(self._on_advance(number, partition))
        self._known[number, name] = (partition, incarnation)
        key = (number, incarnation, name)
        read_to = min(self._read_to.get(key, log.log_start_offset), log.log_end_offset)
        batches: tuple[Batch, ...] = ()
        if mark > read_to and not log.config.is_compacted:
            batches = tuple(batches_of(partition, max(read_to, log.log_start_offset)))
            self._read_to[key] = mark
        self.replicas.check(
            Seen(
                self._world.loop.time(),
                name,
                number,
                incarnation,
                partition.leader_epoch,
                partition.is_leader,
                log.log_end_offset,
                mark,
                batches,
                log.log_start_offset,
            )
        )

    def check_isrs(self) -> None:
        """Check that every ISR member has everything below the high watermark."""
        for topic, node in self._topics():
            for number in node.partitions:
                state = self.state(topic, number)
                if state is None or state.leader not in self._brokers:
                    continue
                leader = self._find(self._brokers[state.leader], topic, number)
                if leader is None or not leader.is_leader or leader.leader_epoch != state.leader_epoch:
                    continue
                for member in state.isr:
                    found = self._find(self._brokers[member], topic, number)
                    if found is not None and found.is_open and found.log_end_offset < leader.high_watermark:
                        self.replicas.anomalies.append(
                            f"in sync without {topic}-{number} up to {leader.high_watermark}: broker {member} "
                            f"ends at {found.log_end_offset}, at {self._world.loop.time():.3f} s"
                        )

    def ends(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Log end offset and high watermark of every replica that the store names; (-1, -1) for a missing
        replica.
        """
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, node in self._topics():
            for number, replicas in node.partitions.items():
                found[f"{topic}-{number}"] = {
                    broker: self._ends_of(self._brokers[broker], topic, number) for broker in replicas
                }
        return found

    def _ends_of(self, machine: BrokerMachine, topic: str, number: int) -> tuple[int, int]:
        partition = self._find(machine, topic, number)
        return (-1, -1) if partition is None else (partition.log_end_offset, partition.high_watermark)

    def starts(self) -> dict[str, dict[int, tuple[int, Batch | None]]]:
        """Log start offset of every replica of a topic that is not compacted, and the first batch that it serves."""
        found: dict[str, dict[int, tuple[int, Batch | None]]] = {}
        for topic, node in self._topics():
            for number, replicas in node.partitions.items():
                for broker in replicas:
                    machine = self._brokers[broker]
                    partition = self._find(machine, topic, number)
                    if partition is None or partition.log.config.is_compacted:
                        continue
                    with _undisturbed(machine.disk):
                        start = partition.log_start_offset
                        first = next(batches_of(partition, start), None)
                        found.setdefault(f"{topic}-{number}", {})[broker] = start, first
        return found

    def _find(self, machine: BrokerMachine, topic: str, number: int) -> Partition | None:
        broker = machine.broker
        return (
            None
            if broker is None or not broker.is_composed
            else broker.services.partitions.get(topic, number)
        )

    # The store

    def _topics(self) -> list[tuple[str, layout.TopicNode]]:
        tree = self._ensemble.tree
        if tree.find(layout.TOPICS) is None:
            return []
        return [
            (name, layout.decode_topic(tree.get(layout.topic_path(name)).data))
            for name in tree.children(layout.TOPICS)
        ]

    def state(self, topic: str, number: int) -> layout.StateNode | None:
        """A partition's state node, None while it does not exist."""
        node = self._ensemble.tree.find(layout.state_path(topic, number))
        return None if node is None else layout.decode_state(node.data)

    def alive(self) -> set[int]:
        """The ids of the brokers that are registered in the store."""
        tree = self._ensemble.tree
        return (
            {int(name) for name in tree.children(layout.BROKER_IDS)}
            if tree.find(layout.BROKER_IDS)
            else set()
        )

    def in_sync_beside(self, broker: int) -> list[set[int]]:
        """For each partition that has the broker in its ISR: the other ISR members."""
        found = []
        for topic, node in self._topics():
            for number in node.partitions:
                state = self.state(topic, number)
                if state is not None and broker in state.isr:
                    found.append(set(state.isr) - {broker})
        return found

    def recovery_obstacle(self) -> str | None:
        """Why the cluster has not recovered, None if it has: all brokers alive, every ISR full, all
        replicas equal.
        """
        alive = self.alive()
        if len(alive) < len(self._brokers):
            return f"only {sorted(alive)} are alive"
        for topic, node in self._topics():
            for number, replicas in node.partitions.items():
                state = self.state(topic, number)
                if any(node.adding.values()) or any(node.removing.values()):
                    return f"{topic} is being reassigned"
                if state is None or state.leader not in alive or set(state.isr) != set(replicas):
                    return f"{topic}-{number} of {replicas} has {state}"
        for name, found in self.ends().items():
            if len({offset for both in found.values() for offset in both}) > 1:
                return f"replicas of {name} differ: {found}"
        return None

    def states(self) -> list[State]:
        """Every state of every partition that was ever written to the store, in order."""
        states, incarnations = [], dict[str, int]()
        for written in self._ensemble.history:
            parts = written.path.split("/")
            if len(parts) != 7 or parts[6] != "state":
                continue
            name = f"{parts[3]}-{parts[5]}"
            if written.data is None:
                incarnations[name] = incarnations.get(name, 0) + 1
                continue
            found = layout.decode_state(written.data)
            states.append(
                State(
                    written.at_s,
                    f"{name} ({incarnations.get(name, 0)})",
                    found.leader,
                    found.leader_epoch,
                    found.isr,
                    found.controller_epoch,
                    self._number_of(written.by),
                )
            )
        return states

    def _number_of(self, host: str) -> int:
        return next((number for number, machine in self._brokers.items() if machine.name == host), 0)

    # Acknowledgements

    def check_acknowledgement(self, topic: str, number: int, offset: int, min_isr: int) -> str | None:
        """Check an acknowledgement when the producer receives it: every ISR member has the record, and at
        least `min_isr` brokers have it. Returns the anomaly, or None.
        """
        state = self.state(topic, number)
        if state is None:
            return None
        holders = {broker for broker in self._brokers if self._has(broker, topic, number, offset)}
        what = f"{topic}-{number} offset {offset}"
        if lacking := set(state.isr) - holders:
            return f"acknowledged too early: {what}, and {sorted(lacking)} of {state.isr} lack it"
        if len(holders) < min_isr:
            return f"acknowledged too early: {what} is on {sorted(holders)} only"
        return None

    def _has(self, broker: int, topic: str, number: int, offset: int) -> bool:
        machine = self._brokers[broker]
        partition = self._find(machine, topic, number)
        if partition is None:
            # The broker is starting: its log is not open yet, so its contents are unknown.
            return True
        return partition.log_end_offset > offset


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.partition} {partition.topic_id.hex[:6]}"


def batches_of(partition: Partition, offset: int) -> Iterator[Batch]:
    """Every complete batch below the high watermark, from the batch that holds `offset`."""
    log = partition.log
    while offset < partition.high_watermark:
        data = log.read_bytes(offset, _AT_MOST_BYTES, end_offset=partition.high_watermark)
        position = 0
        while position + 61 <= len(data):
            base, length, epoch, _, checksum, _, delta = _HEADER.unpack_from(data, position)
            yield Batch(base, base + delta, epoch, checksum)
            offset = base + delta + 1
            position += 12 + length
        if not data:
            return


@contextlib.contextmanager
def _undisturbed(disk: SimDisk) -> Iterator[None]:
    """Read the disk without being counted as an operation of the machine, and without meeting its faults."""
    before = disk.on_operation, disk._faults
    disk.on_operation, disk._faults = None, []
    try:
        yield
    finally:
        disk.on_operation, disk._faults = before
