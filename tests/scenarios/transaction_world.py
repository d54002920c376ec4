"""A transaction shard with its log, its clock and some producers, driven by one-line commands.

    settings name=number ...                 before anything else
    init NAME [id= timeout= as=pid/epoch | resume]     NAME keeps the identity that it gets
    add NAME topic/0 ... [as=pid/epoch id=]  verify NAME topic/0 [as= id=]
    commit NAME [as= id=]                    abort NAME [as= id=]
    level NUMBER                             the finalized level of transaction.version
    exhaust [NAME ...]                       the epoch is the last but two; these hold it
    told [id]                                every partition has its marker
    advance MS    show    reload             hold | release | refuse ERROR | lose ERROR   (what becomes of writes)

`add`, `commit` and `abort` with the word v2 are transaction V2's; then an end changes the identity that NAME keeps.
`lose` leaves the records in the log, but says that they failed: a write that took too long. `failover` moves the
coordinator to another broker, whose log has what is on its way (`kept`) or has it not.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from felice.coordinator.shard import NEVER_MS, AfterWrite, Instant, Outcome, Undo
from felice.coordinator.transaction.initialisation import InitWish
from felice.coordinator.transaction.metadata import LAST_EPOCH, V1, V2, TopicPartition, TransactionMetadata
from felice.coordinator.transaction.records import TransactionRecord, TransactionRecordCodec, by_topic
from felice.coordinator.transaction.settings import TransactionSettings
from felice.coordinator.transaction.shard import Ended, Identity, Initialised, TransactionShard
from felice.protocol.errors import ErrorCode

ID = "tx"


@dataclass(slots=True)
class ProducerWaiter:
    world: TransactionWorld
    name: str
    answers: int = 0

    def answer(self, response: Any) -> None:
        self.answers += 1
        assert self.answers == 1, f"{self.name} was answered twice"
        self.world.on_answer(self.name, response)


@dataclass(slots=True)
class PendingWrite:
    records: list[TransactionRecord]
    undo: list[Undo]
    after: list[AfterWrite[TransactionRecord]]


@dataclass(slots=True)
class TransactionWorld:
    settings: TransactionSettings = field(default_factory=TransactionSettings)
    shard: TransactionShard = field(init=False)
    now_ms: int = 0
    identities: dict[str, tuple[int, int]] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    outbox: dict[str, TransactionMetadata] = field(default_factory=dict)
    waiters: list[ProducerWaiter] = field(default_factory=list)
    writes: str = "commit"
    held: list[PendingWrite] = field(default_factory=list)
    next_producer_id: int = 7
    level: int = 2
    codec: TransactionRecordCodec = field(init=False)

    def __post_init__(self) -> None:
        self.codec = TransactionRecordCodec(lambda: self.level)
        self._start()

    def _start(self) -> None:
        self.outbox.clear()
        self.shard = TransactionShard(self.settings, self)
        for key, value in self.log:
            record = self.codec.decode(key, value)
            assert record is not None
            self.shard.replay(record)
        self._carry_out(self.shard.on_loaded(self.now))

    @property
    def now(self) -> Instant:
        return Instant(1_000_000 + self.now_ms, self.now_ms)

    def execute(self, line: str) -> list[str]:
        self.trace = []
        command, *words = shlex.split(line)
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, "do_" + command)(names, options)
        return self.trace

    # What the shell does

    def put(self, transactional_id: str, decided: TransactionMetadata) -> None:
        self.outbox[transactional_id] = decided
        where = ",".join(f"{topic}{indexes}" for topic, indexes in by_topic(decided.partitions).items())
        self.say(
            f"markers: {transactional_id} {decided.state.title}"
            f" {decided.producer_id}/{decided.epoch} {where}".rstrip()
        )

    def _carry_out(self, outcome: Outcome[TransactionRecord]) -> None:
        for reply in outcome.replies:
            reply.waiter.answer(reply.response)
        if not outcome.records and not outcome.after_write:
            return
        undo = [self.shard.replay(record) for record in outcome.records]
        write = PendingWrite(outcome.records, undo, outcome.after_write)
        if self.writes == "hold":
            self.held.append(write)
        elif self.writes == "commit":
            self._commit(write)
        else:
            self._fail(write)

    def _commit(self, write: PendingWrite) -> None:
        self._store(write)
        for after in write.after:
            self._carry_out(after.on_committed(self.now))

    def _store(self, write: PendingWrite) -> None:
        for record in write.records:
            self.log.append(self.codec.encode(record))
            self.say(f"log: {record.transactional_id} {describe(record.metadata)}")

    def _fail(self, write: PendingWrite) -> None:
        how, error = self.writes.split()
        self.writes = "commit"
        if how == "lose":
            self._store(write)
        else:
            for undo in reversed(write.undo):
                undo()
        for after in write.after:
            self._carry_out(after.on_failed(ErrorCode[error], self.now))

    def say(self, text: str) -> None:
        self.trace.append(f"@{self.now_ms} {text}")

    def on_answer(self, name: str, response: Any) -> None:
        if isinstance(response, Initialised):
            if response.error == ErrorCode.NONE:
                self.identities[name] = response.producer_id, response.epoch
            self.say(f"{name}: {response.error.name} {response.producer_id}/{response.epoch}")
        elif isinstance(response, Ended):
            identity = ""
            if response.producer_id >= 0:
                self.identities[name] = response.producer_id, response.epoch
                identity = f" {response.producer_id}/{response.epoch}"
            self.say(f"{name}: {response.error.name}{identity}")
        else:
            self.say(f"{name}: {ErrorCode(response).name}")

    def _waiter(self, name: str) -> ProducerWaiter:
        self.waiters.append(ProducerWaiter(self, name))
        return self.waiters[-1]

    def _held_by(self, name: str, options: dict[str, str]) -> tuple[int, int]:
        if "as" not in options:
            return self.identities.get(name, (-1, -1))
        producer_id, _, epoch = options["as"].partition("/")
        return int(producer_id), int(epoch)

    def _who(self, name: str, options: dict[str, str]) -> Identity:
        return Identity(options.get("id", ID), *self._held_by(name, options))

    # Commands

    def do_settings(self, names: list[str], options: dict[str, str]) -> None:
        self.settings = TransactionSettings(**{name: int(value) for name, value in options.items()})
        self._start()

    def do_init(self, names: list[str], options: dict[str, str]) -> None:
        holds = "resume" in names or "as" in options
        identity = self._held_by(names[0], options) if holds else (-1, -1)
        wish = InitWish(options.get("id", ID), int(options.get("timeout", "60000")), *identity)
        new_id = -1
        if self.shard.needs_new_producer_id(wish):
            new_id, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1
        self._carry_out(self.shard.initialise(wish, new_id, self._waiter(names[0]), self.now))

    def do_exhaust(self, names: list[str], options: dict[str, str]) -> None:
        """As if the producer had asked for its next epoch very often."""
        exhausted = replace(self.shard.transactions[ID], epoch=LAST_EPOCH - 2)
        self.shard.transactions[ID] = exhausted
        self.log.append(self.codec.encode(TransactionRecord(ID, exhausted)))
        for name in names:
            self.identities[name] = exhausted.producer_id, exhausted.epoch

    def do_add(self, names: list[str], options: dict[str, str]) -> None:
        wanted = frozenset(parse_partition(name) for name in names[1:] if name != "v2")
        who = self._who(names[0], options)
        version = V2 if "v2" in names else V1
        self._carry_out(self.shard.add_partitions(who, wanted, self._waiter(names[0]), self.now, version))

    def do_verify(self, names: list[str], options: dict[str, str]) -> None:
        found = self.shard.verify(self._who(names[0], options), parse_partition(names[1]))
        self.say(f"{names[0]}: {found.name}")

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        self._end(names, options, commit=True)

    def do_abort(self, names: list[str], options: dict[str, str]) -> None:
        self._end(names, options, commit=False)

    def do_level(self, names: list[str], options: dict[str, str]) -> None:
        self.level = int(names[0])

    def _end(self, names: list[str], options: dict[str, str], *, commit: bool) -> None:
        who, waiter = self._who(names[0], options), self._waiter(names[0])
        if "v2" not in names:
            self._carry_out(self.shard.end(who, commit, waiter, self.now))
            return
        next_id = -1
        if self.shard.needs_next_producer_id(who):
            next_id, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1
        self._carry_out(self.shard.end_v2(who, commit, next_id, waiter, self.now))

    def do_told(self, names: list[str], options: dict[str, str]) -> None:
        transactional_id = names[0] if names else ID
        decided = self.outbox.pop(transactional_id, None)
        if decided is not None:
            self._carry_out(self.shard.complete(transactional_id, decided, self.now))

    def do_advance(self, names: list[str], options: dict[str, str]) -> None:
        until_ms = self.now_ms + int(names[0])
        while (deadline_ms := self.shard.next_deadline_ms()) <= until_ms and deadline_ms != NEVER_MS:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._carry_out(self.shard.on_time(self.now))
        self.now_ms = until_ms

    def do_show(self, names: list[str], options: dict[str, str]) -> None:
        for transactional_id, metadata in self.shard.transactions.items():
            self.say(f"{transactional_id} {describe(metadata)}")

    def do_reload(self, names: list[str], options: dict[str, str]) -> None:
        self.held.clear()
        self.writes = "commit"
        self._start()

    def do_failover(self, names: list[str], options: dict[str, str]) -> None:
        held, self.held, self.writes = self.held, [], "commit"
        for write in held:
            if "kept" in names:
                self._store(write)
            for after in write.after:
                self._carry_out(after.on_failed(ErrorCode.NOT_COORDINATOR, self.now))
        self._start()

    def do_hold(self, names: list[str], options: dict[str, str]) -> None:
        self.writes = "hold"

    def do_release(self, names: list[str], options: dict[str, str]) -> None:
        self.writes = "commit"
        held, self.held = self.held, []
        for write in held:
            self._commit(write)

    def do_refuse(self, names: list[str], options: dict[str, str]) -> None:
        self.writes = f"refuse {names[0]}"

    def do_lose(self, names: list[str], options: dict[str, str]) -> None:
        self.writes = f"lose {names[0]}"


def parse_partition(text: str) -> TopicPartition:
    topic, _, index = text.partition("/")
    return TopicPartition(topic, int(index))


def describe(metadata: TransactionMetadata | None) -> str:
    if metadata is None:
        return "forgotten"
    where = "".join(f" {topic}{indexes}" for topic, indexes in by_topic(metadata.partitions).items())
    then = f" then {metadata.next_producer_id}" if metadata.next_producer_id >= 0 else ""
    version = " v2" if metadata.client_version == V2 else ""
    return f"{metadata.state.title} {metadata.producer_id}/{metadata.epoch}{then}{version}{where}"
