"""Brokers that each have a replica of one partition, their shared store and its controller, driven by commands.

    brokers 1 2 3 [min_isr=2] [lag=30000] [leader=1]   all replicas are in sync
    produce N VALUE ... [acks=all]           one batch for each value, to broker N; the response appears later. The
                                             batch of the value a+b has two records
    fetch F [from=L]                         one Fetch of follower F to the leader that it knows
    ask F [from=L] | take F                  the request, then the response; `post F` delays the request until `ask F`
    catchup F                                fetches until nothing changes
    elect N [isr=1,2]                        the controller: N leads under the next epoch
    isr 1 2                                  the controller: another ISR, same epoch
    crash N [lost=K]                         its process dies; the last K batches were not on its disk
    wipe N                                   while it is down: its disk is replaced by an empty one
    restart N                                starts and registers again, with the offsets of the checkpoints
    save N                                   writes the checkpoints of N's high watermark and log start
    roll N                                   N begins a segment, and deletes those below its log start
    full N | room N                          N's disk has no room for records, or has it again
    deaf N | hear N                          N sees no changes of the store, or sees all of them now
    stall N | flow N                         N's writes to the store wait
    tick N                                   N removes ISR members that lag
    advance MS    show    read N OFFSET    latest N    end N EPOCH [current=E]    trim N OFFSET    settle

The trace shows the records of a log as value/epoch. The commands use the real objects of a partition; the scenario
provides disk, network and time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import shlex
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

from felice.config import TopicConfig
from felice.env import SystemDisk
from felice.log.log import Log
from felice.metadata import ClusterImage, SetData, layout
from felice.metadata.layout import BrokerNode, Endpoint, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError
from felice.records.batch import iter_batches
from felice.records.builder import BatchBuilder
from felice.records.reader import read_batch
from felice.replication.dependencies import PartitionDependencies
from felice.replication.fetched import FetchedRecords
from felice.replication.follower import FetchPosition
from felice.replication.isr import IsrWriter
from felice.replication.partition import ACKS_ALL, Partition

TOPIC, TOPIC_ID = "t", UUID(int=5)
WALL_MS = 1_700_000_000_000


class ScenarioClock:
    """A clock that the scenario sets."""

    def __init__(self) -> None:
        self.elapsed_ms = 1_000_000

    def now_ms(self) -> int:
        return WALL_MS + self.elapsed_ms

    def monotonic(self) -> float:
        return self.elapsed_ms / 1000


class FullDisk(SystemDisk):
    """The machine's disk. While `is_full`, no record can be written."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> Any:
        return FullFile(super().open(path, create=create, read_only=read_only), self)


