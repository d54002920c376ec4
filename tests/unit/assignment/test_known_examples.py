"""Range and round-robin against the examples in the documentation of Java's assignors."""

from felice.assignment import ASSIGNORS, Assignment, Subscription, TopicPartition


def tps(text: str) -> list[TopicPartition]:
    """`a0 b1` -> [(a, 0), (b, 1)]"""
    return [TopicPartition(word[:-1], int(word[-1])) for word in text.split()]


def sub(topics: str, instance_id: str | None = None) -> Subscription:
    return Subscription(tuple(topics), instance_id=instance_id)


def assign(name: str, members: dict[str, Subscription], **counts: int) -> Assignment:
    return ASSIGNORS[name].assign(members, counts)


def test_range_gives_each_topics_first_partitions_to_the_first_member() -> None:
    assert assign("range", {"C0": sub("ab"), "C1": sub("ab")}, a=3, b=3) == {
        "C0": tps("a0 a1 b0 b1"),
        "C1": tps("a2 b2"),
    }


def test_range_cuts_a_topic_only_among_its_subscribers() -> None:
    assert assign("range", {"C0": sub("a"), "C1": sub("ab"), "C2": sub("b")}, a=3, b=2) == {
        "C0": tps("a0 a1"),
        "C1": tps("a2 b0"),
        "C2": tps("b1"),
    }


def test_range_leaves_members_empty_when_there_are_more_members_than_partitions() -> None:
    assert assign("range", {"C0": sub("a"), "C1": sub("a"), "C2": sub("a")}, a=2) == {
        "C0": tps("a0"),
        "C1": tps("a1"),
        "C2": [],
    }


def test_round_robin_deals_all_partitions_in_turn() -> None:
    assert assign("roundrobin", {"C0": sub("ab"), "C1": sub("ab")}, a=3, b=3) == {
        "C0": tps("a0 a2 b1"),
        "C1": tps("a1 b0 b2"),
    }


def test_round_robin_passes_over_members_that_do_not_want_the_topic() -> None:
    assert assign("roundrobin", {"C0": sub("a"), "C1": sub("ab"), "C2": sub("abc")}, a=1, b=2, c=3) == {
        "C0": tps("a0"),
        "C1": tps("b0"),
        "C2": tps("b1 c0 c1 c2"),
    }


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    members = {"zz": sub("a", "i1"), "aa": sub("a", "i2"), "a": sub("a")}
    for name in ("range", "roundrobin"):
        assert assign(name, members, a=3) == {"zz": tps("a0"), "aa": tps("a1"), "a": tps("a2")}


def test_topics_that_do_not_exist_are_left_out() -> None:
    for name in ASSIGNORS:
        assert assign(name, {"C0": sub("ax")}, a=1) == {"C0": tps("a0")}


def test_no_members_get_no_partitions() -> None:
    for name in ASSIGNORS:
        assert assign(name, {}, a=1) == {}
