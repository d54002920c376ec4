"""Who lives in a simulated world: real clients, each on a machine of its own, killed and begun again.

A role keeps what it did in the `Account`; what is in its process is lost with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from checkers.history import Read
from checkers.offsets import Commit, Observed, Owned
from checkers.reads import Keyed, Mark
from checkers.transactions import Attempt, Outcome, Sight
from felice.client.admin.model import NewTopic
from felice.client.aio import Admin, Consumer, Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OFFSET_BEGINNING, ConsumerGroupMetadata, Message, TopicPartition
from felice.env import Environment
from felice.testing.simulation.world import BrokerMachine, ProcessEnded, World
from simulation.account import COPY, KEYED, LEDGER, PLAIN, Account, Sent
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


class Stage:
    """What all roles share."""

    def __init__(self, world: World, plan: Plan, brokers: Sequence[BrokerMachine], account: Account) -> None:
        self.world = world
        self.plan = plan
        self.brokers = brokers
        self.account = account
        bootstrap = {"bootstrap.servers": ",".join(broker.bootstrap for broker in brokers)}
        self.client = {**CLIENT, **bootstrap}
        self.consumer = {**CONSUMER, **bootstrap}
        self.is_quiet = False  # the faults are over: come to an end
        self.writers_done = asyncio.Event()

    @property
    def now_s(self) -> float:
        return self.world.loop.time()

    @property
    def partitions(self) -> range:
        return range(self.plan.partitions)

    @property
    def power_losses(self) -> int:
        return sum(broker.power_losses for broker in self.brokers)


class Role:
    """Lives, dies and lives again until its work is done."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.account = stage.account
        self.name = name
        self.machine = stage.world.machine(name)
        self.random: Random = stage.world.random(f"role {name}")
        self.is_done = False

    async def act(self) -> None:
        while not self.is_done:
            life = self.machine.boot()
            try:
                await life.run(self.live(life.env, self.machine.lives))
                self.is_done = True
            except ProcessEnded:
                await asyncio.sleep(self.random.uniform(0.05, 0.6))
                continue
            except (KafkaException, TimeoutError) as error:
                self.stage.world.note(f"{self.name} begins again: {error}")
            self.machine.kill()
            await asyncio.sleep(self.random.uniform(0.05, 0.3))

    async def live(self, env: Environment, life: int) -> None:
        raise NotImplementedError

    async def pause(self, longest_s: float) -> None:
        await asyncio.sleep(self.random.random() ** 2 * longest_s)


class Writer(Role):
    """Numbered records to every partition in turn, idempotent; each life is a writer of its own."""

    async def live(self, env: Environment, life: int) -> None:
        config = {
            **self.stage.client, "linger.ms": self.random.choice((0, 0, 3)), "compression.type": self.stage.plan.codec,
            "batch.num.messages": self.random.choice((1, 3, 100)),
        }  # fmt: skip
        async with Producer(config, env=env) as producer:
            number = 0
            while not self.stage.is_quiet:
                for _ in range(self.random.randrange(1, 5)):
                    await self._send(producer, f"{self.name}.{life}", number)
                    number += 1
                await self.pause(0.15)

    async def _send(self, producer: Producer, writer: str, number: int) -> None:
        era = self.stage.power_losses
        sent = Sent(writer, number, number % self.stage.plan.partitions, era)
        self.account.sent.append(sent)
        value = self._filled(f"{writer}:{number}:")
        future = await producer.send(PLAIN, value, partition=sent.partition)

        def on_delivery(answered: asyncio.Future[Message]) -> None:
            if not answered.cancelled() and answered.exception() is None:
                sent.offset = answered.result().offset()
                sent.acknowledged_era = self.stage.power_losses
                self.account.on_acknowledged(sent)

        future.add_done_callback(on_delivery)

    def _filled(self, value: str) -> str:
        """Where a log may lose its tail, batches of several sectors, whatever the codec: they tear."""
        if self.stage.plan.kind == "lossy":
            return value + Random(value).randbytes(self.random.choice((0, 100, 1500, 5000))).hex()
        size = self.random.choice((0, 10, 200, 3000)) if self.random.random() < 0.3 else 0
        return value.ljust(size, ".")


class KeyedWriter(Role):
    """Values and tombstones for a few keys; each life has keys of its own, for requests may outlive a life."""

    async def live(self, env: Environment, life: int) -> None:
        async with Producer({**self.stage.client, "batch.num.messages": 2}, env=env) as producer:
            numbers: dict[str, int] = {}
            while not self.stage.is_quiet:
                for _ in range(self.random.randrange(1, 5)):
                    key = f"{life}.{self.random.randrange(4)}"
                    numbers[key] = numbers.get(key, -1) + 1
                    await self._send(producer, Keyed(key, numbers[key], self.random.random() < 0.15))
                await self.pause(0.1)

    async def _send(self, producer: Producer, keyed: Keyed) -> None:
        self.account.keyed.append(keyed)
        value = None if keyed.is_tombstone else b"v" * self.random.randrange(40)
        future = await producer.send(
            KEYED, value, keyed.key, partition=0, headers={"number": str(keyed.number)}
        )

        def on_delivery(answered: asyncio.Future[Message]) -> None:
            keyed.is_acknowledged = not answered.cancelled() and answered.exception() is None

        future.add_done_callback(on_delivery)