class FullFile:
    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file = file
        self._disk = disk

    def pwrite(self, data: Any, position: int) -> Any:
        if self._disk.is_full and self._file.path.suffix == ".log":
            raise OSError(errno.ENOSPC, "no room")
        return self._file.pwrite(data, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class StallingStore:
    """A session whose writes wait while the scenario stalls them."""

    def __init__(self, store: MemoryStore) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._store = store

    async def multi(self, operations: Any) -> Any:
        await self.flowing.wait()
        return await self._store.multi(operations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Replica:
    """One broker, reduced to one partition."""

    def __init__(self, world: ReplicationWorld, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.epoch = -1
        self.saved_watermark = self.saved_start = 0
        self.disk = FullDisk()
        self.is_deaf = False
        self.image = ClusterImage()
        self.posted: tuple[FetchPosition, int] | None = None
        self.answer: tuple[int, int, FetchedRecords | ApiError, bytes] | None = None
        self.directory = world.path / str(broker_id)
        self.directory.mkdir()
        self.log = self._open_log()
        self.partition: Partition | None = None

    def _open_log(self) -> Log:
        return Log.open(
            self.disk,
            self.world.clock,
            self.directory,
            (TOPIC, 0),
            self.world.config,
            log_start_offset=self.saved_start,
            clean_shutdown=False,
        )

    def wipe(self) -> None:
        """Replaces the disk by an empty one."""
        assert self.partition is None, f"broker {self.broker_id} runs"
        self.log.close(clean=False)
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.saved_watermark = self.saved_start = 0
        self.log = self._open_log()

    async def start(self) -> None:
        world = self.world
        self.session = world.ensemble.connect()
        self.store = StallingStore(self.session)
        self.writer = IsrWriter(self.store)  # type: ignore[arg-type]
        endpoint = Endpoint("PLAINTEXT", "h", 9092)
        node = BrokerNode((endpoint,), {"PLAINTEXT": "PLAINTEXT"}, None, 0)
        path = layout.broker_path(self.broker_id)
        await self.session.create(path, layout.encode_broker(node), ephemeral=True)
        self.epoch = (await self.session.get(path)).created_zxid
        dependencies = PartitionDependencies(
            world.clock, lambda: world.lag_ms, self._epoch_of, self.writer.propose
        )
        self.partition = Partition(self.broker_id, self.log, TOPIC_ID, dependencies, self.saved_watermark)
        self.watcher = Watcher(self.session, self._on_image)
        self.image = ClusterImage()
        await self.watcher.start()

    def _epoch_of(self, broker_id: int) -> int | None:
        known = self.image.brokers.get(broker_id)
        return known.epoch if known is not None else None

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if not self.is_deaf:
            self.follow(new)

    def follow(self, image: ClusterImage) -> None:
        self.image = image
        known = image.partition(TOPIC, 0)
        if self.partition is not None and known is not None and known.partition_epoch >= 0:
            self.partition.update_role(known)

    async def crash(self, lost: int) -> None:
        assert self.partition is not None
        self.writer.stop()
        await self.watcher.stop()
        self.partition.close()
        self.partition = None
        # A delayed request may still arrive; a response finds no follower.
        self.answer = None
        if lost:
            starts = [header.base_offset for header, _ in batches_of(self.log)]
            self.log.truncate_to(starts[-lost])
        self.log.close(clean=False)
        self.log = self._open_log()
        await self.session.close()


class ReplicationWorld:
    """Executes the commands, one line after the other. `execute` returns the trace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ScenarioClock()
        self.config = TopicConfig()
        self.lag_ms = 30_000
        self.replicas: dict[int, Replica] = {}
        self.trace: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._answers: set[asyncio.Task[None]] = set()
        self._logging = TraceHandler(self)
        logging.getLogger("felice.replication").addHandler(self._logging)

    def close(self) -> None:
        logging.getLogger("felice.replication").removeHandler(self._logging)
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def execute(self, line: str) -> list[str]:
        self.trace = []
        command, *words = shlex.split(line)
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self._loop.run_until_complete(self._act(getattr(self, "do_" + command)(names, options)))
        return self.trace

    async def _act(self, command: Coroutine[Any, Any, None]) -> None:
        try:
            await command
        except ApiError as error:
            self.say(error.code.name)
        await settle()

    def say(self, text: str) -> None:
        self.trace.append(text)

    def _partition(self, name: str) -> Partition:
        partition = self.replicas[int(name)].partition
        assert partition is not None, f"broker {name} is down"
        return partition

    # Commands

    async def do_brokers(self, names: list[str], options: dict[str, str]) -> None:
        self.lag_ms = int(options.get("lag", self.lag_ms))
        self.config = TopicConfig(min_insync_replicas=int(options.get("min_isr", 1)))
        self.ensemble = MemoryEnsemble()
        self.cluster_admin = self.ensemble.connect()
        for path in layout.PERSISTENT_PATHS:
            await self.cluster_admin.create(path)
        ids = tuple(int(name) for name in names)
        topic = TopicNode(TOPIC_ID, {0: ids}, {}, {})
        await self.cluster_admin.create(layout.topic_path(TOPIC), layout.encode_topic(topic))
        await self.cluster_admin.create(layout.partitions_path(TOPIC))
        await self.cluster_admin.create(layout.partition_path(TOPIC, 0))
        state = StateNode(int(options.get("leader", ids[0])), 0, 1, ids)
        await self.cluster_admin.create(layout.state_path(TOPIC, 0), layout.encode_state(state))
        for broker_id in ids:
            self.replicas[broker_id] = Replica(self, broker_id)
            await self.replicas[broker_id].start()

    async def do_produce(self, names: list[str], options: dict[str, str]) -> None:
        partition = self._partition(names[0])
        acks = ACKS_ALL if options.get("acks", "all") == "all" else int(options["acks"])
        for value in names[1:]:
            builder = BatchBuilder()
            for record in value.split("+"):
                builder.append(self.clock.now_ms(), None, record.encode())
            try:
                info = partition.append(
                    bytearray(builder.build()), required_acks=acks, now_ms=self.clock.now_ms()
                )
            except ApiError as error:
                self.say(f"{names[0]}: {value} refused {error.code.name}")
                continue
            self.say(f"{names[0]}: {value} at {info.base_offset}")
            task = self._loop.create_task(self._answer(value, partition, info, acks))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, value: str, partition: Partition, info: Any, acks: int) -> None:
        try:
            await partition.wait_acknowledged(info, acks, 3600)
        except ApiError as error:
            self.say(f"{value}: {error.code.name}")
        else:
            self.say(f"{value}: acknowledged")

    async def do_fetch(self, names: list[str], options: dict[str, str]) -> None:
        await self.do_ask(names, options)
        await self.do_take(names, options)

    async def do_catchup(self, names: list[str], options: dict[str, str]) -> None:
        partition = self._partition(names[0])
        while True:
            before = (partition.log_end_offset, partition.high_watermark, list(partition.log.epochs.entries))
            await self.do_fetch(names, options)
            if before == (
                partition.log_end_offset,
                partition.high_watermark,
                list(partition.log.epochs.entries),
            ):
                return

    async def do_post(self, names: list[str], options: dict[str, str]) -> None:
        replica = self.replicas[int(names[0])]
        replica.posted = self._partition(names[0]).next_fetch(), replica.epoch

    async def do_ask(self, names: list[str], options: dict[str, str]) -> None:
        replica, asker = self.replicas[int(names[0])], self._partition(names[0])
        position, broker_epoch = replica.posted or (asker.next_fetch(), replica.epoch)
        replica.posted = None
        leader = self._partition(options.get("from", str(asker.leader_id)))
        epoch = position.current_leader_epoch
        try:
            leader.on_follower_fetch(
                replica.broker_id,
                position.offset,
                log_start_offset=position.log_start_offset,
                broker_epoch=broker_epoch,
                current_leader_epoch=epoch,
                last_fetched_epoch=position.last_fetched_epoch,
            )
            found = leader.fetch(
                position.offset,
                1 << 20,
                replica_id=replica.broker_id,
                current_leader_epoch=epoch,
                last_fetched_epoch=position.last_fetched_epoch,
            )
        except ApiError as error:
            self.say(f"{names[0]} asked from {position.offset}: {error.code.name}")
            replica.answer = broker_epoch, epoch, error, b""
            return
        records = found.records.read() if found.records else b""
        replica.answer = broker_epoch, epoch, found, records
        outcome = f"{len(list(iter_batches(records)))} batches, watermark {found.high_watermark}"
        if found.divergence:
            outcome = f"diverged, epoch {found.divergence.epoch} ends at {found.divergence.end_offset}"
        self.say(
            f"{names[0]} asked from {position.offset} after epoch {position.last_fetched_epoch}: {outcome}"
        )

    async def do_take(self, names: list[str], options: dict[str, str]) -> None:
        replica, partition = self.replicas[int(names[0])], self._partition(names[0])
        assert replica.answer is not None
        asked_as, epoch, found, records = replica.answer
        replica.answer = None
        if asked_as != replica.epoch:
            self.say(f"{names[0]}: who asked that is dead")
        elif epoch != partition.leader_epoch or partition.leader is not None:
            self.say(f"{names[0]}: too late, epoch {epoch} is over")
        elif isinstance(found, ApiError):
            if found.code.name == "OFFSET_OUT_OF_RANGE":
                leader = self._partition(options.get("from", str(partition.leader_id)))
                partition.follow_out_of_range(leader.log_start_offset, leader.log_end_offset)
        elif found.divergence is not None:
            partition.follow_divergence(found.divergence.epoch, found.divergence.end_offset)
        else:
            partition.append_as_follower(
                bytearray(records),
                high_watermark=found.high_watermark,
                log_start_offset=found.log_start_offset,
                now_ms=self.clock.now_ms(),
            )

    async def do_elect(self, names: list[str], options: dict[str, str]) -> None:
        node = await self.cluster_admin.get(layout.state_path(TOPIC, 0))
        old = layout.decode_state(node.data)
        isr = tuple(int(name) for name in options.get("isr", names[0]).split(","))
        await self._write_state(StateNode(int(names[0]), old.leader_epoch + 1, 1, isr), node.version)

    async def do_isr(self, names: list[str], options: dict[str, str]) -> None:
        node = await self.cluster_admin.get(layout.state_path(TOPIC, 0))
        old = layout.decode_state(node.data)
        isr = tuple(int(name) for name in names)
        await self._write_state(StateNode(old.leader, old.leader_epoch, 1, isr), node.version)

    async def _write_state(self, state: StateNode, version: int) -> None:
        path = layout.state_path(TOPIC, 0)
        await self.cluster_admin.multi([SetData(path, layout.encode_state(state), version)])

    async def do_crash(self, names: list[str], options: dict[str, str]) -> None:
        await self.replicas[int(names[0])].crash(int(options.get("lost", 0)))

    async def do_restart(self, names: list[str], options: dict[str, str]) -> None:
        await self.replicas[int(names[0])].start()

    async def do_save(self, names: list[str], options: dict[str, str]) -> None:
        replica, partition = self.replicas[int(names[0])], self._partition(names[0])
        replica.saved_watermark, replica.saved_start = partition.high_watermark, partition.log_start_offset

    async def do_wipe(self, names: list[str], options: dict[str, str]) -> None:
        self.replicas[int(names[0])].wipe()

    async def do_roll(self, names: list[str], options: dict[str, str]) -> None:
        partition = self._partition(names[0])
        partition.log.roll()
        partition.log.apply_retention(self.clock.now_ms(), partition.high_watermark)

    async def do_full(self, names: list[str], options: dict[str, str]) -> None:
        self.replicas[int(names[0])].disk.is_full = True

    async def do_room(self, names: list[str], options: dict[str, str]) -> None:
        self.replicas[int(names[0])].disk.is_full = False

    async def do_deaf(self, names: list[str], options: dict[str, str]) -> None:
        self.replicas[int(names[0])].is_deaf = True

    async def do_hear(self, names: list[str], options: dict[str, str]) -> None:
        replica = self.replicas[int(names[0])]
        replica.is_deaf = False
        replica.follow(replica.watcher.image)

    async def do_stall(self, names: list[str], options: dict[str, str]) -> None:
        self.replicas[int(names[0])].store.flowing.clear()

    async def do_flow(self, names: list[str], options: dict[str, str]) -> None:
        self.replicas[int(names[0])].store.flowing.set()

    async def do_tick(self, names: list[str], options: dict[str, str]) -> None:
        self._partition(names[0]).shrink_isr()

    async def do_advance(self, names: list[str], options: dict[str, str]) -> None:
        self.clock.elapsed_ms += int(names[0])

    async def do_settle(self, names: list[str], options: dict[str, str]) -> None:
        await settle()

    async def do_show(self, names: list[str], options: dict[str, str]) -> None:
        node = await self.cluster_admin.get(layout.state_path(TOPIC, 0))
        state = layout.decode_state(node.data)
        isr = ",".join(map(str, state.isr))
        self.say(f"store: leader {state.leader} epoch {state.leader_epoch} isr {isr} version {node.version}")
        for broker_id, replica in self.replicas.items():
            partition = replica.partition
            if partition is None:
                self.say(f"{broker_id}: down      {contents(replica.log)}")
                continue
            role = "leads" if partition.is_leader else "follows"
            waits = ""
            if partition.leader is not None and partition.leader.maximal_isr != partition.isr:
                waits = f" maximal {','.join(map(str, partition.leader.maximal_isr))}"
            place = f"{role} {partition.leader_epoch} watermark {partition.high_watermark}{waits}"
            self.say(f"{broker_id}: {place} {contents(replica.log)}")

    async def do_read(self, names: list[str], options: dict[str, str]) -> None:
        found = self._partition(names[0]).fetch(int(names[1]), 1 << 20, from_any_replica=True)
        records = found.records.read() if found.records else b""
        values = [
            record.value.decode()
            for header in iter_batches(records)
            for record in read_batch(records, header)
        ]  # type: ignore[union-attr]
        self.say(f"{' '.join(values) or 'nothing'}, watermark {found.high_watermark}")

    async def do_latest(self, names: list[str], options: dict[str, str]) -> None:
        partition = self._partition(names[0])
        partition.check_latest_is_known()
        self.say(str(partition.high_watermark))

    async def do_end(self, names: list[str], options: dict[str, str]) -> None:
        found = self._partition(names[0]).end_offset_for_epoch(int(names[1]), int(options.get("current", -1)))
        self.say(f"epoch {found.epoch} ends at {found.end_offset}")

    async def do_trim(self, names: list[str], options: dict[str, str]) -> None:
        partition = self._partition(names[0])
        partition.delete_records_before(int(names[1]))
        self.say(f"low watermark {partition.low_watermark}")


class TraceHandler(logging.Handler):
    """Warnings that a broker logs for operators are part of the trace."""

    def __init__(self, world: ReplicationWorld) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.say(f"warning: {record.getMessage()}")


async def settle() -> None:
    """Waits until every broker has seen every change."""
    for _ in range(60):
        await asyncio.sleep(0)


def batches_of(log: Log) -> list[tuple[Any, str]]:
    found = []
    offset = log.log_start_offset
    while data := log.read_bytes(offset, 1 << 20, end_offset=log.log_end_offset):
        for header in iter_batches(data):
            values = [(record.value or b"").decode() for record in read_batch(data, header)]
            found.append((header, "+".join(values)))
            offset = header.next_offset
    return found


def contents(log: Log) -> str:
    found = " ".join(f"{text}/{header.leader_epoch}" for header, text in batches_of(log))
    return f"from {log.log_start_offset}: {found or 'nothing'}"
