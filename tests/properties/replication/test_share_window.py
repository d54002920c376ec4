"""The window of a share partition does what a dictionary of offsets does, for any order of calls, writes and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.protocol.errors import ErrorCode
from felice.replication.share.acknowledgements import AcknowledgedRange
from felice.replication.share.acquiring import AcquireMode, LogBatch, LogRead, Wanted
from felice.replication.share.runs import NEVER_MS
from felice.replication.share.settings import ReleaseDelay, WindowSettings
from felice.replication.share.states import RecordState, StateBatch
from felice.replication.share.window import Change, DeadLetter, Window
from properties.replication.share_model import COPYING, Cell, Model, Written, by_offset

MEMBERS = st.sampled_from(["A", "B"])
SETTINGS = st.builds(
    WindowSettings,
    delivery_count_limit=st.integers(2, 6),
    max_record_locks=st.integers(1, 30),
    lock_duration_ms=st.just(10),
    may_renew=st.booleans(),
    release_delay=st.sampled_from([None, ReleaseDelay(first_ms=3, max_ms=8)]),
    has_dead_letters=st.booleans(),
)
TYPES = st.lists(st.integers(0, 4), min_size=1, max_size=6)


@dataclass
class World:
    """The window and the model side by side; every command is done by both, then they are compared."""

    config: WindowSettings
    log: list[LogBatch]
    window: Window
    model: Model
    now_ms: int = 0
    open: list[Change] = field(default_factory=list)
    acquired: int = 0

    # Commands

    def acquire(self, member: str, wanted: Wanted, batches: int, back: int) -> None:
        offset = max(self.window.fetch_offset - back, 0)
        found = [batch for batch in self.log if batch.last >= offset][:batches]
        read = LogRead(offset, found)
        start = self.window.start_offset
        acquisition = self.window.acquire(member, read, wanted, self.now_ms)
        taken, written = self.model.acquire(member, read, wanted, self.now_ms)
        assert {
            at: part.deliveries for part in acquisition.ranges for at in range(part.first, part.last + 1)
        } == taken
        assert all(deliveries <= self.config.delivery_count_limit for deliveries in taken.values())
        if wanted.mode is AcquireMode.RECORD_LIMIT:
            assert len(taken) <= max(wanted.max_records, 0)
        self.acquired += len(taken)
        self.note(acquisition.change, written, start)

    def acknowledge_held(self, member: str, types: list[int], skip: int, is_renewal: bool) -> None:
        held = self.model.held(member)[skip:]
        self.acknowledge(
            member,
            [AcknowledgedRange(at, at, [kind]) for at, kind in zip(held, types, strict=False)],
            is_renewal,
        )

    def acknowledge_far(
        self, member: str, ranges: list[tuple[int, int, list[int]]], is_renewal: bool
    ) -> None:
        first = max(self.model.start - 2, 0)
        asked = []
        for before, size, types in ranges:
            first += before
            asked.append(AcknowledgedRange(first, first + size - 1, types[:1] if size > 3 else types))
            first += size
        self.acknowledge(member, asked, is_renewal)

    def acknowledge(self, member: str, ranges: list[AcknowledgedRange], is_renewal: bool) -> None:
        start = self.window.start_offset
        result = self.window.acknowledge(member, ranges, self.now_ms, is_renewal=is_renewal)
        expected = self.model.acknowledge(member, ranges, self.now_ms, is_renewal)
        if isinstance(expected, ErrorCode):
            assert result is expected
        else:
            assert (result is ErrorCode.NONE) == (not expected)
            self.note(result if isinstance(result, Change) else None, expected, start)

    def release(self, member: str) -> None:
        self.note(self.window.release(member), self.model.release(member), self.window.start_offset)

    def copied(self) -> None:
        letters = self.window.dead_letters
        offsets = [at for letter in letters for at in range(letter.first, letter.last + 1)]
        free = [at for at, cell in sorted(self.model.cells.items()) if cell.state is COPYING]
        assert offsets == [at for at in free if self.model.cells[at].change is None]
        assert all(self.model.cells[part.first].deliveries == part.deliveries for part in letters)
        stale = [DeadLetter(at, at, 1) for at in self.model.cells][:1]
        for asked in (letters, stale):
            start = self.window.start_offset
            expected = self.model.copied(at for part in asked for at in range(part.first, part.last + 1))
            self.note(self.window.copied(asked), expected, start)

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def on_time(self) -> None:
        start = self.window.start_offset
        self.note(self.window.on_time(self.now_ms), self.model.on_time(self.now_ms), start)

    def log_start(self, ahead: int) -> None:
        offset = self.window.start_offset + ahead
        change = self.window.log_start(offset)
        assert (change is not None) == self.model.log_start(offset)
        if change is not None:
            assert (change.start_offset, change.batches) == (offset, ())
            self.open.append(change)
        self.model.pass_done()

    def settle(self, index: int, is_written: bool) -> None:
        if self.open:
            change = self.open.pop(index % len(self.open))
            self.window.settle(change, is_written=is_written)
            self.model.settle(change.number, is_written)

    # Checks

    def note(self, change: Change | None, written: Written, start: int) -> None:
        assert by_offset(change.batches if change else ()) == written
        if change is not None:
            assert (change.number, change.start_offset) == (self.model.number, start)
            assert change.done_count == self.model.done
            self.open.append(change)
        self.model.pass_done()

    def check(self) -> None:
        window, model = self.window, self.model
        window.check()
        assert (window.start_offset, window.end_offset) == (model.start, model.end)
        cells = {
            at: Cell(
                run.state,
                run.deliveries,
                run.holder,
                None if run.deadline_ms == NEVER_MS else run.deadline_ms,
                *(
                    (run.pending.change, run.pending.state, _time(run.pending.deadline_ms))
                    if run.pending
                    else (None, None, None)
                ),
            )
            for run in window.runs
            for at in range(run.first, run.last + 1)
        }
        assert cells == model.cells
        assert (window.done_count, window.fetch_offset) == (model.done, model.fetch_offset)
        earliest_ms = model.earliest_ms
        assert earliest_ms is None or window.next_deadline_ms <= earliest_ms


def _time(deadline_ms: int) -> int | None:
    return None if deadline_ms == NEVER_MS else deadline_ms


Command = Callable[[World], None]


def command(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Command]:
    def make(*values: object) -> Command:
        def run(world: World) -> None:
            getattr(world, name)(*values)

        run.__qualname__ = f"{name}{values}"
        return run

    return st.builds(make, *arguments)


WANTED = st.builds(
    Wanted,
    max_records=st.sampled_from([0, 1, 2, 5, 100]),
    batch_size=st.integers(0, 8),
    mode=st.sampled_from(AcquireMode),
)
ACQUIRE = command("acquire", MEMBERS, WANTED, st.integers(0, 4), st.sampled_from([0, 0, 0, 2]))
FAR = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5), TYPES), max_size=3)
COMMANDS = st.lists(
    st.one_of(
        ACQUIRE,
        ACQUIRE,
        command("acknowledge_held", MEMBERS, TYPES, st.integers(0, 3), st.booleans()),
        command("acknowledge_held", MEMBERS, st.just([2] * 40), st.just(0), st.just(False)),
        command("acknowledge_far", MEMBERS, FAR, st.booleans()),
        command("release", MEMBERS),
        command("copied"),
        command("advance", st.integers(1, 11)),
        command("on_time"),
        command("on_time"),
        command("log_start", st.integers(-1, 12)),
        command("settle", st.integers(0, 9), st.booleans()),
        command("settle", st.just(0), st.just(True)),
    ),
    max_size=60,
)


@st.composite
def logs(draw: st.DrawFn) -> list[LogBatch]:
    """Batches of some records each, with holes between them, as after a compaction."""
    batches, at = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 12))):
        size = draw(st.integers(1, 8))
        batches.append(LogBatch(at, at + size - 1, draw(st.sampled_from([False, False, False, True]))))
        at += size + draw(st.sampled_from([0, 0, 0, 3]))
    return batches


@settings(max_examples=200, deadline=None)
@given(SETTINGS, logs(), COMMANDS)
def test_the_window_does_what_its_model_does(
    config: WindowSettings, log: list[LogBatch], commands: list[Command]
) -> None:
    world = World(config, log, Window(0, config), Model(0, config))
    for run in commands:
        run(world)
        world.check()


STORED = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from([0, 2, 3, 4]), st.integers(0, 6)),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(SETTINGS, st.integers(0, 6), STORED)
def test_a_loaded_window_has_the_stored_states_and_gaps_that_are_available(
    config: WindowSettings, start: int, stored: list[tuple[int, int, int, int]]
) -> None:
    batches, at = [], 0
    for gap, size, state, deliveries in stored:
        at += gap
        batches.append(StateBatch(at, at + size - 1, state, deliveries))
        at += size
    cells = {
        offset: Cell(RecordState(state), deliveries)
        for offset, (state, deliveries) in by_offset(batches).items()
        if offset >= start
    }
    if not config.has_dead_letters:
        cells = {
            offset: Cell(RecordState.ARCHIVED, cell.deliveries) if cell.state is COPYING else cell
            for offset, cell in cells.items()
        }
    world = World(config, [], Window.loaded(start, batches, config), Model(start, config, cells))
    world.check()
