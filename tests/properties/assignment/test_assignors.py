"""Invariants of every assignor, for any members and topics."""

from hypothesis import given
from hypothesis import strategies as st

from felice.assignment import ASSIGNORS, Assignment, Subscription, TopicPartition

TOPICS = "abcd"
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6))
PARTITIONS = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 7))
SUBSCRIPTION = st.builds(
    Subscription,
    topics=st.lists(st.sampled_from(TOPICS), unique=True).map(tuple),
    owned=st.lists(PARTITIONS, max_size=8, unique=True).map(tuple),
    generation=st.integers(-1, 3),
    instance_id=st.none(),
)
MEMBERS = st.dictionaries(st.sampled_from([f"m{n}" for n in range(6)]), SUBSCRIPTION, min_size=1)
EQUAL_MEMBERS = st.lists(SUBSCRIPTION, min_size=1, max_size=6).map(
    lambda subs: {
        f"m{n}": Subscription(tuple(TOPICS), sub.owned, sub.generation) for n, sub in enumerate(subs)
    }
)
ALL_AT_ONCE = [name for name in ASSIGNORS if name != "cooperative-sticky"]


def flat(assignment: Assignment) -> list[TopicPartition]:
    return [partition for held in assignment.values() for partition in held]


def reachable(members: dict[str, Subscription], counts: dict[str, int]) -> set[TopicPartition]:
    wanted = {topic for sub in members.values() for topic in sub.topics}
    return {TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0))}


@given(MEMBERS, COUNTS)
def test_every_partition_goes_to_exactly_one_subscriber(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    for name in ALL_AT_ONCE:
        assignment = ASSIGNORS[name].assign(members, counts)
        assert set(assignment) == set(members)
        assert sorted(flat(assignment)) == sorted(reachable(members, counts))
        assert all(tp.topic in members[member].topics for member, held in assignment.items() for tp in held)


@given(MEMBERS, COUNTS)
def test_the_order_of_members_and_topics_does_not_matter(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    other_members = dict(reversed(members.items()))
    other_counts = dict(reversed(counts.items()))
    for assignor in ASSIGNORS.values():
        assert assignor.assign(members, counts) == assignor.assign(other_members, other_counts)


@given(MEMBERS, COUNTS)
def test_sticky_leaves_no_partition_that_a_much_poorer_member_could_take(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    assignment = ASSIGNORS["sticky"].assign(members, counts)
    for held in assignment.values():
        for partition in held:
            for other, others in assignment.items():
                assert partition.topic not in members[other].topics or len(held) <= len(others) + 1


@given(EQUAL_MEMBERS, COUNTS)
def test_equal_subscriptions_differ_by_one_partition_at_most(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    for name in ("sticky", "roundrobin"):
        sizes = [len(held) for held in ASSIGNORS[name].assign(members, counts).values()]
        assert max(sizes) - min(sizes) <= 1


def owning(
    members: dict[str, Subscription], assignment: Assignment, generation: int
) -> dict[str, Subscription]:
    return {
        member: Subscription(members[member].topics, tuple(held), generation)
        for member, held in assignment.items()
    }


@given(MEMBERS, COUNTS)
def test_a_second_assignment_of_the_same_members_changes_nothing(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    settled = ASSIGNORS["sticky"].assign(members, counts)
    again = ASSIGNORS["sticky"].assign(owning(members, settled, 5), counts)
    assert {m: set(held) for m, held in again.items()} == {m: set(held) for m, held in settled.items()}


@given(EQUAL_MEMBERS, COUNTS, st.data())
def test_survivors_keep_everything_when_a_member_leaves(
    members: dict[str, Subscription], counts: dict[str, int], data: st.DataObject
) -> None:
    settled = owning(members, ASSIGNORS["sticky"].assign(members, counts), 5)
    leaver = data.draw(st.sampled_from(sorted(settled)))
    survivors = {member: sub for member, sub in settled.items() if member != leaver}
    after = ASSIGNORS["sticky"].assign(survivors, counts)
    assert all(set(sub.owned) <= set(after[member]) for member, sub in survivors.items())


@given(MEMBERS, COUNTS)
def test_cooperative_never_assigns_a_partition_that_another_member_still_holds(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    assignment = ASSIGNORS["cooperative-sticky"].assign(members, counts)
    for member, held in assignment.items():
        for partition in set(held) - set(members[member].owned):
            assert all(partition not in other.owned for other in members.values())


@given(MEMBERS, COUNTS)
def test_cooperative_reaches_a_whole_and_balanced_assignment_in_the_second_round(
    members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    cooperative = ASSIGNORS["cooperative-sticky"]
    first = cooperative.assign(members, counts)
    second = cooperative.assign(owning(members, first, 6), counts)
    third = cooperative.assign(owning(members, second, 7), counts)
    assert sorted(flat(third)) == sorted(reachable(members, counts))
    assert len(flat(third)) == len(set(flat(third)))
