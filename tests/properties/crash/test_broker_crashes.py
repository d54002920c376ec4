"""A whole broker has a power failure, or is killed, at any moment of its disk's history: acknowledged writes hold.

Checks: with `log.flush.interval.messages=1` every record, transaction, committed offset and topic that was
acknowledged exists after a power failure; without it, after a kill. Transactions exist wholly or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

import pytest

from felice.client.admin.model import NewTopic
from felice.client.aio import Admin, Producer
from felice.client.group.requests import CommittedOffset
from felice.env import Environment
from felice.records.aborted import AbortedTransactions
from felice.records.batch import iter_batches
from felice.records.reader import read_batch
from felice.replication.partition import Partition
from felice.server.broker import Broker
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import Moment, moments
from felice.testing.simulation.volume import Change
from felice.testing.simulation.world import BrokerMachine, World
from properties.crash.seeds import SEEDS

GROUP = "readers"
TOPICS = ("events", "sums")
TRANSACTION_TIMEOUT_MS = 10_000
INTERNAL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.offset.checkpoint.interval.ms": "300",
}
DURABLE = {**INTERNAL, "log.flush.interval.messages": "1"}
MOMENTS = 30


@dataclass
class EventLog:
    """Requests of clients and their acknowledgements, each with the number of changes that the disk had seen."""

    disk: SimDisk
    facts: list[tuple[int, str, int]] = field(default_factory=list)

    def note(self, fact: str, number: int) -> None:
        assert self.disk.journal is not None
        self.facts.append((len(self.disk.journal), fact, number))

    def numbers(self, fact: str, count: int) -> list[int]:
        """In order, the numbers that were acknowledged when the disk had seen `count` changes."""
        return [number for at, name, number in self.facts if name == fact and at <= count]


Work: TypeAlias = Callable[[Environment, str, EventLog, Random], Awaitable[None]]


async def work(env: Environment, bootstrap: str, event_log: EventLog, random: Random) -> None:
    where = {"bootstrap.servers": bootstrap}
    exactly = {
        **where,
        "transactional.id": "t",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    }
    async with (
        Admin(where, env=env) as admin,
        Producer({**where, "enable.idempotence": True}, env=env) as producer,
        Producer(exactly, env=env) as transactional,
    ):
        for number, topic in enumerate(TOPICS):
            await admin.create_topics([NewTopic(topic, 1, 1)])
            event_log.note("topic", number)
        await transactional.init_transactions()
        for number in range(24):
            await producer.send_and_wait("events", b"%d" % number + b"." * random.randrange(300), partition=0)
            event_log.note("event", number)
            event_log.note("asked to commit", number)
            await admin.alter_consumer_group_offsets(GROUP, {("events", 0): CommittedOffset(number)})
            event_log.note("committed", number)
            if number % 2:
                await transaction(transactional, event_log, number, commits=random.randrange(3) > 0)
            await asyncio.sleep(random.uniform(0, 0.1))


async def transaction(producer: Producer, event_log: EventLog, number: int, *, commits: bool) -> None:
    await producer.begin_transaction()
    for part in range(3):
        await producer.send_and_wait("sums", b"%d/%d" % (number, part), partition=0)
    if commits:
        event_log.note("ends", number)
        await producer.commit_transaction()
        event_log.note("ended", number)
    else:
        await producer.abort_transaction()


def history(
    seed: int, properties: dict[str, str], work: Work = work
) -> tuple[SimDisk, list[Change], EventLog]:
    world = World(seed, limit_s=600)
    machine = world.broker("b1", properties)
    start, machine.disk.journal = machine.disk.copy(), []
    event_log = EventLog(machine.disk)

    async def main() -> None:
        await machine.start()
        client = world.machine("c1").boot()
        await client.run(work(client.env, machine.bootstrap, event_log, world.random("work")))
        journal, machine.disk.journal = machine.disk.journal, None
        journals.append(journal or [])
        await machine.stop()

    journals: list[list[Change]] = []
    world.run(main())
    assert world.errors == []
    return start, journals[0], event_log


def check_after_crash(
    disk: SimDisk, seed: int, properties: dict[str, str], event_log: EventLog, before: int, after: int
) -> None:
    """Starts a broker on a disk that crashed after at least `before` and at most `after` changes, and checks it."""
    world = World(seed, limit_s=600)
    machine: BrokerMachine = world.broker("b1", properties)
    machine.disk = disk

    async def main() -> None:
        broker = await machine.start()
        client = world.machine("c1").boot()
        offsets = await client.run(committed(client.env, machine.bootstrap))
        # Decided transactions are completed at once, undecided ones when they time out.
        await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 + 20)
        check(broker, offsets)
        await machine.stop()

    def check(broker: Broker, offset: int) -> None:
        assert [directory.failed for directory in broker.directories] == [{}]
        acknowledged, attempted = (
            event_log.numbers("committed", before),
            event_log.numbers("asked to commit", after),
        )
        assert max(acknowledged, default=-1) <= offset <= max(attempted, default=-1)
        topics = {TOPICS[number] for number in event_log.numbers("topic", before)}
        assert topics <= broker.image.topics.keys()
        events = [int(value.split(b".")[0]) for value in values(broker.services.partitions.get("events", 0))]
        assert events == list(range(len(events)))
        assert len(events) >= len(event_log.numbers("event", before))
        found = values(broker.services.partitions.get("sums", 0))
        numbers = sorted({int(value.split(b"/")[0]) for value in found})
        assert found == [b"%d/%d" % (number, part) for number in numbers for part in range(3)]
        assert (
            set(event_log.numbers("ended", before)) <= set(numbers) <= set(event_log.numbers("ends", after))
        )

    world.run(main())
    assert world.errors == []


async def committed(env: Environment, bootstrap: str) -> int:
    async with Admin({"bootstrap.servers": bootstrap}, env=env) as admin:
        for found in await admin.list_consumer_group_offsets(GROUP):
            return int(found.offset)
    return -1


def values(partition: Partition | None) -> list[bytes]:
    """The records that a read_committed consumer gets. No transaction may be undecided."""
    if partition is None:
        return []
    assert partition.log.last_stable_offset(partition.high_watermark) == partition.log.log_end_offset
    found: list[bytes] = []
    offset = partition.log.log_start_offset
    while offset < partition.high_watermark:
        fetched = partition.fetch(offset, 5000, read_committed=True)
        assert fetched.records is not None
        data = fetched.records.read()
        aborted = AbortedTransactions([(a.producer_id, a.first_offset) for a in fetched.aborted or []])
        for header in iter_batches(data):
            if not aborted.hides(data, header) and not header.is_control:
                found += [record.value or b"" for record in read_batch(data, header)]
            offset = header.next_offset
    return found


def prove(
    seed: int, properties: dict[str, str], crashed: Callable[[Moment, Random], SimDisk], *, torn: bool
) -> None:
    start, journal, event_log = history(seed, properties)
    chance = Random(seed)
    chosen = {0, len(journal), *chance.sample(range(len(journal)), MOMENTS)}
    for moment in moments(start, journal, at=chosen):
        try:
            disk = crashed(moment, Random(f"{seed} {moment.count}"))
            before = moment.count - 1 if torn else moment.count
            check_after_crash(disk, seed, properties, event_log, before, moment.count)
        except BaseException as error:
            error.add_note(f"seed {seed}, moment {moment.count} of {len(journal)}: {str(moment.last)[:100]}")
            raise


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_writes_of_a_durable_broker_survive_a_power_failure(seed: int) -> None:
    prove(seed, DURABLE, lambda moment, random: moment.after_power_failure(random), torn=False)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_writes_of_any_broker_survive_a_kill(seed: int) -> None:
    prove(seed, INTERNAL, lambda moment, random: moment.after_kill(random), torn=True)
