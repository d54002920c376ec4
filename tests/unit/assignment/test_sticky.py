"""Sticky and cooperative-sticky: which partitions stay and which move."""

from felice.assignment import ASSIGNORS, Assignment, Subscription, TopicPartition
from felice.assignment.user_data import (
    decode_generation,
    decode_previous_assignment,
    encode_generation,
    encode_previous_assignment,
)

STICKY, COOPERATIVE = ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]


def tps(text: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(word[:-1], int(word[-1])) for word in text.split())


def sub(topics: str, owned: str = "", generation: int = 1) -> Subscription:
    return Subscription(tuple(topics), tps(owned), generation)


def text(assignment: Assignment) -> dict[str, str]:
    return {
        member: " ".join(f"{tp.topic}{tp.partition}" for tp in sorted(held))
        for member, held in assignment.items()
    }


def test_a_new_member_takes_only_as_many_partitions_as_balance_needs() -> None:
    members = {"A": sub("t", "t0 t1 t2"), "B": sub("t", "t3 t4 t5"), "C": sub("t")}
    assert text(STICKY.assign(members, {"t": 6})) == {"A": "t0 t1", "B": "t3 t4", "C": "t2 t5"}


def test_partitions_of_a_leaving_member_are_distributed() -> None:
    members = {"A": sub("t", "t0 t1"), "B": sub("t", "t2 t3")}
    assert text(STICKY.assign(members, {"t": 6})) == {"A": "t0 t1 t4", "B": "t2 t3 t5"}


def test_the_extra_partition_stays_with_the_member_that_has_it() -> None:
    members = {"A": sub("t", "t0"), "B": sub("t", "t1 t2")}
    assert text(STICKY.assign(members, {"t": 3})) == {"A": "t0", "B": "t1 t2"}


def test_the_newest_generation_wins_a_partition_claimed_twice() -> None:
    members = {"A": sub("t", "t0 t1", generation=1), "B": sub("t", "t0", generation=2)}
    assert text(STICKY.assign(members, {"t": 2})) == {"A": "t1", "B": "t0"}


def test_a_partition_claimed_twice_in_one_generation_has_no_owner() -> None:
    members = {"A": sub("t", "t0"), "B": sub("t", "t0 t1")}
    assert text(STICKY.assign(members, {"t": 2})) == {"A": "t0", "B": "t1"}
    assert text(COOPERATIVE.assign(members, {"t": 2})) == {"A": "t0", "B": "t1"}


def test_topics_that_are_unwanted_or_deleted_are_dropped() -> None:
    members = {"A": sub("t", "t0 u0 v0"), "B": sub("tu")}
    assert text(STICKY.assign(members, {"t": 1, "u": 1})) == {"A": "t0", "B": "u0"}


def test_unequal_subscriptions_are_evened_out_by_moving_single_partitions() -> None:
    members = {"A": sub("tu", "t0 t1 t2 u0"), "B": sub("t"), "C": sub("u")}
    assert text(STICKY.assign(members, {"t": 3, "u": 1})) == {"A": "t2", "B": "t0 t1", "C": "u0"}


def test_sticky_reads_the_previous_assignment_from_the_user_data() -> None:
    user_data = STICKY.user_data(tps("t2 t3"), 7)
    members = {"A": Subscription(("t",), user_data=user_data), "B": Subscription(("t",))}
    assert text(STICKY.assign(members, {"t": 4})) == {"A": "t2 t3", "B": "t0 t1"}


def test_cooperative_withholds_a_moving_partition_until_its_owner_gave_it_up() -> None:
    first = COOPERATIVE.assign({"A": sub("t", "t0 t1 t2 t3"), "B": sub("t")}, {"t": 4})
    assert text(first) == {"A": "t0 t1", "B": ""}
    second = COOPERATIVE.assign({"A": sub("t", "t0 t1", 2), "B": sub("t", "", 2)}, {"t": 4})
    assert text(second) == {"A": "t0 t1", "B": "t2 t3"}


def test_cooperative_lets_the_rightful_owner_keep_what_a_stale_member_also_claims() -> None:
    members = {"A": sub("t", "t0", generation=1), "B": sub("t", "t0", generation=2)}
    assert text(COOPERATIVE.assign(members, {"t": 1})) == {"A": "", "B": "t0"}


def test_cooperative_takes_the_generation_from_the_user_data_of_old_subscriptions() -> None:
    old = Subscription(("t",), tps("t0 t1"), user_data=encode_generation(3))
    new = Subscription(("t",), tps("t0"), generation=4)
    assert text(COOPERATIVE.assign({"A": old, "B": new}, {"t": 2})) == {"A": "t1", "B": "t0"}


def test_user_data_has_javas_bytes() -> None:
    data = encode_previous_assignment(tps("t1 t0 u5"), 9)
    assert data.hex() == (
        "00000002" + "0001" + "74" + "00000002" + "00000000" + "00000001"
        "0001" + "75" + "00000001" + "00000005" + "00000009"
    )
    assert decode_previous_assignment(data) == (tps("t0 t1 u5"), 9)


def test_user_data_of_the_first_layout_has_no_generation() -> None:
    assert decode_previous_assignment(encode_previous_assignment(tps("t1"), 9)[:-4]) == (tps("t1"), -1)


def test_unreadable_user_data_counts_as_owning_nothing() -> None:
    for junk in (b"", b"\x00", b"\x7f" * 9, b"\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff"):
        assert decode_previous_assignment(junk) == ((), -1)
    assert decode_generation(None) == decode_generation(b"\x00") == -1
