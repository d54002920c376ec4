"""The window of a share partition: the records between its start and its end, and their holders. A state machine.

Keeps true:  Q1  each offset of the window is in one run (`runs`).
             Q2  a record has one holder at most, and one change of it is being written at a time. Only the holder, or
                 the end of its lock, decides the next state of the record.
             Q3  the start never goes back. It passes a record that is done or no longer in the log; if a member
                 acknowledged the record, only when that is written.
How:         an event returns the change to write, and `settle` ends it. What a member decides takes effect when it is
             written: until then the record is still acquired, and stays acquired if the write fails. A change that
             cannot be taken back (a lock ran out, an offset has no record) takes effect at once. It is written so that
             the group's state has it, too; this write may fail.
             Acquisitions are not written: for the next leader these records are available.
             A lock is a time in a run. `next_deadline_ms` is a lower bound, so that one timer serves a window.
Leaves:      sessions, the log, the write, and fetches that wait for records, to the shell. After each call there may be
             more to acquire (`may_acquire`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from felice.dataclass import dataclass
from felice.protocol.errors import BrokenInvariant, ErrorCode
from felice.replication.share import acquiring
from felice.replication.share.acknowledgements import AcknowledgedRange, AcknowledgeType, are_sound, pieces_of
from felice.replication.share.acquiring import AcquiredRange, LogRead, Wanted
from felice.replication.share.runs import NEVER_MS, Pending, Run, Runs
from felice.replication.share.settings import WindowSettings
from felice.replication.share.states import DONE, RecordState, StateBatch, joined

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """A change to write with WriteShareGroupState. The start offset is the one before the change, as in Kafka.

    `done_count` counts the done offsets from the start on, with those of this change and of others that are being
    written: the shell writes changes in the order of their numbers.
    """

    number: int
    start_offset: int
    done_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class Acquisition:
    """The ranges that a fetch acquired, and the change to write for offsets that have no record to deliver."""

    ranges: list[AcquiredRange]
    change: Change | None = None


class DeadLetter(NamedTuple):
    """Offsets whose records must be copied into the dead-letter topic, and how often they were delivered."""

    first: int
    last: int
    deliveries: int


class Window:
    """The window of one share partition, while this broker leads the partition."""

    def __init__(self, start_offset: int, settings: WindowSettings) -> None:
        self.settings = settings
        """The shell replaces them when the group's configuration changes."""
        self._runs = Runs(start_offset)
        self._number = 0
        self._under_way: set[int] = set()
        self._next_deadline_ms = NEVER_MS

    @classmethod
    def loaded(cls, start_offset: int, batches: Iterable[StateBatch], settings: WindowSettings) -> Window:
        """The window of a new leader from the group's stored state. Offsets between the batches are available."""
        window = cls(start_offset, settings)
        runs = window._runs
        for batch in batches:
            first = max(batch.first, runs.end + 1)
            if batch.last < first:
                continue
            if runs.end + 1 < first:
                runs.append(Run(runs.end + 1, first - 1, RecordState.AVAILABLE))
            runs.append(Run(first, batch.last, window._loaded_state(batch.state), batch.deliveries))
        runs.pass_done()
        return window

    def _loaded_state(self, number: int) -> RecordState:
        if number == RecordState.ARCHIVING and not self.settings.has_dead_letters:
            return RecordState.ARCHIVED
        # Records in other states than these, also unknown ones, are delivered again.
        is_kept = number in DONE or number == RecordState.ARCHIVING
        return RecordState(number) if is_kept else RecordState.AVAILABLE

    # Facts

    @property
    def start_offset(self) -> int:
        """All records before it are done."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """The last offset that was ever acquired or archived; one less than the start offset if there is none."""
        return self._runs.end

    @property
    def done_count(self) -> int:
        """How many offsets from the start on are done, or will be once written: lag = log end - start - done."""
        return self._runs.done

    @property
    def fetch_offset(self) -> int:
        """Where the log is read for the next acquisition."""
        return self._runs.first_free

    @property
    def may_acquire(self) -> bool:
        """Whether a fetch can acquire something, if the log has it."""
        return self._runs.size < self.settings.max_record_locks or self.fetch_offset <= self._runs.end

    @property
    def next_deadline_ms(self) -> int:
        """When `on_time` must be called next, or somewhat earlier."""
        return self._next_deadline_ms

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Records to copy. They block the start until `copied` says that they are in the dead-letter topic."""
        return [
            DeadLetter(run.first, run.last, run.deliveries)
            for run in self._runs
            if run.state is RecordState.ARCHIVING and run.pending is None
        ]

    @property
    def runs(self) -> Sequence[Run]:
        """All runs, in order: for tests, and for showing the window."""
        return tuple(self._runs)

    def check(self) -> None:
        """Raises `BrokenInvariant` if Q1 does not hold."""
        self._runs.check()

    # Events

    def acquire(self, member: str, read: LogRead, wanted: Wanted, now_ms: int) -> Acquisition:
        """Gives the member records that were read from the log, and archives offsets that cannot be delivered."""
        runs = self._runs
        plan = acquiring.plan(runs, read, wanted, self.settings)
        if plan.end > runs.end:
            runs.append(Run(runs.end + 1, plan.end, RecordState.AVAILABLE))
        deadline_ms = now_ms + self.settings.lock_duration_ms
        writing: list[StateBatch] = []

        def changed(run: Run, is_acquired: bool) -> Run:
            if not run.is_free:
                raise _broken("a record is acquired that is not available", run)
            if is_acquired:
                return Run(run.first, run.last, RecordState.ACQUIRED, run.deliveries + 1, member, deadline_ms)
            writing.append(_written(run, RecordState.ARCHIVED))
            return Run(run.first, run.last, RecordState.ARCHIVED, run.deliveries)

        runs.rewrite(plan.pieces, changed)
        if plan.ranges:
            self._wake_at(deadline_ms)
        return Acquisition(plan.ranges, self._change_at_once(writing))

    def acknowledge(
        self, member: str, ranges: Sequence[AcknowledgedRange], now_ms: int, *, is_renewal: bool = False
    ) -> Change | ErrorCode:
        """All ranges or none: the change to write, NONE if there is nothing to write, or the error of the partition.

        Offsets before the start are ignored: a late acknowledgement is no error.
        """
        if not are_sound(ranges, is_renewal=is_renewal):
            return ErrorCode.INVALID_REQUEST
        known = [range_ for range_ in ranges if range_.last <= self._runs.end]
        pieces = pieces_of(known, self._runs.start)
        if not all(
            run.is_held(member, now_ms) for first, last, _ in pieces for run in self._runs.within(first, last)
        ):
            return ErrorCode.INVALID_RECORD_STATE
        if len(known) < len(ranges):
            # Kafka distinguishes these two, although nobody was given the records in either case.
            return ErrorCode.INVALID_REQUEST if len(self._runs) else ErrorCode.INVALID_RECORD_STATE
        renewed = [piece for piece in pieces if piece[2] is AcknowledgeType.RENEW]
        if renewed and not self.settings.may_renew:
            return ErrorCode.INVALID_RECORD_STATE
        self._renew(renewed, now_ms + self.settings.lock_duration_ms)
        decided = [piece for piece in pieces if piece[2] is not AcknowledgeType.RENEW]
        return (
            self._begin(decided, lambda run, type_: self._decided(type_, run.deliveries, now_ms))
            or ErrorCode.NONE
        )

    def _renew(self, pieces: list[tuple[int, int, AcknowledgeType]], deadline_ms: int) -> None:
        self._runs.rewrite(pieces, lambda run, _: run._replace(deadline_ms=deadline_ms))

    def _decided(self, type_: AcknowledgeType, deliveries: int, now_ms: int) -> tuple[RecordState, int]:
        """The next state of a record, and until when it is delayed."""
        if type_ is AcknowledgeType.ACCEPT:
            return RecordState.ACKNOWLEDGED, NEVER_MS
        if type_ is AcknowledgeType.GAP:
            return RecordState.ARCHIVED, NEVER_MS
        if type_ is AcknowledgeType.REJECT:
            return self._undeliverable, NEVER_MS
        state = self._released(deliveries)
        delay = self.settings.release_delay
        if delay is None or state is not RecordState.AVAILABLE:
            return state, NEVER_MS
        return state, now_ms + delay.after(deliveries)

    @property
    def _undeliverable(self) -> RecordState:
        return RecordState.ARCHIVING if self.settings.has_dead_letters else RecordState.ARCHIVED

    def _released(self, deliveries: int) -> RecordState:
        is_over = deliveries >= self.settings.delivery_count_limit
        return self._undeliverable if is_over else RecordState.AVAILABLE

    def release(self, member: str) -> Change | None:
        """The member's session has ended: releases what it holds, without a delay.

        Changes that are being written go on. If one fails, its records stay acquired until their lock runs out.
        """
        held = [
            (run.first, run.last, None)
            for run in self._runs
            if run.state is RecordState.ACQUIRED and run.holder == member and run.pending is None
        ]
        return self._begin(held, lambda run, _: (self._released(run.deliveries), NEVER_MS))

    def copied(self, letters: Sequence[DeadLetter]) -> Change | None:
        """The records are in the dead-letter topic: they are archived when the change is written."""

        def archived(run: Run, _: None) -> tuple[RecordState, int] | None:
            is_copied = run.state is RecordState.ARCHIVING and run.pending is None
            return (RecordState.ARCHIVED, NEVER_MS) if is_copied else None

        return self._begin(self._inside((letter.first, letter.last) for letter in letters), archived)

    def on_time(self, now_ms: int) -> Change | None:
        """Ends locks that ran out and delays that are over. A lock waits while a change of its record is written."""
        if now_ms < self._next_deadline_ms:
            return None
        writing: list[StateBatch] = []

        def changed(run: Run, _: None) -> Run:
            if run.state is RecordState.AVAILABLE:
                return Run(run.first, run.last, RecordState.AVAILABLE, run.deliveries)
            state = self._released(run.deliveries)
            writing.append(_written(run, state))
            return Run(run.first, run.last, state, run.deliveries)

        due = [
            (run.first, run.last, None)
            for run in self._runs
            if run.deadline_ms <= now_ms and run.pending is None
        ]
        self._runs.rewrite(due, changed)
        self._next_deadline_ms = min(
            (run.deadline_ms for run in self._runs if run.pending is None), default=NEVER_MS
        )
        return self._change_at_once(writing)

    def log_start(self, offset: int) -> Change | None:
        """The log begins at `offset` now: earlier records are gone, also those that a member holds."""
        if offset <= self._runs.start:
            return None
        self._runs.cut(offset)
        change = self._new_change(())
        self._runs.pass_done()
        return change

    # Changes

    def _begin(
        self, pieces: Sequence[tuple[int, int, T]], decide: Callable[[Run, T], tuple[RecordState, int] | None]
    ) -> Change | None:
        """Begins a change of each run to the state and the deadline that `decide` returns. None leaves the run."""
        number = self._number + 1
        writing: list[StateBatch] = []

        def changed(run: Run, value: T) -> Run:
            decided = decide(run, value)
            if decided is None:
                return run
            writing.append(_written(run, decided[0]))
            return Run(*run[:6], Pending(number, *decided))

        self._runs.rewrite(pieces, changed)
        return self._change(writing)

    def _change(self, writing: list[StateBatch]) -> Change | None:
        return self._new_change(joined(writing)) if writing else None

    def _change_at_once(self, writing: list[StateBatch]) -> Change | None:
        change = self._change(writing)
        self._runs.pass_done()
        return change

    def _new_change(self, batches: tuple[StateBatch, ...]) -> Change:
        self._number += 1
        self._under_way.add(self._number)
        return Change(self._number, self._runs.start, self._runs.done, batches)

    def settle(self, change: Change, *, is_written: bool) -> None:
        """The write of the change succeeded or failed. Call it once for each change.

        If a write failed, its records are acquired as before, until their lock runs out: if it already did, the next
        `on_time`, which is due at once, releases them.
        """
        if change.number not in self._under_way:
            raise _broken("a change ends that is not under way", change.number)
        self._under_way.discard(change.number)
        earliest_ms = NEVER_MS

        def changed(run: Run, _: None) -> Run:
            nonlocal earliest_ms
            pending = run.pending
            if pending is None or pending.change != change.number:
                return run
            if not is_written:
                earliest_ms = min(earliest_ms, run.deadline_ms)
                return Run(*run[:6])
            earliest_ms = min(earliest_ms, pending.deadline_ms)
            return Run(run.first, run.last, pending.state, run.deliveries, "", pending.deadline_ms)

        self._runs.rewrite(self._inside((batch.first, batch.last) for batch in change.batches), changed)
        self._wake_at(earliest_ms)
        self._runs.pass_done()

    def _inside(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int, None]]:
        """The parts that are still in the window: the start of the log may have moved meanwhile."""
        start = self._runs.start
        return [(max(first, start), last, None) for first, last in ranges if last >= start]

    def _wake_at(self, deadline_ms: int) -> None:
        self._next_deadline_ms = min(self._next_deadline_ms, deadline_ms)


def _written(run: Run, state: RecordState) -> StateBatch:
    return StateBatch(run.first, run.last, state, run.deliveries)


def _broken(what: str, found: object) -> BrokenInvariant:
    return BrokenInvariant("Q2", what, found=found)
