"""A shard of share group states with its log and its clock, driven by commands of one line.

    settings name=number ...                 before anything else
    init KEY epoch=2 [start=0]
    write KEY [epoch= leader= start= done=] 0-9:2:1 ...      first-last:state:deliveries
    read KEY [leader=]      summary KEY      delete KEY
    drop TOPIC ...                           the topics are deleted
    show                                     the states, and the first offset of the log that is needed

A key is group:topic:partition. There are the topics 1 to 3 with the partitions 0 and 1. The other commands are
`CoordinatorWorld`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from felice.coordinator.share_state.needed import NeededLog
from felice.coordinator.share_state.records import ShareRecord, ShareRecordCodec, SnapshotRecord
from felice.coordinator.share_state.settings import ShareStateSettings
from felice.coordinator.share_state.shard import ShareStateShard, ShareWrite, StateRead, SummaryRead
from felice.coordinator.share_state.states import ShareKey, ShareState, ShareUpdate
from felice.protocol.errors import ErrorCode
from felice.replication.share.states import StateBatch
from scenarios.coordinator_world import CoordinatorWorld

TOPICS, PARTITIONS = (1, 2, 3), (0, 1)


@dataclass
class ShareStateWorld(CoordinatorWorld[ShareRecord]):
    settings: ShareStateSettings = field(default_factory=ShareStateSettings)
    codec: ShareRecordCodec = field(default_factory=ShareRecordCodec)
    shard: ShareStateShard = field(init=False)
    topics: set[int] = field(default_factory=lambda: set(TOPICS))

    def __post_init__(self) -> None:
        self.start()

    def new_shard(self) -> ShareStateShard:
        return ShareStateShard(self.settings, self._exists)

    def _exists(self, topic_id: UUID, partition: int) -> bool:
        return topic_id.int in self.topics and partition in PARTITIONS

    def records(self) -> list[ShareRecord]:
        found = [self.codec.decode(key, value) for key, value in self.log]
        return [record for record in found if record is not None]

    # Commands

    def do_init(self, names: list[str], options: dict[str, str]) -> None:
        epoch, start = int(options["epoch"]), int(options.get("start", "-1"))
        self.carry_out(self.shard.initialise(_key(names[0]), epoch, start, self.waiter("init"), self.now))

    def do_write(self, names: list[str], options: dict[str, str]) -> None:
        asked = ShareWrite(
            state_epoch=int(options.get("epoch", "-1")),
            leader_epoch=int(options.get("leader", "-1")),
            start_offset=int(options.get("start", "-1")),
            done_count=int(options.get("done", "-1")),
            batches=[_batch(word) for word in names[1:]],
        )
        self.carry_out(self.shard.write(_key(names[0]), asked, self.waiter("write"), self.now))

    def do_read(self, names: list[str], options: dict[str, str]) -> None:
        leader = int(options.get("leader", "-1"))
        self.carry_out(self.shard.read(_key(names[0]), leader, self.waiter("read"), self.now))

    def do_summary(self, names: list[str], options: dict[str, str]) -> None:
        self.carry_out(self.shard.read_summary(_key(names[0]), self.waiter("summary")))

    def do_delete(self, names: list[str], options: dict[str, str]) -> None:
        self.carry_out(self.shard.delete(_key(names[0]), self.waiter("delete")))

    def do_drop(self, names: list[str], options: dict[str, str]) -> None:
        dropped = {int(name) for name in names}
        self.topics -= dropped
        self.carry_out(self.shard.on_topics_deleted({UUID(int=number) for number in dropped}))

    def do_reload(self, names: list[str], options: dict[str, str]) -> None:
        self.start()

    def do_show(self, names: list[str], options: dict[str, str]) -> None:
        for key, state in self.shard.states.items():
            self.say(f"{_name(key)} {_state(state)}, {state.updates} updates")
        self.say(f"log needed from {first_needed(self.records())} of {len(self.log)}")

    # Traces

    def describe_record(self, record: ShareRecord) -> str:
        if not isinstance(record, SnapshotRecord):
            return f"update {_name(record.key)} {_update(record.update)}"
        return f"snapshot {_name(record.key)} {'none' if record.state is None else _state(record.state)}"

    def on_answer(self, name: str, response: Any) -> None:
        if isinstance(response, StateRead) and response.error is ErrorCode.NONE:
            rest = f" epoch {response.state_epoch}, start {response.start_offset}{_batches(response.batches)}"
        elif isinstance(response, SummaryRead) and response.error is ErrorCode.NONE:
            rest = (
                f" epoch {response.state_epoch}, leader {response.leader_epoch},"
                f" start {response.start_offset}, done {response.done_count}"
            )
        else:
            rest = ""
        error = response.error if isinstance(response, StateRead | SummaryRead) else ErrorCode(response)
        self.say(f"{name}: {error.name}{rest}")


def first_needed(records: Iterable[ShareRecord]) -> int:
    """The first offset that is needed of a log with these records."""
    needed = NeededLog()
    for offset, record in enumerate(records):
        needed.on_record(record, offset)
    return needed.first_needed


def _key(text: str) -> ShareKey:
    group_id, topic, partition = text.split(":")
    return ShareKey(group_id, UUID(int=int(topic)), int(partition))


def _name(key: ShareKey) -> str:
    return f"{key.group_id}:{key.topic_id.int}:{key.partition}"


def _batch(word: str) -> StateBatch:
    offsets, state, deliveries = word.split(":")
    first, _, last = offsets.partition("-")
    return StateBatch(int(first), int(last or first), int(state), int(deliveries))


def _batches(batches: Iterable[StateBatch]) -> str:
    return "".join(f" {first}-{last}:{state}:{deliveries}" for first, last, state, deliveries in batches)


def _state(state: ShareState) -> str:
    return (
        f"{state.snapshot_epoch} at {state.written_ms - 1_000_000}: epoch {state.state_epoch},"
        f" leader {state.leader_epoch}, start {state.start_offset}, done {state.done_count}"
        f"{_batches(state.batches)}"
    )


def _update(update: ShareUpdate) -> str:
    return (
        f"{update.snapshot_epoch}: leader {update.leader_epoch}, start {update.start_offset},"
        f" done {update.done_count}{_batches(update.batches)}"
    )
