"""One partition of `__share_group_state`: the states of share groups, as a pure state machine.

Keeps true:  Q4  the states are a function of the log's records: an event computes records, and only `replay` changes a
                 state. Each state is a function of its last snapshot and the updates behind it.
             Q5  a writer that knows an older state epoch or leader epoch is refused. Neither epoch goes back as long as
                 there is a state, and no write moves the start offset back.
How:         a change is an update record, or a snapshot after so many updates, so that the log before the snapshot can
             be deleted (`needed`).
Leaves:      whether a topic exists to its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import TypeVar
from uuid import UUID

from felice.coordinator.shard import (
    NEVER_MS,
    NO_PRODUCER_ID,
    Instant,
    Outcome,
    Reply,
    ReplyAfterWrite,
    Sendable,
    Undo,
    Waiter,
)
from felice.coordinator.share_state.records import ShareRecord, SnapshotRecord, UpdateRecord
from felice.coordinator.share_state.settings import ShareStateSettings
from felice.coordinator.share_state.states import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    Batches,
    ShareKey,
    ShareState,
    ShareUpdate,
    combined,
    without,
)
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.replication.share.states import RecordState, StateBatch

A = TypeVar("A")

SNAPSHOT_BATCHES_AT_ONCE = 5000
"""Batches of all snapshots of one `on_time` (but the last), so that it does not hold the loop for long."""
_SNAPSHOT_COSTS_BATCHES = 20
NEXT_SNAPSHOTS_MS = 200
"""When the other snapshots follow."""

_STORED_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}


@dataclass(frozen=True, slots=True)
class ShareWrite:
    """A write of a partition's leader, see WriteShareGroupState. A start offset of -1 keeps the old one, and an epoch
    of -1 is not compared.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    done_count: int
    batches: Sequence[StateBatch]

    @property
    def is_sound(self) -> bool:
        """Whether every batch has offsets, and a state that can be stored."""
        return all(
            0 <= first <= last and state in _STORED_STATES and deliveries >= 0
            for first, last, state, deliveries in self.batches
        )


@dataclass(frozen=True, slots=True)
class StateRead:
    """The answer to ReadShareGroupState."""

    error: ErrorCode
    state_epoch: int = 0
    start_offset: int = NO_OFFSET
    batches: Batches = ()


@dataclass(frozen=True, slots=True)
class SummaryRead:
    """The answer to ReadShareGroupStateSummary; without a state it has no start offset, and no error."""

    error: ErrorCode
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    done_count: int = NO_COUNT


