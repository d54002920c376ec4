"""The broker's assignors on small groups, with what Apache Kafka 4.3.1 does in them."""

from __future__ import annotations

from uuid import UUID

import pytest

from felice.coordinator.group.modern.assignors import ASSIGNORS, Assignment, Subscriber, ranges, uniform
from felice.coordinator.group.modern.share_assignor import simple

A, B = UUID(int=1), UUID(int=2)
BOTH = frozenset((A, B))


def counted(assignment: Assignment) -> dict[str, int]:
    return {name: sum(map(len, held.values())) for name, held in assignment.items()}


def test_the_first_assignor_is_kafkas_default() -> None:
    assert list(ASSIGNORS) == ["uniform", "range"]


def test_range_gives_static_members_the_first_ranges_in_the_order_of_their_instances() -> None:
    members = {
        "a": Subscriber(BOTH),
        "b": Subscriber(BOTH, instance_id="y"),
        "c": Subscriber(BOTH, {A: frozenset((4,))}, instance_id="x"),
    }
    assert ranges(members, {A: 5, B: 4}) == {
        "c": {A: frozenset((0, 1)), B: frozenset((0, 1))},
        "b": {A: frozenset((2, 3)), B: frozenset((2,))},
        "a": {A: frozenset((4,)), B: frozenset((3,))},
    }


def test_only_the_partitions_of_the_fifth_member_move_when_it_leaves() -> None:
    members = {name: Subscriber(BOTH) for name in "vwxyz"}
    before = uniform(members, {A: 6, B: 6})
    assert sorted(counted(before).values()) == [2, 2, 2, 3, 3]
    rest = {name: Subscriber(BOTH, before[name]) for name in "vwxy"}
    after = uniform(rest, {A: 6, B: 6})
    assert counted(after) == dict.fromkeys("vwxy", 3)
    for name in rest:
        for topic, indexes in before[name].items():
            assert indexes <= after[name][topic]


def test_racks_do_not_matter() -> None:
    near = {name: Subscriber(BOTH, rack_id=name) for name in "abc"}
    far = {name: Subscriber(BOTH) for name in "abc"}
    for assign in ASSIGNORS.values():
        assert assign(near, {A: 4, B: 3}) == assign(far, {A: 4, B: 3})


def test_a_target_with_topics_and_partitions_that_are_gone_is_no_error() -> None:
    members = {"a": Subscriber(BOTH, {A: frozenset((0, 9)), UUID(int=7): frozenset((0,))})}
    expected = {"a": {A: frozenset((0, 1))}}
    assert uniform(members, {A: 2}) == ranges(members, {A: 2}) == expected
    assert simple(members, {A: range(2)}) == expected


@pytest.mark.parametrize("assign", [*ASSIGNORS.values(), lambda members, _: simple(members, {})])
def test_without_topics_each_member_has_nothing(assign: object) -> None:
    assert callable(assign)
    assert assign({"a": Subscriber(BOTH), "b": Subscriber(frozenset())}, {}) == {"a": {}, "b": {}}
    assert assign({}, {}) == {}


def test_simple_shares_each_partition_between_two_of_eight_members() -> None:
    found = simple({f"m{n}": Subscriber(frozenset((A,))) for n in range(8)}, {A: range(4)})
    assert set(counted(found).values()) == {1}
    assert all(sum(n in held[A] for held in found.values()) == 2 for n in range(4))


def test_simple_covers_four_partitions_with_three_members() -> None:
    found = simple({f"m{n}": Subscriber(frozenset((A,))) for n in range(3)}, {A: range(4)})
    assert sorted(counted(found).values()) == [1, 1, 2]
    assert frozenset().union(*(held[A] for held in found.values())) == frozenset(range(4))


def test_simple_assigns_only_the_partitions_that_have_a_state() -> None:
    assert simple({"a": Subscriber(frozenset((A,)))}, {A: {1, 3}}) == {"a": {A: frozenset((1, 3))}}


def test_simple_changes_a_partition_with_another_member_if_only_its_own_lacks_members() -> None:
    """Three members, two partitions: two on each. The first two keep 0 and 1, and only 0 is left for the first."""
    members = {
        "a": Subscriber(frozenset((A,)), {A: frozenset((0,))}),
        "b": Subscriber(frozenset((A,)), {A: frozenset((1,))}),
        "c": Subscriber(frozenset((A,)), {A: frozenset((1,))}),
    }
    found = simple(members, {A: range(2)})
    assert sorted(counted(found).values()) == [1, 1, 2]
    assert all(sum(n in held[A] for held in found.values()) == 2 for n in range(2))


def test_simple_divides_topics_with_different_subscribers_by_their_subscribers() -> None:
    members = {"a": Subscriber(frozenset((A,))), "b": Subscriber(BOTH), "c": Subscriber(BOTH)}
    found = simple(members, {A: range(3), B: range(1)})
    assert found["b"][B] == found["c"][B] == frozenset((0,))
    assert counted(found) == {"a": 1, "b": 2, "c": 2}


def test_simple_lets_members_keep_what_they_have() -> None:
    """The opposite of what a first run would give them."""
    held = {"a": {3, 2}, "b": {1, 0}}
    members = {name: Subscriber(frozenset((A,)), {A: frozenset(held[name])}) for name in held}
    assert simple(members, {A: range(4)}) == {name: {A: frozenset(held[name])} for name in held}
    members["c"] = Subscriber(frozenset((A,)))
    after = simple(members, {A: range(4)})
    assert sum(len(held[name] - after[name][A]) for name in held) == 1


def test_simple_takes_from_members_that_have_more_than_their_share() -> None:
    """Each keeps one; the first member may keep two, because four partitions make one more than three members."""
    held = {"a": frozenset((0, 1, 2)), "b": frozenset((3,)), "c": frozenset[int]()}
    members = {name: Subscriber(frozenset((A,)), {A: held[name]}) for name in held}
    assert simple(members, {A: range(4)}) == {
        "a": {A: frozenset((0, 1))},
        "b": {A: frozenset((3,))},
        "c": {A: frozenset((2,))},
    }


def test_simple_leaves_a_partition_to_no_more_members_than_it_needs() -> None:
    members = {name: Subscriber(frozenset((A,)), {A: frozenset((0,))}) for name in "ab"}
    assert simple(members, {A: range(2)}) == {"a": {A: frozenset((0,))}, "b": {A: frozenset((1,))}}
