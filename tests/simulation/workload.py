"""The clients of a simulated cluster: real clients, each on a machine of its own, that are killed and start again.

A client records what it did in `Observations`. Everything else in its process is lost when it is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from checkers.history import Read
from checkers.offsets import Commit, CommittedOffset, Owned
from checkers.reads import Keyed, ObservedOffsets
from checkers.transactions import Attempt, Outcome, TransactionalRead
from felice.client.admin.model import NewTopic
from felice.client.aio import Admin, Consumer, Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OFFSET_BEGINNING, ConsumerGroupMetadata, Message, TopicPartition
from felice.env import Environment
from felice.testing.simulation.world import BrokerMachine, ProcessEnded, World
from simulation.observations import COPY, KEYED, LEDGER, PLAIN, Observations, Sent
from simulation.plan import Plan

CLIENT: dict[str, Any] = {
    "bootstrap.servers": "",
    "request.timeout.ms": 1500,
    "socket.connection.setup.timeout.ms": 600,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
}
CONSUMER = {
    **CLIENT,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 200,
    "enable.auto.commit": False,
    "session.timeout.ms": 1200,
    "heartbeat.interval.ms": 300,
    "max.poll.interval.ms": 4000,
}
GROUP, COPY_GROUP = "readers", "copiers"


class SharedState:
    """What all clients of a run share."""

    def __init__(
        self, world: World, plan: Plan, brokers: Sequence[BrokerMachine], observations: Observations
    ) -> None:
        self.world = world
        self.plan = plan
        self.brokers = brokers
        self.observations = observations
        bootstrap = {"bootstrap.servers": ",".join(broker.bootstrap for broker in brokers)}
        self.client = {**CLIENT, **bootstrap}
        self.consumer = {**CONSUMER, **bootstrap}
        self.is_finishing = False  # the faults are over: come to an end
        self.writers_done = asyncio.Event()

    @property
    def now_s(self) -> float:
        return self.world.loop.time()

    @property
    def partitions(self) -> range:
        return range(self.plan.partitions)

    @property
    def power_failures(self) -> int:
        return sum(broker.power_failures for broker in self.brokers)


class WorkloadClient:
    """A client that is killed and started again until its work is done."""

    def __init__(self, shared: SharedState, name: str) -> None:
        self.shared = shared
        self.observations = shared.observations
        self.name = name
        self.machine = shared.world.machine(name)
        self.random: Random = shared.world.random(f"role {name}")
        self.is_done = False

    async def run_until_done(self) -> None:
        """Run the client; start it again after it was killed or failed with a client error."""
        while not self.is_done:
            process = self.machine.boot()
            try:
                await process.run(self.run(process.env, self.machine.incarnations))
                self.is_done = True
            except ProcessEnded:
                await asyncio.sleep(self.random.uniform(0.05, 0.6))
                continue
            except (KafkaException, TimeoutError) as error:
                self.shared.world.note(f"{self.name} begins again: {error}")
            self.machine.kill()
            await asyncio.sleep(self.random.uniform(0.05, 0.3))

    async def run(self, env: Environment, incarnation: int) -> None:
        """The work of one process of this client. `incarnation` counts its processes from 1."""
        raise NotImplementedError

    async def pause(self, longest_s: float) -> None:
        """Sleep for up to `longest_s`, mostly for much less."""
        await asyncio.sleep(self.random.random() ** 2 * longest_s)


class Writer(WorkloadClient):
    """Writes numbered records to each partition in turn, idempotently.

    Each incarnation is a writer of its own.
    """

    async def run(self, env: Environment, incarnation: int) -> None:
        config = {
            **self.shared.client,
            "linger.ms": self.random.choice((0, 0, 3)),
            "compression.type": self.shared.plan.codec,
            "batch.num.messages": self.random.choice((1, 3, 100)),
        }
        async with Producer(config, env=env) as producer:
            number = 0
            while not self.shared.is_finishing:
                for _ in range(self.random.randrange(1, 5)):
                    await self._send(producer, f"{self.name}.{incarnation}", number)
                    number += 1
                await self.pause(0.15)

    async def _send(self, producer: Producer, writer: str, number: int) -> None:
        era = self.shared.power_failures
        sent = Sent(writer, number, number % self.shared.plan.partitions, era)
        self.observations.sent.append(sent)
        value = self._filled(f"{writer}:{number}:")
        future = await producer.send(PLAIN, value, partition=sent.partition)

        def on_delivery(answered: asyncio.Future[Message]) -> None:
            if not answered.cancelled() and answered.exception() is None:
                sent.offset = answered.result().offset()
                sent.acknowledged_era = self.shared.power_failures
                self.observations.on_acknowledged(sent)

        future.add_done_callback(on_delivery)

    def _filled(self, value: str) -> str:
        """In lossy runs, values that make batches of several sectors with any codec, so that batches can be
        torn.
        """
        if self.shared.plan.durability == "lossy":
            return value + Random(value).randbytes(self.random.choice((0, 100, 1500, 5000))).hex()
        size = self.random.choice((0, 10, 200, 3000)) if self.random.random() < 0.3 else 0
        return value.ljust(size, ".")


class KeyedWriter(WorkloadClient):
    """Writes values and tombstones for a few keys.

    Each incarnation has its own keys, because a request can outlive its process.
    """

    async def run(self, env: Environment, incarnation: int) -> None:
        async with Producer({**self.shared.client, "batch.num.messages": 2}, env=env) as producer:
            numbers: dict[str, int] = {}
            while not self.shared.is_finishing:
                for _ in range(self.random.randrange(1, 5)):
                    key = f"{incarnation}.{self.random.randrange(4)}"
                    numbers[key] = numbers.get(key, -1) + 1
                    await self._send(producer, Keyed(key, numbers[key], self.random.random() < 0.15))
                await self.pause(0.1)

    async def _send(self, producer: Producer, keyed: Keyed) -> None:
        self.observations.keyed.append(keyed)
        value = None if keyed.is_tombstone else b"v" * self.random.randrange(40)
        future = await producer.send(
            KEYED, value, keyed.key, partition=0, headers={"number": str(keyed.number)}
        )

        def on_delivery(answered: asyncio.Future[Message]) -> None:
            keyed.is_acknowledged = not answered.cancelled() and answered.exception() is None

        future.add_done_callback(on_delivery)


class TransactionalWriter(WorkloadClient):
    """Writes transactions of a few records and commits most of them.

    Two with one transactional id fence each other.
    """

    def __init__(self, shared: SharedState, name: str, transactional_id: str) -> None:
        super().__init__(shared, name)
        self._transactional_id = transactional_id

    async def run(self, env: Environment, incarnation: int) -> None:
        config = {
            **self.shared.client,
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": 1500,
        }
        async with Producer(config, env=env) as producer:
            await producer.init_transactions(30)
            turn = 0
            while not self.shared.is_finishing:
                attempt = Attempt(f"{self.name}.{incarnation}.{turn}")
                self.observations.attempts.append(attempt)
                await self._transact(producer, attempt)
                await self.pause(0.1)
                turn += 1

    async def _transact(self, producer: Producer, attempt: Attempt) -> None:
        await producer.begin_transaction()
        futures = []
        for number in range(self.random.randrange(1, 5)):
            partition = self.random.choice(self.shared.partitions)
            attempt.records.append((partition, number))
            futures.append(await producer.send(LEDGER, f"{attempt.name}:{number}:", partition=partition))
            if self.random.random() < 0.3:
                await self.pause(0.3)
        try:
            if self.random.random() < 0.3:
                await producer.abort_transaction(30)
            else:
                attempt.outcome, attempt.commit_asked_s = Outcome.UNKNOWN, self.shared.now_s
                await producer.commit_transaction(30)
                attempt.outcome = Outcome.COMMITTED
        finally:
            await asyncio.gather(*futures, return_exceptions=True)


class Copier(WorkloadClient):
    """Copies PLAIN to COPY exactly once, as a member of a group: records and offsets in one transaction."""

    async def run(self, env: Environment, incarnation: int) -> None:
        transactional = {"transactional.id": self.name, "transaction.timeout.ms": 5000}
        async with (
            Producer({**self.shared.client, **transactional}, env=env) as producer,
            Consumer({**self.shared.consumer, "group.id": COPY_GROUP}, env=env) as consumer,
        ):
            await producer.init_transactions(30)
            await consumer.subscribe([PLAIN])
            while True:
                messages = [m for m in await consumer.consume(20, 0.25) if m.error() is None]
                if messages:
                    # Read the metadata before the next `await`: a rebalance may revoke the partitions
                    # meanwhile.
                    owner = consumer.consumer_group_metadata()
                    if owner.generation_id < 0:
                        raise TimeoutError("no longer a member")
                    await self._copy(producer, owner, messages)
                elif self.shared.writers_done.is_set() and await _is_all_committed(consumer, self.shared):
                    return

    async def _copy(self, producer: Producer, owner: ConsumerGroupMetadata, messages: list[Message]) -> None:
        await producer.begin_transaction()
        futures = [
            await producer.send(COPY, message.value(), partition=message.partition()) for message in messages
        ]
        await self.pause(0.05)
        last = {message.partition(): message.offset() for message in messages}
        offsets = [TopicPartition(PLAIN, partition, offset + 1) for partition, offset in last.items()]
        try:
            await producer.send_offsets_to_transaction(offsets, owner, 30)
            if self.random.random() < 0.3:
                await self.pause(0.3)
            await producer.commit_transaction(30)
        finally:
            await asyncio.gather(*futures, return_exceptions=True)


async def _is_all_committed(consumer: Consumer, shared: SharedState) -> bool:
    partitions = [TopicPartition(PLAIN, partition) for partition in shared.partitions]
    committed = {row.partition: row.offset for row in await consumer.committed(partitions)}
    for partition in partitions:
        _, high = await consumer.watermarks(partition)
        if max(committed[partition.partition], 0) < high:
            return False
    return True


class GroupMember(WorkloadClient):
    """Reads PLAIN as a member of a group and commits after each batch."""

    async def run(self, env: Environment, incarnation: int) -> None:
        strategy = ("range", "cooperative-sticky")[self.shared.plan.seed % 2]
        config = {**self.shared.consumer, "group.id": GROUP, "partition.assignment.strategy": strategy}
        # A rebalance can happen while records are processed. The offsets of a revoked partition are
        # committed first.
        busy = asyncio.Lock()

        async def finish(partitions: list[TopicPartition]) -> None:
            async with busy:
                pass

        async with Consumer(config, env=env) as consumer:
            on_assign = self._on_assign(consumer, incarnation)
            await consumer.subscribe([PLAIN], on_assign=on_assign, on_revoke=finish, on_lost=finish)
            while True:
                messages = [m for m in await consumer.consume(10, 0.25) if m.error() is None]
                if messages:
                    async with busy:
                        await self.pause(0.1)
                        await self._commit(consumer, messages)
                elif self.shared.writers_done.is_set() and await _is_all_committed(consumer, self.shared):
                    return

    def _on_assign(self, consumer: Consumer, incarnation: int) -> Callable[[list[TopicPartition]], None]:
        def note(partitions: list[TopicPartition]) -> None:
            generation = consumer.consumer_group_metadata().generation_id
            self.observations.owned += [
                Owned(generation, f"{self.name}.{incarnation}", partition.partition)
                for partition in partitions
            ]

        return note

    async def _commit(self, consumer: Consumer, messages: list[Message]) -> None:
        last = {message.partition(): message.offset() for message in messages}
        asked = [Commit(partition, offset + 1, self.shared.now_s) for partition, offset in last.items()]
        self.observations.commits += asked
        rows = await consumer.commit(
            offsets=[TopicPartition(PLAIN, commit.partition, commit.offset) for commit in asked]
        )
        good = {row.partition for row in rows if row.error is None}
        for commit in asked:
            if commit.partition in good:
                commit.acknowledged_s = self.shared.now_s


class Reader(WorkloadClient):
    """Reads a topic from the beginning, in each incarnation again."""

    def __init__(self, shared: SharedState, name: str, topic: str) -> None:
        super().__init__(shared, name)
        self._topic = topic

    async def run(self, env: Environment, incarnation: int) -> None:
        view = (
            self.observations.views.setdefault(f"{self.name}.{incarnation}", [])
            if self._topic == PLAIN
            else []
        )
        async with Consumer(
            {**self.shared.consumer, "group.id": f"{self.name}.{incarnation}"}, env=env
        ) as consumer:
            consumer.assign(
                [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in self.shared.partitions]
            )
            while not self.shared.is_finishing:
                for message in await consumer.consume(50, 0.25):
                    if message.error() is None:
                        read = as_read(message)
                        view.append(read)
                        if self._topic == LEDGER:
                            self.observations.transactional_reads.append(
                                TransactionalRead(self.shared.now_s, read)
                            )


class OffsetMonitor(WorkloadClient):
    """Requests the partitions' offsets and the group's committed offsets repeatedly."""

    async def run(self, env: Environment, incarnation: int) -> None:
        async with Admin(self.shared.client, env=env) as admin:
            while not self.shared.is_finishing:
                await self._observe_partition_offsets(admin)
                if "group" in self.shared.plan.workloads:
                    await self._offsets(admin)
                await self.pause(0.4)

    async def _observe_partition_offsets(self, admin: Admin) -> None:
        asked_s = self.shared.now_s
        ends: list[dict[int, int]] = []
        for timestamp in (-2, -1):
            found = await admin.list_offsets(
                {(PLAIN, p): timestamp for p in self.shared.partitions}, timeout_s=3
            )
            ends.append(
                {key[1]: row.offset for key, row in found.items() if not isinstance(row, Exception | None)}
            )
        for partition in sorted(ends[0].keys() & ends[1].keys()):
            mark = ObservedOffsets(
                partition, ends[0][partition], ends[1][partition], asked_s, self.shared.now_s
            )
            self.observations.partition_offsets.append(mark)

    async def _offsets(self, admin: Admin) -> None:
        asked_s = self.shared.now_s
        wanted = [(PLAIN, p) for p in self.shared.partitions]
        for row in await admin.list_consumer_group_offsets(GROUP, wanted, timeout_s=3):
            if row.error is None:
                offset = max(row.offset, -1)
                self.observations.observed.append(
                    CommittedOffset(row.partition, offset, asked_s, self.shared.now_s)
                )


class Administrator(WorkloadClient):
    """Creates topics and deletes them, and remembers which changes the broker confirmed."""

    def __init__(self, shared: SharedState, name: str) -> None:
        super().__init__(shared, name)
        # Number of partitions of each topic; 0 for a deleted topic; no entry while the outcome of a request
        # is unknown.
        self.known: dict[str, int] = {}

    async def run(self, env: Environment, incarnation: int) -> None:
        async with Admin(self.shared.client, env=env) as admin:
            while not self.shared.is_finishing:
                name = f"scratch-{self.random.randrange(4)}"
                before = self.known.pop(name, None)
                await self._change(admin, name, before)
                await self.pause(0.4)

    async def _change(self, admin: Admin, name: str, before: int | None) -> None:
        if before and self.random.random() < 0.5:
            if _succeeded(await admin.delete_topics([name], timeout_s=3), name):
                self.known[name] = 0
        elif before == 0 or before is None:
            count = self.random.randrange(1, 4)
            made = await admin.create_topics([NewTopic(name, count, self.shared.plan.replicas)], timeout_s=3)
            if _succeeded(made, name):
                self.known[name] = count
        else:
            self.known[name] = before

    async def check(self, admin: Admin) -> list[str]:
        """The topics whose number of partitions differs from what the broker confirmed, as text."""
        there = (await admin.metadata(None)).topics
        counts = {name: len(topic.partitions) for name, topic in there.items()}
        return [
            f"topic {name} was to have {count} partitions and has {counts.get(name, 0)}"
            for name, count in sorted(self.known.items())
            if counts.get(name, 0) != count
        ]


def _succeeded(results: Any, name: str) -> bool:
    return not isinstance(results.get(name), Exception)


def as_read(message: Message) -> Read:
    """The writer and number that a `Writer` or `TransactionalWriter` put into the value, with the record's
    position.
    """
    writer, number, _ = (message.value() or b"").decode().split(":")
    return Read(writer, int(number), message.partition() or 0, message.offset() or 0)


async def read_to_end(
    shared: SharedState, env: Environment, topic: str, count: int, isolation: str
) -> list[Message]:
    """All records of partitions 0 to `count` - 1 of a topic, as a consumer with this isolation level sees
    them now.
    """
    partitions = range(count)
    config = {
        **shared.consumer,
        "group.id": "final",  # part of the requests, and so of the traces of all seeds
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    messages: list[Message] = []
    ended: set[int] = set()
    async with Consumer(config, env=env) as consumer:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        while len(ended) < len(partitions):
            for message in await consumer.consume(500, 1.0):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                elif not error.retriable():
                    raise KafkaException(error)
    return messages