@dataclass(slots=True)
class ShareStateShard:
    """The state machine of one partition of `__share_group_state`. Implements `coordinator.shard.Shard`."""

    settings: ShareStateSettings
    exists: Callable[[UUID, int], bool]
    """Whether the cluster has this partition of this topic."""
    states: dict[ShareKey, ShareState] = field(default_factory=dict)
    _next_snapshots_ms: int = NEVER_MS

    # The log

    def replay(self, record: ShareRecord, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Applies a record; returns the function that undoes it. An update without its snapshot changes nothing."""
        key = record.key
        before = self.states.get(key)
        if isinstance(record, SnapshotRecord):
            self._set(key, record.state)
        elif before is not None:
            self._set(key, before.updated(record.update))
        return lambda: self._set(key, before)

    def _set(self, key: ShareKey, state: ShareState | None) -> None:
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Does nothing: this topic is written without transactions."""

    def on_loaded(self, now: Instant) -> Outcome[ShareRecord]:
        """Nothing is to do before the first requests."""
        self._next_snapshots_ms = now.steady_ms + self.settings.snapshot_interval_ms
        return Outcome()

    def on_unloaded(self, error: ErrorCode) -> list[Sendable]:
        """Nothing waits here: every answer waits for the log, and the runtime ends that."""
        return []

    # Time

    def next_deadline_ms(self) -> int:
        """The next look for old snapshots."""
        return self._next_snapshots_ms if self.states else NEVER_MS

    def on_time(self, now: Instant) -> Outcome[ShareRecord]:
        """Writes snapshots of states whose last one is old, so that the log before it is no longer needed."""
        outcome: Outcome[ShareRecord] = Outcome()
        if now.steady_ms < self._next_snapshots_ms:
            return outcome
        self._next_snapshots_ms = now.steady_ms + self.settings.snapshot_interval_ms
        oldest_ms = now.wall_ms - self.settings.snapshot_interval_ms
        cost = 0
        for key, state in self.states.items():
            if not state.updates or state.written_ms > oldest_ms:
                continue
            if cost >= SNAPSHOT_BATCHES_AT_ONCE:
                self._next_snapshots_ms = now.steady_ms + NEXT_SNAPSHOTS_MS
                break
            outcome.records.append(SnapshotRecord(key, state.as_snapshot(now.wall_ms)))
            cost += _SNAPSHOT_COSTS_BATCHES + len(state.batches)
        return outcome

    # Requests

    def initialise(
        self, key: ShareKey, state_epoch: int, start_offset: int, waiter: Waiter[ErrorCode], now: Instant
    ) -> Outcome[ShareRecord]:
        """InitializeShareGroupState: the group begins at an offset, or at one that the partition's leader chooses.

        The same request again changes nothing; Kafka 4.3 writes a new snapshot, which loses the writes in between. A
        new offset keeps the leader epoch, so that an older leader stays fenced; Kafka writes 0.
        """
        state = self.states.get(key)
        if key.partition < 0:
            return _refused(waiter, ErrorCode.INVALID_REQUEST)
        if state is not None and _is_older(state_epoch, state.state_epoch):
            return _refused(waiter, ErrorCode.FENCED_STATE_EPOCH)
        if not self.exists(key.topic_id, key.partition):
            return _refused(waiter, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if state is not None and self._has_begun(state, state_epoch, start_offset):
            return self._after_write(waiter, ErrorCode.NONE, ErrorCode)
        before = state or ShareState(snapshot_epoch=-1, state_epoch=0)
        first = ShareState(
            snapshot_epoch=before.snapshot_epoch + 1,
            state_epoch=max(before.state_epoch, state_epoch),
            leader_epoch=before.leader_epoch,
            start_offset=start_offset,
            done_count=NO_COUNT if start_offset == NO_OFFSET else 0,
            created_ms=now.wall_ms,
            written_ms=now.wall_ms,
        )
        return self._after_write(waiter, ErrorCode.NONE, ErrorCode, SnapshotRecord(key, first))

    @staticmethod
    def _has_begun(state: ShareState, state_epoch: int, start_offset: int) -> bool:
        return state_epoch == state.state_epoch and start_offset in (NO_OFFSET, state.start_offset)

    def write(
        self, key: ShareKey, asked: ShareWrite, waiter: Waiter[ErrorCode], now: Instant
    ) -> Outcome[ShareRecord]:
        """WriteShareGroupState: the leader of the partition writes its changes."""
        state = self.states.get(key)
        if state is None or not asked.is_sound:
            return _refused(waiter, ErrorCode.INVALID_REQUEST)
        if _is_older(asked.leader_epoch, state.leader_epoch):
            return _refused(waiter, ErrorCode.FENCED_LEADER_EPOCH)
        if _is_older(asked.state_epoch, state.state_epoch):
            return _refused(waiter, ErrorCode.FENCED_STATE_EPOCH)
        if not self.exists(key.topic_id, key.partition):
            return _refused(waiter, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        is_late = NO_OFFSET != asked.start_offset < state.start_offset
        start_offset = max(asked.start_offset, state.start_offset)
        update = ShareUpdate(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=start_offset,
            done_count=state.done_count if is_late else asked.done_count,
            batches=without(combined(asked.batches), start_offset),
        )
        return self._after_write(waiter, ErrorCode.NONE, ErrorCode, self._record(key, state, update, now))

    def read(
        self, key: ShareKey, leader_epoch: int, waiter: Waiter[StateRead], now: Instant
    ) -> Outcome[ShareRecord]:
        """ReadShareGroupState: a new leader of the partition reads the state, which fences the leaders before it."""
        state = self.states.get(key)
        if state is None:
            return _refused(waiter, StateRead(ErrorCode.INVALID_REQUEST))
        if _is_older(leader_epoch, state.leader_epoch):
            return _refused(waiter, StateRead(ErrorCode.FENCED_LEADER_EPOCH))
        if not self.exists(key.topic_id, key.partition):
            return _refused(waiter, StateRead(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        found = StateRead(ErrorCode.NONE, state.state_epoch, state.start_offset, state.batches)
        if leader_epoch in (NO_EPOCH, state.leader_epoch):
            return self._after_write(waiter, found, StateRead)
        update = ShareUpdate(state.snapshot_epoch, leader_epoch, state.start_offset, state.done_count)
        return self._after_write(waiter, found, StateRead, self._record(key, state, update, now))

    def read_summary(self, key: ShareKey, waiter: Waiter[SummaryRead]) -> Outcome[ShareRecord]:
        """ReadShareGroupStateSummary: for the administration, which knows no epochs."""
        if key.partition < 0:
            return _refused(waiter, SummaryRead(ErrorCode.INVALID_REQUEST))
        if not self.exists(key.topic_id, key.partition):
            return _refused(waiter, SummaryRead(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        state = self.states.get(key)
        found = SummaryRead(ErrorCode.NONE)
        if state is not None:
            found = SummaryRead(
                ErrorCode.NONE, state.state_epoch, state.leader_epoch, state.start_offset, state.done_count
            )
        return self._after_write(waiter, found, SummaryRead)

    def delete(self, key: ShareKey, waiter: Waiter[ErrorCode]) -> Outcome[ShareRecord]:
        """DeleteShareGroupState; no error if there is no state."""
        if key.partition < 0:
            return _refused(waiter, ErrorCode.INVALID_REQUEST)
        if not self.exists(key.topic_id, key.partition):
            return _refused(waiter, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        removal = [SnapshotRecord(key, None)] if key in self.states else []
        return self._after_write(waiter, ErrorCode.NONE, ErrorCode, *removal)

    def on_topics_deleted(self, topic_ids: Collection[UUID]) -> Outcome[ShareRecord]:
        """The topics are deleted: removes the states of all groups for them."""
        return Outcome(
            records=[SnapshotRecord(key, None) for key in self.states if key.topic_id in topic_ids]
        )

    # Records

    def _record(self, key: ShareKey, state: ShareState, update: ShareUpdate, now: Instant) -> ShareRecord:
        if state.updates < self.settings.updates_per_snapshot:
            return UpdateRecord(key, update)
        return SnapshotRecord(key, state.updated(update).as_snapshot(now.wall_ms))

    @staticmethod
    def _after_write(
        waiter: Waiter[A], response: A, failure: Callable[[ErrorCode], A], *records: ShareRecord
    ) -> Outcome[ShareRecord]:
        return Outcome(records=list(records), after_write=[ReplyAfterWrite(waiter, response, failure)])


def _is_older(asked: int, known: int) -> bool:
    return asked != NO_EPOCH and asked < known


def _refused(waiter: Waiter[A], response: A) -> Outcome[ShareRecord]:
    return Outcome([Reply(waiter, response)])
