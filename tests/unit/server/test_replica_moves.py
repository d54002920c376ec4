"""Replicas that move between log directories while the log under them changes."""

from __future__ import annotations

import asyncio
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
from felice.server.local_cluster import known_config, local_settings
from felice.server.replica_moves import ReplicaMoves
from felice.server.store_sources import SharedSource


def append(log: Log, epoch: int, *values: bytes) -> None:
    for value in values:
        batch = bytearray(build_batch([Record(0, 1_000, b"k", value)]))
        log.append(batch, leader_epoch=epoch, now_ms=1_000, origin=AppendOrigin.CLIENT)


def content(log: Log) -> bytes:
    found = log.read(0, 1 << 20, end_offset=log.log_end_offset)
    return found.read() if found is not None else b""


def test_records_truncated_while_the_copy_was_synced_are_not_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another leader is followed meanwhile, and its records take the place of those that were cut."""
    one, two = tmp_path / "one", tmp_path / "two"
    properties = {
        **local_settings(1),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": f"{one},{two}",
        "node.id": "1",
    }

    class Overtaken(ReplicaMoves):
        overtaken: Log | None = None

        async def _flush_copy(self, future: Log) -> None:
            await super()._flush_copy(future)
            log, self.overtaken = self.overtaken, None
            if log is not None:
                log.truncate_to(1)
                append(log, 5, b"new-1", b"new-2")

    async def scenario() -> None:
        broker = Broker(
            known_config(properties),
            Environment.system(),
            store_source=SharedSource(MemoryEnsemble().connect),
        )
        monkeypatch.setattr("felice.server.composition.ReplicaMoves", Overtaken)
        await broker.start()
        try:
            moves = broker.services.replica_moves
            assert isinstance(moves, Overtaken)
            await broker.services.cluster_admin.create_topic(NewTopic("t", assignment={0: (1,)}))
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

    asyncio.run(asyncio.wait_for(scenario(), 20))
