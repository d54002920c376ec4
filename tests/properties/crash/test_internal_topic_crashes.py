"""Coordinators survive a crash at any moment while their internal topics roll and are compacted.

Checks: an offset whose commit was acknowledged exists, and no offset that was never committed. A transaction that
        was decided stays decided: its records and its offsets exist together, or neither. Its transactional id
        continues from there. Records that compaction removed from `__consumer_offsets` and `__transaction_state` are
        not needed.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from felice.client.admin.model import NewTopic
from felice.client.aio import Admin, Producer
from felice.client.group.requests import CommittedOffset
from felice.client.model import ConsumerGroupMetadata, TopicPartition
from felice.env import Environment
from felice.server.broker import Broker
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.replay import moments
from felice.testing.simulation.volume import Change, Make, Rename
from felice.testing.simulation.world import World
from properties.crash.seeds import SEEDS
from properties.crash.test_broker_crashes import DURABLE, EventLog, history, values

GROUP, COPIERS = "readers", "copiers"
IDS = ("t0", "t1")
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TRANSACTION_TIMEOUT_MS = 10_000
ROLLING = {
    **DURABLE,
    # A full index ends a segment, so segments are small; a segment is cleaned as soon as it is closed.
    "log.index.interval.bytes": "1",
    "log.index.size.max.bytes": "72",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.cleaner.io.buffer.size": "4096",
    "log.segment.delete.delay.ms": "200",
}
MOMENTS = 16


async def work(env: Environment, bootstrap: str, event_log: EventLog, random: Random) -> None:
    where = {"bootstrap.servers": bootstrap}
    async with Admin(where, env=env) as admin:
        await admin.create_topics([NewTopic("sums", 1, 1)])
        producers = [Producer({**where, **_identity(name)}, env=env) for name in IDS]
        for producer in producers:
            await producer.start()
            await producer.init_transactions()
        for number in range(40):
            event_log.note("asked to commit", number)
            await admin.alter_consumer_group_offsets(GROUP, {("sums", 0): CommittedOffset(number)})
            event_log.note("committed", number)
            if number % 2:
                await _transaction(
                    producers[number // 2 % 2], event_log, number, commits=random.randrange(3) > 0
                )
            await asyncio.sleep(random.uniform(0, 0.05))
        for producer in producers:
            await producer.close()


def _identity(transactional_id: str) -> dict[str, object]:
    return {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}


async def _transaction(producer: Producer, event_log: EventLog, number: int, *, commits: bool) -> None:
    """Writes two records and commits the number as an offset of the group of copiers."""
    await producer.begin_transaction()
    for part in range(2):
        await producer.send_and_wait("sums", b"%d/%d" % (number, part), partition=0)
    offsets = [TopicPartition("sums", 0, number)]
    await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(COPIERS), 30)
    if commits:
        event_log.note("ends", number)
        await producer.commit_transaction()
        event_log.note("ended", number)
    else:
        await producer.abort_transaction()


def internal_changes(journal: list[Change]) -> tuple[list[int], dict[str, int]]:
    """When names changed in the internal topics' directories, and segments created and cleaned in each."""
    directories: dict[int, str] = {}
    when: list[int] = []
    counts = {f"{topic} {what}": 0 for topic in (OFFSETS, TRANSACTIONS) for what in ("began", "cleaned")}
    for count, change in enumerate(journal, 1):
        if isinstance(change, Make) and change.is_dir:
            directories[change.node] = change.slot[1]
        if not isinstance(change, Make | Rename):
            continue
        directory, name = change.slot if isinstance(change, Make) else change.target
        topic = directories.get(directory, "").removesuffix("-0")
        if topic in (OFFSETS, TRANSACTIONS):
            when.append(count)
            counts[f"{topic} began"] += isinstance(change, Make) and name.endswith(".log")
            counts[f"{topic} cleaned"] += name.endswith(".log.swap")
    return when, counts


def check_after_crash(disk: SimDisk, seed: int, event_log: EventLog, before: int, after: int) -> None:
    world = World(seed, limit_s=600)
    machine = world.broker("b1", ROLLING)
    machine.disk = disk

    async def main() -> None:
        broker = await machine.start()
        client = world.machine("c1").boot()
        committed = (await client.run(_committed(client.env, machine.bootstrap)))[0]
        # Decided transactions are completed at once, undecided ones when they are too old.
        await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 + 20)
        copied = (await client.run(_committed(client.env, machine.bootstrap)))[1]
        check(broker, committed, copied)
        if "sums" in broker.image.topics:
            await client.run(_go_on(client.env, machine.bootstrap))
        await machine.stop()

    def check(broker: Broker, committed: int, copied: int) -> None:
        assert [directory.failed for directory in broker.directories] == [{}]
        acknowledged, attempted = (
            event_log.numbers("committed", before),
            event_log.numbers("asked to commit", after),
        )
        assert max(acknowledged, default=-1) <= committed <= max(attempted, default=-1)
        found = values(broker.services.partitions.get("sums", 0))
        numbers = sorted({int(value.split(b"/")[0]) for value in found})
        assert found == [b"%d/%d" % (number, part) for number in numbers for part in range(2)]
        assert (
            set(event_log.numbers("ended", before)) <= set(numbers) <= set(event_log.numbers("ends", after))
        )
        assert copied == max(numbers, default=-1)

    world.run(main())
    assert world.errors == []


async def _committed(env: Environment, bootstrap: str) -> tuple[int, int]:
    async with Admin({"bootstrap.servers": bootstrap}, env=env) as admin:
        found = [
            max((row.offset for row in await admin.list_consumer_group_offsets(group)), default=-1)
            for group in (GROUP, COPIERS)
        ]
    return found[0], found[1]


async def _go_on(env: Environment, bootstrap: str) -> None:
    """Checks that no open transaction blocks later producers."""
    for name in IDS:
        async with Producer({"bootstrap.servers": bootstrap, **_identity(name)}, env=env) as producer:
            await producer.init_transactions(30)
            await producer.begin_transaction()
            await producer.send_and_wait("sums", b"999/0", partition=0)
            await producer.commit_transaction(30)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_coordinators_keep_acknowledged_state_over_rolls_and_compactions_of_their_topics(seed: int) -> None:
    start, journal, event_log = history(seed, ROLLING, work)
    when, counts = internal_changes(journal)
    assert min(counts.values()) >= 3, counts
    chance = Random(seed)
    chosen = {
        len(journal),
        *chance.sample(when, MOMENTS // 2),
        *chance.sample(range(len(journal)), MOMENTS // 2),
    }
    for moment in moments(start, journal, at=chosen):
        random = Random(f"{seed} {moment.count}")
        try:
            if random.randrange(3):
                check_after_crash(
                    moment.after_power_failure(random), seed, event_log, moment.count, moment.count
                )
            else:
                check_after_crash(moment.after_kill(random), seed, event_log, moment.count - 1, moment.count)
        except BaseException as error:
            error.add_note(f"seed {seed}, moment {moment.count} of {len(journal)}: {str(moment.last)[:100]}")
            raise
