"""Rival writers of one compacted topic: each takes over again and again, writes, and is paused, killed and cut off.

The checks are about the topic as it is at the end:
-   a write that was answered is there, whole and once; one that failed is not; one of unknown outcome is there
    whole, or not at all;
-   what a writer sees after `take_over` and `wait_end` decides the outcome of every earlier write of older writers;
-   after that point of the log there is no record of an older writer, and the records of two writers do not alternate.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from felice.client.admin.core import Admin
from felice.client.admin.model import FeatureUpdate, UpgradeType
from felice.client.compacted.errors import Fenced, OutcomeUnknown
from felice.client.compacted.records import CompactedRecord
from felice.client.compacted.topic import CompactedTopic
from felice.client.error import KafkaException
from felice.env import Environment
from felice.testing.simulation.world import Machine, World
from simulation.compacted.faults import Faults

NAME = "_mapping"
FENCE = "rivals"
RIVALS = 3
LENGTH_S = 25.0
_FINISH_S = 120.0


class Outcome(Enum):
    """What the writer knows of a write."""

    UNKNOWN = "unknown"
    WRITTEN = "written"
    REFUSED = "refused"


@dataclass
class Write:
    """One call of `write`: its records have values `TENURE/NUMBER/INDEX`."""

    tenure: str
    values: list[bytes]
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1


@dataclass
class Tenure:
    """From one take-over of a writer to its next. `end` is what `wait_end` returned, -1 if it never did."""

    name: str
    called_s: float
    returned_s: float
    end: int = -1
    seen: frozenset[bytes] = frozenset()


@dataclass
class History:
    """What all rivals did and saw, and the topic at the end: offset and value of each record."""

    writes: list[Write] = field(default_factory=list)
    tenures: dict[str, Tenure] = field(default_factory=dict)
    final: list[tuple[int, bytes]] = field(default_factory=list)
    fenced: int = 0
    finished: bool = False


class Rivals:
    """One simulation run."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, limit_s=LENGTH_S + 2 * _FINISH_S)
        self.history = History()
        self._broker = self.world.broker("b1", {})
        self._client: dict[str, object] = {
            "bootstrap.servers": self._broker.bootstrap,
            "request.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
        }
        self._machines = [self.world.machine(f"c{number}") for number in range(RIVALS)]
        self._faults = Faults(self.world, self._broker, self._machines, self._boot)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_finishing = False

    def run(self) -> History:
        """Run to the end, and return the history."""
        self.world.run(self._main())
        return self.history

    async def _main(self) -> None:
        await self._broker.start()
        if self.world.seed % 2:
            # Transactions of version 1: partitions are added explicitly, and a commit leaves the epoch as it was.
            life = self.world.machine("admin").boot()
            await life.run(self._downgrade(life.env))
        for machine in self._machines:
            self._boot(machine)
        await self._faults.run(LENGTH_S)
        self._is_finishing = True
        async with asyncio.timeout(_FINISH_S):
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            life = self.world.machine("reader").boot()
            await life.run(self._read(life.env))
        self.history.finished = True

    async def _downgrade(self, env: Environment) -> None:
        async with Admin(self._client, env=env) as admin:
            await admin.update_features(
                [FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)], timeout_s=30
            )

    def _boot(self, machine: Machine) -> None:
        life = machine.boot()
        name = f"{machine.name}.{machine.incarnations}"
        self._tasks[machine.name] = life.spawn(self._live(life.env, name))

    def _topic(self, env: Environment, seen: list[CompactedRecord]) -> CompactedTopic[bytes, bytes]:
        return CompactedTopic(
            self._client,
            NAME,
            fence=FENCE,
            on_record=seen.append,
            replication_factor=1,
            write_timeout_s=env.random.choice((4.0, 4.0, 0.05, 0.02)),
            env=env,
        )

    async def _read(self, env: Environment) -> None:
        seen: list[CompactedRecord] = []
        topic = self._topic(env, seen)
        await topic.start()
        await topic.take_over()
        await topic.wait_end()
        self.history.final = [(row.offset, row.value or b"") for row in seen]
        await topic.stop()

    async def _live(self, env: Environment, name: str) -> None:
        seen: list[CompactedRecord] = []
        topic = self._topic(env, seen)
        while True:
            try:
                await topic.start(20.0)
                break
            except KafkaException:
                await asyncio.sleep(0.5)
        turn = 0
        while not self._is_finishing:
            turn += 1
            try:
                await self._reign(env, topic, seen, f"{name}.{turn}")
            except Fenced:
                self.history.fenced += 1
            except (KafkaException, TimeoutError) as error:
                self.world.note(f"{name}: {type(error).__name__} {error}")
            await asyncio.sleep(env.random.choice((0.0, 0.1, 3.0)) * env.random.random())
        await topic.stop()

    async def _reign(
        self, env: Environment, topic: CompactedTopic[bytes, bytes], seen: list[CompactedRecord], name: str
    ) -> None:
        loop = asyncio.get_running_loop()
        called_s = loop.time()
        await topic.take_over(10.0)
        tenure = self.history.tenures[name] = Tenure(name, called_s, loop.time())
        tenure.end = await topic.wait_end(20.0)
        tenure.seen = frozenset(row.value or b"" for row in seen)
        for number in range(env.random.randrange(1, 8)):
            await self._write(env, topic, name, number)
            await asyncio.sleep(env.random.choice((0.0, 0.3)) * env.random.random())

    async def _write(
        self, env: Environment, topic: CompactedTopic[bytes, bytes], name: str, number: int
    ) -> None:
        values = [f"{name}/{number}/{index}".encode() for index in range(env.random.randrange(1, 4))]
        write = Write(name, values)
        self.history.writes.append(write)
        if env.random.random() < 0.1:
            self._faults.attack(self.world.machine(name.partition(".")[0]))
        limit_s = env.random.uniform(0.0, 0.02) if env.random.random() < 0.1 else None
        try:
            async with asyncio.timeout(limit_s):  # the application may cancel a write
                write.offset = await topic.write(
                    [(b"k%d" % index, value) for index, value in enumerate(values)]
                )
            write.outcome = Outcome.WRITTEN
        except (OutcomeUnknown, TimeoutError):
            raise
        except KafkaException:
            write.outcome = Outcome.REFUSED
            raise