class Ledger(Role):
    """Transactions of a few records, most of them committed. Two of one id fence each other again and again."""

    def __init__(self, stage: Stage, name: str, transactional_id: str) -> None:
        super().__init__(stage, name)
        self._transactional_id = transactional_id

    async def live(self, env: Environment, life: int) -> None:
        config = {
            **self.stage.client,
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": 1500,
        }
        async with Producer(config, env=env) as producer:
            await producer.init_transactions(30)
            turn = 0
            while not self.stage.is_quiet:
                attempt = Attempt(f"{self.name}.{life}.{turn}")
                self.account.attempts.append(attempt)
                await self._transact(producer, attempt)
                await self.pause(0.1)
                turn += 1

    async def _transact(self, producer: Producer, attempt: Attempt) -> None:
        await producer.begin_transaction()
        futures = []
        for number in range(self.random.randrange(1, 5)):
            partition = self.random.choice(self.stage.partitions)
            attempt.records.append((partition, number))
            futures.append(await producer.send(LEDGER, f"{attempt.name}:{number}:", partition=partition))
            if self.random.random() < 0.3:
                await self.pause(0.3)
        try:
            if self.random.random() < 0.3:
                await producer.abort_transaction(30)
            else:
                attempt.outcome, attempt.commit_asked_s = Outcome.UNKNOWN, self.stage.now_s
                await producer.commit_transaction(30)
                attempt.outcome = Outcome.COMMITTED
        finally:
            await asyncio.gather(*futures, return_exceptions=True)


class Copier(Role):
    """Copies PLAIN to COPY exactly once: records and offsets in one transaction, as one of a group."""

    async def live(self, env: Environment, life: int) -> None:
        transactional = {"transactional.id": self.name, "transaction.timeout.ms": 5000}
        async with (
            Producer({**self.stage.client, **transactional}, env=env) as producer,
            Consumer({**self.stage.consumer, "group.id": COPY_GROUP}, env=env) as consumer,
        ):
            await producer.init_transactions(30)
            await consumer.subscribe([PLAIN])
            while True:
                messages = [m for m in await consumer.consume(20, 0.25) if m.error() is None]
                if messages:
                    # Now, before anything is waited for: a rebalance may take the partitions meanwhile.
                    owner = consumer.consumer_group_metadata()
                    if owner.generation_id < 0:
                        raise TimeoutError("no longer a member")
                    await self._copy(producer, owner, messages)
                elif self.stage.writers_done.is_set() and await _is_all_committed(consumer, self.stage):
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


async def _is_all_committed(consumer: Consumer, stage: Stage) -> bool:
    partitions = [TopicPartition(PLAIN, partition) for partition in stage.partitions]
    committed = {row.partition: row.offset for row in await consumer.committed(partitions)}
    for partition in partitions:
        _, high = await consumer.watermarks(partition)
        if max(committed[partition.partition], 0) < high:
            return False
    return True


class Member(Role):
    """Reads PLAIN in a group and commits as it goes."""

    async def live(self, env: Environment, life: int) -> None:
        strategy = ("range", "cooperative-sticky")[self.stage.plan.seed % 2]
        config = {**self.stage.consumer, "group.id": GROUP, "partition.assignment.strategy": strategy}
        # A rebalance goes on while records are worked on; what is given up must be committed first.
        busy = asyncio.Lock()

        async def finish(partitions: list[TopicPartition]) -> None:
            async with busy:
                pass

        async with Consumer(config, env=env) as consumer:
            on_assign = self._on_assign(consumer, life)
            await consumer.subscribe([PLAIN], on_assign=on_assign, on_revoke=finish, on_lost=finish)
            while True:
                messages = [m for m in await consumer.consume(10, 0.25) if m.error() is None]
                if messages:
                    async with busy:
                        await self.pause(0.1)
                        await self._commit(consumer, messages)
                elif self.stage.writers_done.is_set() and await _is_all_committed(consumer, self.stage):
                    return

    def _on_assign(self, consumer: Consumer, life: int) -> Callable[[list[TopicPartition]], None]:
        def note(partitions: list[TopicPartition]) -> None:
            generation = consumer.consumer_group_metadata().generation_id
            self.account.owned += [
                Owned(generation, f"{self.name}.{life}", partition.partition) for partition in partitions
            ]

        return note

    async def _commit(self, consumer: Consumer, messages: list[Message]) -> None:
        last = {message.partition(): message.offset() for message in messages}
        asked = [Commit(partition, offset + 1, self.stage.now_s) for partition, offset in last.items()]
        self.account.commits += asked
        rows = await consumer.commit(
            offsets=[TopicPartition(PLAIN, commit.partition, commit.offset) for commit in asked]
        )
        good = {row.partition for row in rows if row.error is None}
        for commit in asked:
            if commit.partition in good:
                commit.acknowledged_s = self.stage.now_s


