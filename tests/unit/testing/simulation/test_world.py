"""A whole broker and real clients in a simulation: the same seed gives the same run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from felice.client.admin.model import NewTopic
from felice.client.aio import Admin, Consumer, Producer
from felice.client.model import TopicPartition
from felice.env import Environment
from felice.server.startup import StartupError
from felice.testing.simulation.world import BrokerMachine, ProcessEnded, World

RECORDS = 30


async def write_and_read(env: Environment, bootstrap: str) -> list[bytes]:
    where = {"bootstrap.servers": bootstrap}
    async with Admin(where, env=env) as admin:
        await admin.create_topics([NewTopic("events", 2, 1)])
    async with Producer(where, env=env) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait("events", b"%d" % number, partition=number % 2)
    values: list[bytes] = []
    group = {"group.id": "readers", "auto.offset.reset": "earliest"}
    async with Consumer({**where, **group}, env=env) as consumer:
        await consumer.subscribe(["events"])
        while len(values) < RECORDS:
            message = await consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
    return sorted(values)


def power_failure(seed: int) -> World:
    """The power fails while a client writes; every acknowledged record is read afterwards."""
    world = World(seed, limit_s=600)
    broker = world.broker("b1", {"log.flush.interval.messages": "1"})

    async def main() -> list[bytes]:
        await broker.start()
        client = world.machine("c1").boot()
        reading = asyncio.ensure_future(client.run(write_and_read(client.env, broker.bootstrap)))
        await asyncio.sleep(world.random("pauses").uniform(0.02, 0.1))
        broker.cut_power()
        await asyncio.sleep(0.2)
        await broker.start()
        values = await reading
        await broker.stop()
        return values

    assert world.run(main()) == sorted(b"%d" % number for number in range(RECORDS))
    assert world.errors == []
    return world


def test_clients_continue_after_a_power_failure() -> None:
    fingerprints = {power_failure(seed).fingerprint for seed in range(6)}
    assert len(fingerprints) == 6


def test_the_same_seed_leaves_the_same_trace() -> None:
    first, again = power_failure(5), power_failure(5)
    assert first.trace == again.trace


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_trace_does_not_depend_on_the_process(hash_seed: str) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_world; "
        "print(test_world.power_failure(5).fingerprint)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.strip() == power_failure(5).fingerprint


def test_clocks_of_two_machines_differ_and_jump_only_when_set() -> None:
    world = World(1)
    ahead, other = world.machine("ahead", skew_ms=5_000).clock, world.machine("other", skew_ms=0).clock
    assert ahead.now_ms() - other.now_ms() == 5_000
    assert ahead.monotonic() != other.monotonic()
    steady = ahead.monotonic()
    ahead.jump(-60_000)
    assert ahead.now_ms() - other.now_ms() == -55_000
    assert ahead.monotonic() == steady


def test_the_power_fails_in_the_middle_of_an_operation() -> None:
    def ends(operations: int) -> tuple[bool, list[str]]:
        world = World(3)
        broker = world.broker("b1", {})

        async def start_twice() -> bool:
            broker.cut_power_within(operations)
            try:
                await broker.start()
            except ProcessEnded:
                await broker.start()
                return True
            return False

        return world.run(start_twice()), world.errors

    outcomes = [ends(operations) for operations in range(1, 40, 3)]
    assert sum(interrupted for interrupted, _ in outcomes) > 5
    assert [errors for _, errors in outcomes if errors] == []


def test_a_broken_invariant_is_an_anomaly_and_its_records_are_not_served() -> None:
    world = World(5, limit_s=600)
    broker = world.broker("b1", {})

    async def read_both(env: Environment) -> dict[int, list[bytes]]:
        values: dict[int, list[bytes]] = {0: [], 1: []}
        async with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"}, env=env) as consumer:
            consumer.assign([TopicPartition("events", number, 0) for number in values])
            left = 10  # polls after the last record
            while left:
                message = await consumer.poll(0.5)
                left -= len(values[1]) == RECORDS // 2
                if message is not None and message.error() is None:
                    values[message.partition() or 0].append(message.value() or b"")
        return values

    async def main() -> dict[int, list[bytes]]:
        running = await broker.start()
        client = world.machine("c1").boot()
        await client.run(write_and_read(client.env, broker.bootstrap))
        partition = running.services.partitions.find("events", 0)
        partition.high_watermark = partition.log_end_offset + 1
        return await client.run(read_both(client.env))

    values = world.run(main())
    assert (values[0], len(values[1])) == ([], RECORDS // 2)
    (error,) = world.errors
    assert error.startswith("b1#1: an invariant is broken") and ": R1: events-0: " in error


def test_a_second_process_of_a_machine_finds_its_disk_locked_only_while_the_first_lives() -> None:
    world = World(1)
    first = world.broker("b1", {})

    async def main() -> None:
        await first.start()
        rival = BrokerMachine(world, "b2", 0, {}, 1)
        rival.disk = first.disk
        with pytest.raises(StartupError, match="in use by another broker"):
            await rival.start()
        rival.kill()
        assert first.is_running

    world.run(main())


def test_store_and_log_directory_name_the_same_cluster_after_a_power_failure_during_the_first_start() -> None:
    """The store once synced its journal but not the journal's name: the next start found a log of another cluster."""
    for seed in range(8):
        world = World(seed)
        broker = world.broker("b1", {})

        async def main(broker: BrokerMachine = broker) -> None:
            await broker.start()
            broker.cut_power()
            await broker.start()

        world.run(main())
