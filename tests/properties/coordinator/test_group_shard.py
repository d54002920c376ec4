"""Invariants of a group, for any requests of clients and any outcome of writes."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.shard import NEVER_MS
from scenarios.group_world import GroupWorld

NAMES = st.sampled_from(["A", "B", "C"])
INSTANCES = st.sampled_from(["", "", " instance=i", " instance=j"])
PROTOCOLS = st.sampled_from(["range:m", "range:n", "range:m,roundrobin:m", "roundrobin:m,range:m"])
COMMANDS = st.one_of(
    st.builds("join {} v={} protocols={}{}".format, NAMES, st.sampled_from([3, 4, 9]), PROTOCOLS, INSTANCES),
    st.builds("join {} as= v={}{}".format, NAMES, st.sampled_from([3, 9]), INSTANCES),
    st.builds("sync {} assign=A:a,B:b,C:c{}".format, NAMES, INSTANCES),
    st.builds("heartbeat {}{}".format, NAMES, INSTANCES),
    st.builds("leave {}{}".format, NAMES, INSTANCES),
    st.builds("commit {} t/{}={}".format, NAMES, st.integers(0, 2), st.integers(0, 99)),
    st.builds("commit t/{}={}".format, st.integers(0, 2), st.integers(0, 99)),
    st.builds("advance {}".format, st.sampled_from([0, 1, 2500, 5999, 10_000, 60_000])),
    st.sampled_from(
        ["hold", "release", "refuse NOT_COORDINATOR", "refuse COORDINATOR_NOT_AVAILABLE", "delete", "reload"]
    ),
)
COMMAND_LISTS = st.lists(COMMANDS, max_size=40)
MAX_SIZE = 3
LIMITS = f"settings initial_rebalance_delay_ms=3000 max_size={MAX_SIZE}"


def play(commands: list[str]) -> GroupWorld:
    world = GroupWorld()
    world.execute(LIMITS)
    generation = 0
    for command in commands:
        if command == "reload" and world.held:
            world.execute("release")
        world.execute(command)
        group = world.shard.groups.get("g")
        if group is None or command in ("delete", "reload"):
            generation = group.generation if group else 0
            continue
        check(group)
        assert group.generation >= generation, "a generation never falls"
        generation = group.generation
    return world


def check(group: ClassicGroup) -> None:
    members = list(group.members.values())
    assert group.joining_count == sum(member.joining is not None for member in members)
    assert (group.leader_id in group.members) if members else group.leader_id is None
    assert group.static_members == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
    check_size(group)
    assert not group.pending_joins.keys() & group.members.keys()
    assert group.pending_syncs.keys() <= group.members.keys()
    for name, count in group.protocol_support.items():
        assert count == sum(name in dict(member.protocols) for member in members)
    match group.state:
        case GroupState.EMPTY:
            assert not members
        case GroupState.PREPARING_REBALANCE:
            assert group.join_deadline_ms < NEVER_MS, "a rebalance has a deadline"
            assert all(member.syncing is None for member in members)
        case GroupState.COMPLETING_REBALANCE:
            assert all(member.joining is None for member in members)
        case GroupState.STABLE:
            assert all(member.syncing is None for member in members)
    deadlines = [
        group.join_deadline_ms,
        group.sync_deadline_ms,
        *group.pending_joins.values(),
        *(member.session_deadline_ms for member in members if member.expires),
    ]
    assert group.wake_at_ms <= min(deadlines), "the alarm is never late"


def check_size(group: ClassicGroup) -> None:
    """The size limit counts rejoined members during a rebalance, and dynamic members otherwise."""
    if group.state is GroupState.PREPARING_REBALANCE:
        assert group.joining_count <= MAX_SIZE
    else:
        assert sum(member.instance_id is None for member in group.members.values()) <= MAX_SIZE


@settings(max_examples=200, deadline=None)
@given(COMMAND_LISTS)
@example(["join A as= v=3", "advance 5999", *["join A as= v=3"] * 3])
def test_a_group_keeps_its_invariants(commands: list[str]) -> None:
    play(commands)


@settings(max_examples=100, deadline=None)
@given(COMMAND_LISTS)
def test_every_request_is_answered_eventually(commands: list[str]) -> None:
    """`ClientWaiter` asserts that no request is answered twice."""
    world = play(commands)
    world.execute("release")
    world.execute("advance 10000000")
    assert [waiter.name for waiter in world.waiters if not waiter.answers] == []


@settings(max_examples=100, deadline=None)
@given(COMMAND_LISTS)
def test_a_restart_keeps_committed_state(commands: list[str]) -> None:
    world = play(commands)
    world.execute("release")
    before, offsets = world.shard.groups.get("g"), world.shard.offsets.topics("g")
    world.execute("reload")
    after = world.shard.groups.get("g")
    assert world.shard.offsets.topics("g") == offsets
    if before is None:
        assert after is None
        return
    assert after is not None
    is_stored = after.generation == before.generation and after.state is GroupState.STABLE
    if is_stored and before.previous_state is GroupState.COMPLETING_REBALANCE:
        assert {m.member_id: m.assignment for m in after.members.values()} == {
            m.member_id: m.assignment for m in before.members.values()
        }
        assert after.leader_id == before.leader_id
