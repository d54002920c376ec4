"""Replicas that move between log directories while the log under them changes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from felice.controller.topic_plans import NewTopic
from felice.env import Environment
from felice.log.answers import AppendOrigin
from felice.log.log import Log
from felice.metadata.memory import MemoryEnsemble
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.server.broker import Broker
from felice.server.disks.replica_moves import ReplicaMoves
from felice.server.membership.store_sources import SharedSource
from felice.server.process.local_cluster import known_config, local_settings
from waiting import LIMIT_S, let_run, until

THREADS = 2


def append(log: Log, epoch: int, *values: bytes) -> None:
    for value in values:
        batch = bytearray(build_batch([Record(0, 1_000, b"k", value)]))
        log.append(batch, leader_epoch=epoch, now_ms=1_000, origin=AppendOrigin.CLIENT)


def content(log: Log) -> bytes:
    found = log.read(0, 1 << 20, end_offset=log.log_end_offset)
    return found.read() if found is not None else b""


def make_broker(*directories: Path, **options: str) -> Broker:
    properties = {
        **local_settings(1),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, directories)),
        "node.id": "1",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    return Broker(
        known_config(properties),
        Environment.system(),
        store_source=SharedSource(MemoryEnsemble().connect),
    )


def test_records_truncated_while_the_copy_was_synced_are_not_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens if the replica follows another leader meanwhile, whose records replace the truncated ones."""
    one, two = tmp_path / "one", tmp_path / "two"

    class Overtaken(ReplicaMoves):
        overtaken: Log | None = None

        async def _flush_copy(self, future: Log) -> None:
            await super()._flush_copy(future)
            log, self.overtaken = self.overtaken, None
            if log is not None:
                log.truncate_to(1)
                append(log, 5, b"new-1", b"new-2")

    async def scenario() -> None:
        broker = make_broker(one, two)
        monkeypatch.setattr("felice.server.composition.ReplicaMoves", Overtaken)
        await broker.start()
        try:
            moves = broker.services.disks.replica_moves
            assert isinstance(moves, Overtaken)
            await broker.services.changes.cluster.create_topic(NewTopic("t", assignment={0: (1,)}))
            partition = broker.services.partitions.find("t", 0)
            append(partition.log, 0, b"old-0", b"old-1", b"old-2")
            home = partition.log.directory.parent
            target = two if home == one else one
            moves.overtaken = partition.log
            moves.begin("t", 0, str(target))
            while moves._moves:
                await asyncio.sleep(0.005)
            assert partition.log.directory.parent == target
            assert partition.log.log_end_offset == 3
            served = content(partition.log)
            assert b"new-1" in served
            assert b"old-1" not in served
        finally:
            await broker.stop(hand_over=False)

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def test_a_copy_of_a_replica_that_starts_inside_a_batch_has_the_whole_batch(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        broker = make_broker(one, two)
        await broker.start()
        try:
            await broker.services.changes.cluster.create_topic(NewTopic("t", assignment={0: (1,)}))
            partition = broker.services.partitions.find("t", 0)
            batch = build_batch([Record(0, 1_000, b"k", b"v%d" % number) for number in range(5)])
            for _ in range(2):
                partition.append(bytearray(batch), required_acks=1, now_ms=1_000)
            partition.delete_records_before(7)
            before = partition.log.read_bytes(7, 1 << 20, end_offset=10)
            home = partition.log.directory.parent
            target = two if home == one else one
            broker.services.disks.replica_moves.begin("t", 0, str(target))
            await until(lambda: not broker.services.disks.replica_moves._moves)
            assert partition.log.directory.parent == target
            assert (partition.log_start_offset, partition.log_end_offset) == (7, 10)
            assert partition.log.read_bytes(7, 1 << 20, end_offset=10) == before
        finally:
            await broker.stop(hand_over=False)

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def test_throttled_moves_leave_the_threads_to_others(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS))
        broker = make_broker(one, two, replica_alter_log_dirs_io_max_bytes_per_second="1")
        await broker.start()
        try:
            topic = NewTopic("t", assignment=dict.fromkeys(range(THREADS), (1,)))
            await broker.services.changes.cluster.create_topic(topic)
            moves = broker.services.disks.replica_moves
            for number in range(THREADS):
                log = broker.services.partitions.find("t", number).log
                append(log, 0, b"v" * 1_000)
                moves.begin("t", number, str(two if log.directory.parent == one else one))
            await let_run()
            await asyncio.wait_for(loop.run_in_executor(None, int), LIMIT_S)
            assert len(moves._moves) == THREADS
        finally:
            await broker.stop(hand_over=False)

    asyncio.run(scenario())


def test_so_many_moves_read_at_once_as_there_are_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    reading = most = 0

    async def scenario() -> None:
        nonlocal reading, most
        broker = make_broker(one, two)
        await broker.start()
        try:
            topic = NewTopic("t", assignment=dict.fromkeys(range(6), (1,)))
            await broker.services.changes.cluster.create_topic(topic)
            moves = broker.services.disks.replica_moves
            flush = moves._flush_copy

            async def counted(future: Log) -> None:
                nonlocal reading, most
                reading += 1
                most = max(most, reading)
                await let_run()
                await flush(future)
                reading -= 1

            moves._flush_copy = counted  # type: ignore[method-assign]
            for number in range(6):
                log = broker.services.partitions.find("t", number).log
                append(log, 0, b"v")
                moves.begin("t", number, str(two if log.directory.parent == one else one))
            await until(lambda: not moves._moves)
        finally:
            await broker.stop(hand_over=False)

    asyncio.run(scenario())
    assert most == 2
