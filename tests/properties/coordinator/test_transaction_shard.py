"""Invariants of a transactional id, for any requests of producers and any outcome of writes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.coordinator.transaction.metadata import LAST_EPOCH, V2, TransactionMetadata
from felice.coordinator.transaction.states import COMPLETION, TransactionState
from scenarios.transaction_world import ID, TransactionWorld

NAMES = st.sampled_from(["A", "B", "C"])
COMMANDS = st.one_of(
    st.builds("init {}".format, NAMES),
    st.builds("init {} resume".format, NAMES),
    st.builds("add {} t/{}".format, NAMES, st.integers(0, 2)),
    st.builds("verify {} t/{}".format, NAMES, st.integers(0, 2)),
    st.builds("commit {}".format, NAMES),
    st.builds("abort {}".format, NAMES),
    st.builds("add {} t/{} v2".format, NAMES, st.integers(0, 2)),
    st.builds("commit {} v2".format, NAMES),
    st.builds("abort {} v2".format, NAMES),
    st.builds("advance {}".format, st.sampled_from([0, 1000, 10_000, 61_000])),
    st.sampled_from(
        [
            "complete",
            "hold",
            "release",
            "reload",
            "refuse NOT_COORDINATOR",
            "lose COORDINATOR_NOT_AVAILABLE",
        ]
    ),
)
# The producer's epoch is the first one, or close to the last.
COMMAND_LISTS = st.builds(
    lambda beginning, commands: [*beginning, *commands],
    st.sampled_from([[], ["init A", "exhaust A"]]),
    st.lists(COMMANDS, max_size=40),
)


def history(world: TransactionWorld) -> list[TransactionMetadata]:
    records = [world.codec.decode(key, value) for key, value in world.log]
    return [record.metadata for record in records if record is not None and record.metadata is not None]


@settings(max_examples=300, deadline=None)
@given(COMMAND_LISTS)
def test_a_decision_is_kept_until_it_is_complete_and_epochs_only_rise(commands: list[str]) -> None:
    world = TransactionWorld()
    for command in commands:
        world.execute(command)
    before: TransactionMetadata | None = None
    for now in history(world):
        if before is not None:
            assert (now.producer_id, now.epoch) >= (before.producer_id, before.epoch)
            assert 0 <= now.epoch <= LAST_EPOCH
            if before.state.is_decided:
                assert now.state in (before.state, COMPLETION[before.state])
            if now.state is TransactionState.PREPARE_COMMIT and before.state is TransactionState.ONGOING:
                assert now.partitions == before.partitions
        before = now


@settings(max_examples=300, deadline=None)
@given(COMMAND_LISTS)
def test_every_request_is_answered_once_and_every_decision_completes(commands: list[str]) -> None:
    world = TransactionWorld()
    for command in commands:
        if command == "reload" and world.held:
            world.execute("release")
        world.execute(command)
    world.execute("release")
    assert all(waiter.answers == 1 for waiter in world.waiters)
    world.execute("advance 5000")
    world.execute("complete")
    current = world.shard.transactions.get(ID)
    assert current is None or not current.state.is_decided


@settings(max_examples=200, deadline=None)
@given(COMMAND_LISTS)
def test_no_two_producers_hold_the_same_identity(commands: list[str]) -> None:
    world = TransactionWorld()
    given_to: dict[tuple[int, int], str] = {}
    for command in commands:
        if command == "hold":
            continue
        held = dict(world.identities)
        world.execute(command)
        for name, identity in world.identities.items():
            if identity != held.get(name):
                assert given_to.setdefault(identity, name) == name
                assert identity[1] < LAST_EPOCH


@settings(max_examples=300, deadline=None)
@given(COMMAND_LISTS)
def test_in_v2_the_end_of_a_transaction_has_a_higher_epoch_than_the_transaction(commands: list[str]) -> None:
    """The next transaction begins with the identity that the producer got."""
    world = TransactionWorld()
    for command in commands:
        world.execute(command)
    records = history(world)
    for before, now in pairwise(records):
        if now.state.is_decided and not before.state.is_decided and now.client_version == V2:
            assert (now.producer_id, now.epoch) == (before.producer_id, before.epoch + 1)
            assert now.next_producer_id < 0 or now.epoch == LAST_EPOCH
        if before.next_producer_id >= 0 and not now.state.is_decided:
            assert (now.producer_id, now.epoch) == (before.next_producer_id, 0)


@settings(max_examples=200, deadline=None)
@given(COMMAND_LISTS)
def test_a_restart_restores_the_state(commands: list[str]) -> None:
    world = TransactionWorld()
    for command in commands:
        world.execute(command)
    world.execute("release")
    world.execute("advance 5000")
    world.execute("complete")
    before = dict(world.shard.transactions)
    world.execute("reload")
    found = world.shard.transactions
    assert found.keys() == before.keys()
    for transactional_id, metadata in found.items():
        was = before[transactional_id]
        assert (metadata.state, metadata.producer_id, metadata.epoch, metadata.partitions) == (
            was.state,
            was.producer_id,
            was.epoch,
            was.partitions,
        )