def anomalies_of(history: History) -> list[str]:
    """What the history must not contain, in words."""
    if not history.finished:
        return ["the run did not finish"]
    found = [
        f"records are not in the order of their offsets: {one[0]}, {other[0]}"
        for one, other in pairwise(history.final)
        if one[0] >= other[0]
    ]
    values = [value for _, value in history.final]
    if len(set(values)) != len(values):
        found.append("a record is there twice")
    offsets = {value: offset for offset, value in history.final}
    for write in history.writes:
        found += _faults_of_write(write, offsets)
    for tenure in history.tenures.values():
        if tenure.end >= 0:
            found += _faults_of_tenure(tenure, history, offsets)
    return found + _alternations(values)


def _faults_of_write(write: Write, offsets: dict[bytes, int]) -> list[str]:
    there = [value for value in write.values if value in offsets]
    if there and len(there) < len(write.values):
        return [f"only a part of {write} is there"]
    if write.outcome is Outcome.WRITTEN and not there:
        return [f"{write} is lost"]
    if write.outcome is Outcome.WRITTEN and write.offset < offsets[write.values[-1]]:
        return [f"{write} is at {offsets[write.values[-1]]}"]
    if write.outcome is Outcome.REFUSED and there:
        return [f"{write} is there"]
    return []


def _faults_of_tenure(tenure: Tenure, history: History, offsets: dict[bytes, int]) -> list[str]:
    """Older tenures, which had returned when this one was called, have written all that they ever will."""
    older = {one.name for one in history.tenures.values() if one.returned_s < tenure.called_s}
    found = []
    for write in history.writes:
        if write.tenure not in older:
            continue
        for value in write.values:
            if value in offsets and offsets[value] >= tenure.end:
                found.append(f"{value!r} of an older writer was added after {tenure.name} took over")
            if (value in offsets) != (value in tenure.seen):
                found.append(f"{tenure.name} did not see the truth about {value!r}")
    return found


def _alternations(values: list[bytes]) -> list[str]:
    writers = [value.decode().partition("/")[0] for value in values]
    runs = [writer for number, writer in enumerate(writers) if number == 0 or writers[number - 1] != writer]
    return [f"the records of {writer} are not together" for writer in {*runs} if runs.count(writer) > 1]
