"""Share group states for any requests and any outcome of writes: a shard is a function of its log, or of its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.coordinator.share_state.records import ShareRecord, SnapshotRecord
from felice.coordinator.share_state.shard import ShareStateShard
from felice.coordinator.share_state.states import NO_OFFSET, Batches, ShareKey, combined, laid_over, without
from felice.replication.share.states import StateBatch
from properties.replication.share_model import by_offset
from scenarios.share_state_world import ShareStateWorld, first_needed

KEYS = st.sampled_from(["g:1:0", "g:1:1", "h:1:0", "h:2:0", "g:9:0"])
EPOCHS = st.integers(-1, 4)
BATCHES = st.builds(
    StateBatch,
    first=st.integers(0, 30),
    last=st.integers(0, 8),
    state=st.sampled_from([0, 2, 3, 4]),
    deliveries=st.integers(0, 3),
).map(lambda batch: batch._replace(last=batch.first + batch.last))
WORDS = BATCHES.map("{0.first}-{0.last}:{0.state}:{0.deliveries}".format)
WRITES = st.builds(
    "write {} epoch={} leader={} start={} done={} {}".format,
    KEYS,
    EPOCHS,
    EPOCHS,
    st.integers(-1, 25),
    st.integers(-1, 9),
    st.lists(WORDS, max_size=4).map(" ".join),
)
COMMANDS = st.one_of(
    st.builds("init {} epoch={} start={}".format, KEYS, EPOCHS, st.integers(-1, 20)),
    WRITES,
    WRITES,
    st.builds("read {} leader={}".format, KEYS, EPOCHS),
    st.builds("summary {}".format, KEYS),
    st.builds("delete {}".format, KEYS),
    st.builds("drop {}".format, st.integers(1, 2)),
    st.builds("advance {}".format, st.sampled_from([1, 600, 2000])),
    st.sampled_from(
        [
            "hold",
            "release",
            "refuse NOT_COORDINATOR",
            "lose COORDINATOR_NOT_AVAILABLE",
            "failover",
            "failover kept",
        ]
    ),
)
BEGINNING = [
    "settings updates_per_snapshot=2 snapshot_interval_ms=1000",
    "init g:1:0 epoch=1",
    "init h:1:0 epoch=1",
]


def execute(world: ShareStateWorld, command: str) -> None:
    if command.startswith("lose") and world.held:
        world.execute("release")  # no write reaches the log before an earlier one
    world.execute(command)


def replayed(world: ShareStateWorld, records: list[ShareRecord]) -> ShareStateShard:
    shard = world.new_shard()
    for record in records:
        shard.replay(record)
    return shard


def written(world: ShareStateWorld) -> list[ShareRecord]:
    return world.records() + [record for write in world.held for record in write.records]


@settings(max_examples=150, deadline=None)
@given(st.lists(COMMANDS, max_size=40))
def test_after_each_event_the_shard_is_what_its_log_says(commands: list[str]) -> None:
    world = ShareStateWorld()
    for command in [*BEGINNING, *commands]:
        execute(world, command)
        records = written(world)
        assert replayed(world, records).states == world.shard.states
        needed = first_needed(records)
        assert replayed(world, records[needed:]).states == world.shard.states
        later = records[needed + 1 :]
        assert not world.shard.states or replayed(world, later).states != world.shard.states
    world.execute("release")
    assert all(waiter.answers == 1 for waiter in world.waiters)


@dataclass
class Naive:
    """A state as a dictionary of offsets, by the records alone."""

    epochs: tuple[int, int] = (-1, -1)
    start: int = NO_OFFSET
    snapshot_epoch: int = -1
    updates: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply(self, record: ShareRecord) -> None:
        if isinstance(record, SnapshotRecord):
            state = record.state
            assert state is not None and state.snapshot_epoch == self.snapshot_epoch + 1
            epochs, start, self.offsets, self.updates = (
                (state.state_epoch, state.leader_epoch),
                state.start_offset,
                {},
                0,
            )
            self.snapshot_epoch = state.snapshot_epoch
            batches = state.batches
        else:
            assert record.update.snapshot_epoch == self.snapshot_epoch
            assert record.update.start_offset >= self.start
            epochs, start = (self.epochs[0], record.update.leader_epoch), record.update.start_offset
            batches = record.update.batches
            self.updates += 1
        assert (
            epochs[0] > self.epochs[0] or (epochs >= self.epochs and start >= self.start) or not self.updates
        )
        assert epochs >= self.epochs
        self.epochs, self.start = epochs, start
        self.offsets.update(by_offset(batches))
        self.offsets = {offset: value for offset, value in self.offsets.items() if offset >= start}


@settings(max_examples=150, deadline=None)
@given(st.lists(COMMANDS, max_size=40))
def test_updates_are_laid_over_what_was_there_and_epochs_only_rise(commands: list[str]) -> None:
    world = ShareStateWorld()
    for command in [*BEGINNING, *commands]:
        execute(world, command)
    world.execute("release")
    states: dict[ShareKey, Naive] = {}
    for record in world.records():
        if isinstance(record, SnapshotRecord) and record.state is None:
            del states[record.key]
            continue
        states.setdefault(record.key, Naive()).apply(record)
        assert states[record.key].updates <= 2
    assert states.keys() == world.shard.states.keys()
    for key, naive in states.items():
        found = world.shard.states[key]
        assert (found.state_epoch, found.leader_epoch) == naive.epochs
        assert (found.start_offset, found.updates) == (naive.start, naive.updates)
        assert by_offset(found.batches) == naive.offsets
        check_sound(found.batches)


def check_sound(batches: Batches) -> None:
    for before, after in pairwise(batches):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]


@settings(max_examples=300, deadline=None)
@given(st.lists(BATCHES, max_size=12), st.lists(BATCHES, max_size=6), st.integers(0, 40))
def test_batches_are_combined_as_offsets_are(
    old: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    expected = {}
    for batch in [*old, *new]:
        expected.update(by_offset((batch,)))
    result = laid_over(combined(old), combined(new))
    assert by_offset(result) == expected
    check_sound(result)
    cut = without(result, start)
    assert by_offset(cut) == {offset: value for offset, value in expected.items() if offset >= start}
    check_sound(cut)
