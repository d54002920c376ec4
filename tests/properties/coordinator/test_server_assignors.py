"""Invariants of the broker's assignors, for any members, topics and last targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.coordinator.group.modern.assignors import ASSIGNORS, Assignment, Subscriber, ranges, uniform
from felice.coordinator.group.modern.share_assignor import simple

TOPICS = [UUID(int=n) for n in range(1, 5)]
Members: TypeAlias = dict[str, Subscriber]
Counts: TypeAlias = Mapping[UUID, int]

COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
WANTED = st.frozensets(st.sampled_from(TOPICS))
ASSIGNED = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 8), max_size=5), max_size=4)
INSTANCES = st.none() | st.sampled_from("xyz")
NAMES = [f"m{n}" for n in range(9)]
MEMBERS = st.dictionaries(
    st.sampled_from(NAMES), st.builds(Subscriber, WANTED, ASSIGNED, INSTANCES), min_size=1
)


@st.composite
def equal_members(draw: st.DrawFn) -> Members:
    wanted = draw(WANTED)
    return draw(
        st.dictionaries(
            st.sampled_from(NAMES),
            st.builds(Subscriber, st.just(wanted), ASSIGNED, INSTANCES),
            min_size=1,
        )
    )


def shared(members: Members, counts: Counts) -> Assignment:
    return simple(members, {topic: range(count) for topic, count in counts.items()})


ALL: list[Callable[[Members, Counts], Assignment]] = [*ASSIGNORS.values(), shared]


def wanted_partitions(members: Members, counts: Counts) -> set[tuple[UUID, int]]:
    topics = {topic for member in members.values() for topic in member.topics}
    return {(topic, n) for topic in topics for n in range(counts.get(topic, 0))}


def flat(partitions: Mapping[UUID, frozenset[int]]) -> set[tuple[UUID, int]]:
    return {(topic, n) for topic, indexes in partitions.items() for n in indexes}


def holders(assignment: Assignment) -> Counter[tuple[UUID, int]]:
    return Counter(partition for held in assignment.values() for partition in flat(held))


def sizes(assignment: Assignment) -> list[int]:
    return [len(flat(held)) for held in assignment.values()]


def settled(members: Members, assignment: Assignment) -> Members:
    return {
        name: Subscriber(member.topics, assignment[name], member.instance_id)
        for name, member in members.items()
    }


def moved(before: Assignment, after: Assignment) -> int:
    """The partitions that a member has now and had not before."""
    return sum(len(flat(held) - flat(before.get(name, {}))) for name, held in after.items())


@settings(max_examples=40)
@given(MEMBERS, COUNTS)
def test_every_partition_goes_to_subscribers_and_to_one_alone_in_consumer_groups(
    members: Members, counts: Counts
) -> None:
    for assign in ALL:
        found = assign(members, counts)
        assert set(found) == set(members)
        assert set(holders(found)) == wanted_partitions(members, counts)
        assert all(set(held) <= members[name].topics for name, held in found.items())
        assert all(indexes for held in found.values() for indexes in held.values())
        assert assign is shared or set(holders(found).values()) <= {1}


@settings(max_examples=40)
@given(MEMBERS, COUNTS)
def test_the_order_of_the_arguments_does_not_matter(members: Members, counts: Counts) -> None:
    for assign in ALL:
        again = assign(dict(reversed(members.items())), dict(reversed(counts.items())))
        assert assign(members, counts) == again


@settings(max_examples=40)
@given(equal_members(), COUNTS)
def test_members_with_equal_subscriptions_differ_by_one_partition_at_most(
    members: Members, counts: Counts
) -> None:
    for assign in (uniform, shared):
        found = sizes(assign(members, counts))
        assert max(found) - min(found) <= 1


@settings(max_examples=40)
@given(MEMBERS, COUNTS)
def test_with_uniform_no_member_has_what_a_member_with_two_fewer_could_take(
    members: Members, counts: Counts
) -> None:
    found = uniform(members, counts)
    for held in found.values():
        for name, others in found.items():
            if set(held) & members[name].topics:
                assert len(flat(held)) <= len(flat(others)) + 1


@settings(max_examples=40)
@given(MEMBERS, COUNTS)
def test_a_second_run_for_the_same_members_moves_nothing(members: Members, counts: Counts) -> None:
    for assign in ALL:
        found = assign(members, counts)
        assert assign(settled(members, found), counts) == found


@settings(max_examples=40)
@given(equal_members(), COUNTS, st.data())
def test_uniform_moves_only_what_the_leaver_had(
    members: Members, counts: Counts, data: st.DataObject
) -> None:
    before = uniform(members, counts)
    leaver = data.draw(st.sampled_from(sorted(members)))
    rest = settled(members, before)
    del rest[leaver]
    assert moved(before, uniform(rest, counts)) == (len(flat(before[leaver])) if rest else 0)


@settings(max_examples=40)
@given(equal_members(), COUNTS)
def test_uniform_moves_only_what_a_new_member_gets(members: Members, counts: Counts) -> None:
    before = uniform(members, counts)
    topics = next(iter(members.values())).topics
    after = uniform({**settled(members, before), "new": Subscriber(topics)}, counts)
    assert moved(before, after) == len(flat(after["new"]))


@settings(max_examples=40)
@given(MEMBERS, st.integers(0, 9))
def test_range_divides_topics_of_equal_counts_and_subscribers_alike(members: Members, count: int) -> None:
    alike = {name: Subscriber(frozenset(TOPICS[:2]), {}, one.instance_id) for name, one in members.items()}
    for held in ranges(alike, dict.fromkeys(TOPICS, count)).values():
        assert held.get(TOPICS[0]) == held.get(TOPICS[1])
        assert all(max(indexes) - min(indexes) == len(indexes) - 1 for indexes in held.values())


@settings(max_examples=40)
@given(equal_members(), COUNTS)
def test_simple_gives_each_partition_just_enough_members(members: Members, counts: Counts) -> None:
    partitions = wanted_partitions(members, counts)
    if partitions:
        found = shared(members, counts)
        assert set(holders(found).values()) == {-(-len(members) // len(partitions))}
        assert min(sizes(found)) >= 1


@settings(max_examples=40)
@given(MEMBERS, COUNTS)
def test_simple_leaves_no_subscriber_without_a_partition(members: Members, counts: Counts) -> None:
    for name, held in shared(members, counts).items():
        assert held or not any(counts.get(topic) for topic in members[name].topics)


@settings(max_examples=40)
@given(equal_members(), COUNTS, st.data())
def test_simple_takes_nothing_from_members_that_stay_while_sharing_is_the_same(
    members: Members, counts: Counts, data: st.DataObject
) -> None:
    before = shared(members, counts)
    leaver = data.draw(st.sampled_from(sorted(members)))
    rest = settled(members, before)
    del rest[leaver]
    after = shared(rest, counts)
    partitions = len(wanted_partitions(members, counts))
    if partitions and -(-len(rest) // partitions) == -(-len(members) // partitions):
        taken = sum(len(flat(before[name]) - flat(after[name])) for name in rest)
        assert taken <= 1
