"""A transaction shard with its log, its clock and some producers, driven by commands of one line.

    settings name=number ...                 before anything else
    init NAME [id= timeout= as=pid/epoch | resume]     NAME keeps the identity that it gets
    add NAME topic/0 ... [as=pid/epoch id=]  verify NAME topic/0 [as= id=]
    commit NAME [as= id=]                    abort NAME [as= id=]
    level NUMBER                             the finalized level of transaction.version
    exhaust [NAME ...]                       set the epoch to the last but two; these producers hold it
    complete [id]                            every partition has its marker
    show

`add`, `commit` and `abort` with the word v2 use transaction V2, where an end changes the identity that NAME keeps.
The other commands are `CoordinatorWorld`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from felice.coordinator.transaction.initialisation import InitRequest
from felice.coordinator.transaction.metadata import LAST_EPOCH, V1, V2, TransactionMetadata
from felice.coordinator.transaction.records import TransactionRecord, TransactionRecordCodec, by_topic
from felice.coordinator.transaction.settings import TransactionSettings
from felice.coordinator.transaction.shard import Ended, Identity, Initialised, TransactionShard
from felice.protocol.errors import ErrorCode
from felice.protocol.topic_partition import TopicPartition
from scenarios.coordinator_world import CoordinatorWorld

ID = "tx"


@dataclass
class TransactionWorld(CoordinatorWorld[TransactionRecord]):
    settings: TransactionSettings = field(default_factory=TransactionSettings)
    codec: TransactionRecordCodec = field(init=False)
    shard: TransactionShard = field(init=False)
    identities: dict[str, tuple[int, int]] = field(default_factory=dict)
    outbox: dict[str, TransactionMetadata] = field(default_factory=dict)
    next_producer_id: int = 7
    level: int = 2

    def __post_init__(self) -> None:
        self.codec = TransactionRecordCodec(lambda: self.level)
        self.start()

    def new_shard(self) -> TransactionShard:
        self.outbox.clear()
        return TransactionShard(self.settings, self, lambda: self.level)

    def describe_record(self, record: TransactionRecord) -> str:
        return f"{record.transactional_id} {describe(record.metadata)}"

    def put(self, transactional_id: str, decided: TransactionMetadata) -> None:
        self.outbox[transactional_id] = decided
        where = ",".join(f"{topic}{indexes}" for topic, indexes in by_topic(decided.partitions).items())
        self.say(
            f"markers: {transactional_id} {decided.state.title}"
            f" {decided.producer_id}/{decided.epoch} {where}".rstrip()
        )

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

    def _held_by(self, name: str, options: dict[str, str]) -> tuple[int, int]:
        if "as" not in options:
            return self.identities.get(name, (-1, -1))
        producer_id, _, epoch = options["as"].partition("/")
        return int(producer_id), int(epoch)

    def _who(self, name: str, options: dict[str, str]) -> Identity:
        return Identity(options.get("id", ID), *self._held_by(name, options))

    # Commands

    def do_init(self, names: list[str], options: dict[str, str]) -> None:
        holds = "resume" in names or "as" in options
        identity = self._held_by(names[0], options) if holds else (-1, -1)
        requested = InitRequest(options.get("id", ID), int(options.get("timeout", "60000")), *identity)
        new_id = -1
        if self.shard.needs_new_producer_id(requested):
            new_id, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1
        self.carry_out(self.shard.initialise(requested, new_id, self.waiter(names[0]), self.now))

    def do_exhaust(self, names: list[str], options: dict[str, str]) -> None:
        """Sets the epoch as if the producer had requested its next epoch very often."""
        exhausted = replace(self.shard.transactions[ID], epoch=LAST_EPOCH - 2)
        self.shard.transactions[ID] = exhausted
        self.log.append(self.codec.encode(TransactionRecord(ID, exhausted)))
        for name in names:
            self.identities[name] = exhausted.producer_id, exhausted.epoch

    def do_add(self, names: list[str], options: dict[str, str]) -> None:
        wanted = frozenset(parse_partition(name) for name in names[1:] if name != "v2")
        who = self._who(names[0], options)
        version = V2 if "v2" in names else V1
        self.carry_out(self.shard.add_partitions(who, wanted, self.waiter(names[0]), self.now, version))

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
        who, waiter = self._who(names[0], options), self.waiter(names[0])
        if "v2" not in names:
            self.carry_out(self.shard.end(who, commit, waiter, self.now))
            return
        next_id = -1
        if self.shard.needs_next_producer_id(who):
            next_id, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1
        self.carry_out(self.shard.end_v2(who, commit, next_id, waiter, self.now))

    def do_complete(self, names: list[str], options: dict[str, str]) -> None:
        transactional_id = names[0] if names else ID
        decided = self.outbox.pop(transactional_id, None)
        if decided is not None:
            self.carry_out(self.shard.complete(transactional_id, decided, self.now))

    def do_show(self, names: list[str], options: dict[str, str]) -> None:
        for transactional_id, metadata in self.shard.transactions.items():
            self.say(f"{transactional_id} {describe(metadata)}")

    def do_reload(self, names: list[str], options: dict[str, str]) -> None:
        self.held.clear()
        self.writes = "commit"
        self.start()


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
