"""The cleaner of a broker whose disk is full."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from conformance.wire import Wire
from felice.env import Environment, SystemClock, SystemNetwork
from felice.server.process.embedded import EmbeddedBroker
from unit.log.logs import FailingDisk
from unit.server.test_embedded_broker import create, produce
from waiting import LIMIT_S, wait_until


def test_a_full_disk_is_no_fault_of_the_partition(tmp_path: Path) -> None:
    disk = FailingDisk()
    env = Environment(SystemClock(), disk, SystemNetwork(), random.Random(1))
    with EmbeddedBroker(tmp_path / "data", env=env, log_cleaner_backoff_ms=20) as running:
        broker = running.broker
        with Wire(running.bootstrap) as wire:
            create(wire, "t", cleanup_policy="compact")
            for value in (b"1", b"2"):
                produce(wire, "t", value)
        disk.suffix = ".cleaned"
        disk.failing.add("write")
        partition = broker.services.partitions.get("t", 0)
        assert partition is not None

        async def roll() -> None:
            partition.log.roll()

        asyncio.run_coroutine_threadsafe(roll(), running._loop).result(LIMIT_S)
        time.sleep(0.3)
        status = broker.cleaner.status
        assert (status.passes, status.uncleanable, partition.log.offline_reason) == (0, {}, None)
        disk.failing.clear()
        wait_until(lambda: status.passes)
        assert status.last["t-0"].records_kept == 1
        # What a deleted topic left behind would stay for as long as the broker runs.
        running.run(broker.services.changes.cluster.delete_topic("t"))
        wait_until(lambda: not status.last)