class Reader(Role):
    """Reads a topic from its beginning, and again in each life."""

    def __init__(self, stage: Stage, name: str, topic: str) -> None:
        super().__init__(stage, name)
        self._topic = topic

    async def live(self, env: Environment, life: int) -> None:
        view = self.account.views.setdefault(f"{self.name}.{life}", []) if self._topic == PLAIN else []
        async with Consumer({**self.stage.consumer, "group.id": f"{self.name}.{life}"}, env=env) as consumer:
            consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in self.stage.partitions])
            while not self.stage.is_quiet:
                for message in await consumer.consume(50, 0.25):
                    if message.error() is None:
                        read = as_read(message)
                        view.append(read)
                        if self._topic == LEDGER:
                            self.account.sights.append(Sight(self.stage.now_s, read))


class Observer(Role):
    """Asks again and again how far partitions reach and what was committed."""

    async def live(self, env: Environment, life: int) -> None:
        async with Admin(self.stage.client, env=env) as admin:
            while not self.stage.is_quiet:
                await self._marks(admin)
                if "group" in self.stage.plan.roles:
                    await self._offsets(admin)
                await self.pause(0.4)

    async def _marks(self, admin: Admin) -> None:
        asked_s = self.stage.now_s
        ends: list[dict[int, int]] = []
        for timestamp in (-2, -1):
            found = await admin.list_offsets(
                {(PLAIN, p): timestamp for p in self.stage.partitions}, timeout_s=3
            )
            ends.append(
                {key[1]: row.offset for key, row in found.items() if not isinstance(row, Exception | None)}
            )
        for partition in sorted(ends[0].keys() & ends[1].keys()):
            mark = Mark(partition, ends[0][partition], ends[1][partition], asked_s, self.stage.now_s)
            self.account.marks.append(mark)

    async def _offsets(self, admin: Admin) -> None:
        asked_s = self.stage.now_s
        wanted = [(PLAIN, p) for p in self.stage.partitions]
        for row in await admin.list_consumer_group_offsets(GROUP, wanted, timeout_s=3):
            if row.error is None:
                offset = max(row.offset, -1)
                self.account.observed.append(Observed(row.partition, offset, asked_s, self.stage.now_s))


class Administrator(Role):
    """Makes, widens, configures and deletes topics, and remembers what it was told."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        # Partitions of a topic that is there, 0 of one that is not; no entry where nobody knows.
        self.known: dict[str, int] = {}

    async def live(self, env: Environment, life: int) -> None:
        async with Admin(self.stage.client, env=env) as admin:
            while not self.stage.is_quiet:
                name = f"scratch-{self.random.randrange(4)}"
                before = self.known.pop(name, None)
                await self._change(admin, name, before)
                await self.pause(0.4)

    async def _change(self, admin: Admin, name: str, before: int | None) -> None:
        if before and self.random.random() < 0.5:
            if _went_well(await admin.delete_topics([name], timeout_s=3), name):
                self.known[name] = 0
        elif before == 0 or before is None:
            count = self.random.randrange(1, 4)
            made = await admin.create_topics([NewTopic(name, count, self.stage.plan.replicas)], timeout_s=3)
            if _went_well(made, name):
                self.known[name] = count
        else:
            self.known[name] = before

    async def check(self, admin: Admin) -> list[str]:
        there = (await admin.metadata(None)).topics
        counts = {name: len(topic.partitions) for name, topic in there.items()}
        return [
            f"topic {name} was to have {count} partitions and has {counts.get(name, 0)}"
            for name, count in sorted(self.known.items())
            if counts.get(name, 0) != count
        ]


def _went_well(results: Any, name: str) -> bool:
    return not isinstance(results.get(name), Exception)


def as_read(message: Message) -> Read:
    writer, number, _ = (message.value() or b"").decode().split(":")
    return Read(writer, int(number), message.partition() or 0, message.offset() or 0)


async def read_to_end(
    stage: Stage, env: Environment, topic: str, count: int, isolation: str
) -> list[Message]:
    """Everything that is in a topic of so many partitions for a reader who comes now."""
    partitions = range(count)
    config = {
        **stage.consumer,
        "group.id": "judge",
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
