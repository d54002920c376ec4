"""Offsets: open transactions, subscribed topics, and which offsets expire."""

from __future__ import annotations

import pytest

from felice.coordinator.group.classic.group import NO_STATE_TIMESTAMP, ClassicGroup, subscription_topics
from felice.coordinator.group.classic.member import Member
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.offsets import commits
from felice.coordinator.group.offsets.store import OffsetStore
from felice.coordinator.group.records import CommittedOffset, OffsetRecord
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import Instant
from felice.protocol.codec import encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import ConsumerProtocolSubscription


def record(offset: int, topic: str = "t", partition: int = 0, **fields: int) -> OffsetRecord:
    return OffsetRecord("g", topic, partition, CommittedOffset(offset, **fields))


def fetch(store: OffsetStore, *, stable: bool) -> tuple[int, int]:
    (row,) = commits.fetch(store, "g", "t", [0], stable)
    return row.error_code, row.committed_offset


def test_a_transactions_offsets_count_when_it_commits() -> None:
    store = OffsetStore()
    store.apply(record(1))
    store.apply(record(5), producer_id=7)
    assert fetch(store, stable=False) == (ErrorCode.NONE, 1)
    assert fetch(store, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert store.end_transaction(7, committed=True) == [record(5)]
    assert fetch(store, stable=True) == (ErrorCode.NONE, 5)


def test_an_aborted_transaction_changes_nothing() -> None:
    store = OffsetStore()
    store.apply(record(1))
    store.apply(record(5), producer_id=7)
    assert store.has_pending("g")
    assert store.end_transaction(7, committed=False) == []
    assert fetch(store, stable=True) == (ErrorCode.NONE, 1)
    assert not store.has_pending("g")


def test_applied_records_can_be_undone() -> None:
    store = OffsetStore()
    undo_first = store.apply(record(1))
    undo_second = store.apply(record(2))
    undo_removal = store.apply(OffsetRecord("g", "t", 0, None))
    assert store.topics("g") == {}
    undo_removal()
    assert fetch(store, stable=False)[1] == 2
    undo_second()
    assert fetch(store, stable=False)[1] == 1
    undo_first()
    assert store.topics("g") == {}
    undo_pending = store.apply(record(9), producer_id=7)
    undo_pending()
    assert not store.has_pending("g")


def consumer_group(*topics: str, state: GroupState = GroupState.STABLE) -> ClassicGroup:
    group = ClassicGroup("g", state=state, protocol_name="range")
    metadata = encode_data(ConsumerProtocolSubscription(topics=list(topics)), 3)
    group.add(Member("m", None, "c", "/h", 1000, 1000, (("range", metadata),)), "consumer")
    group.subscribed_topics = group.read_subscribed_topics()
    return group


def expired(group: ClassicGroup, store: OffsetStore, wall_ms: int) -> list[str]:
    turn = Turn(GroupSettings(offsets_retention_ms=100), Instant(wall_ms, 0))
    return [gone.topic for gone in commits.expired(group, store, turn)]


def test_offsets_of_a_stable_group_expire_for_topics_that_no_member_reads() -> None:
    store = OffsetStore()
    store.apply(record(1, "read", commit_timestamp_ms=0))
    store.apply(record(1, "left", commit_timestamp_ms=0))
    store.apply(record(1, "left lately", commit_timestamp_ms=50))
    assert expired(consumer_group("read"), store, 99) == []
    assert expired(consumer_group("read"), store, 100) == ["left"]
    rebalancing = consumer_group("read", state=GroupState.PREPARING_REBALANCE)
    assert expired(rebalancing, store, 1000) == []


def test_no_offset_expires_in_a_group_whose_subscriptions_are_unknown() -> None:
    store = OffsetStore()
    store.apply(record(1, "t", commit_timestamp_ms=0))
    group = consumer_group("x")
    group.subscribed_topics = None
    assert expired(group, store, 1000) == []
    group.protocol_type = "connect"
    assert expired(group, store, 1000) == []


@pytest.mark.parametrize(
    ("protocol_type", "state", "timestamp_ms", "expected"),
    [
        # The offsets of a group without members age together, from the moment when its last member left (KIP-211).
        ("consumer", GroupState.EMPTY, 950, []),
        ("consumer", GroupState.EMPTY, 900, ["t"]),
        # Its record is older than KIP-211 and has no time, or the group never had members: each commit counts alone.
        ("consumer", GroupState.EMPTY, NO_STATE_TIMESTAMP, ["t"]),
        (None, GroupState.EMPTY, 950, ["t"]),
        # It has members.
        ("consumer", GroupState.STABLE, 950, ["t"]),
    ],
)
def test_offsets_age_from_the_moment_when_a_group_became_empty(
    protocol_type: str | None, state: GroupState, timestamp_ms: int, expected: list[str]
) -> None:
    store = OffsetStore()
    store.apply(record(1, "t", commit_timestamp_ms=0))
    group = ClassicGroup("g", state, protocol_type=protocol_type, state_timestamp_ms=timestamp_ms)
    group.subscribed_topics = frozenset()
    assert expired(group, store, 1000) == expected


def test_a_commit_of_a_group_whose_record_has_no_time_is_kept_for_its_own_time() -> None:
    store = OffsetStore()
    store.apply(record(1, "t", commit_timestamp_ms=950))
    group = ClassicGroup("g", protocol_type="consumer", state_timestamp_ms=NO_STATE_TIMESTAMP)
    assert expired(group, store, 1000) == []


def test_an_open_transaction_keeps_an_offset_alive() -> None:
    store = OffsetStore()
    store.apply(record(1, commit_timestamp_ms=0))
    store.apply(record(2), producer_id=7)
    assert expired(ClassicGroup("g"), store, 1000) == []
    store.end_transaction(7, committed=False)
    assert expired(ClassicGroup("g"), store, 1000) == ["t"]


def test_subscriptions_of_every_version_begin_alike() -> None:
    for version in range(4):
        data = encode_data(ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u"), version)
        assert subscription_topics(data) == ["a", "b"]
    # A future version, and bytes that are no subscription.
    assert subscription_topics(b"\0\x63\0\0\0\1\0\1a\xff\xff\xff\xff more") == ["a"]
    assert subscription_topics(b"junk") is None
    assert subscription_topics(b"") is None


def test_a_later_commit_survives_the_marker_of_an_earlier_transactional_one() -> None:
    store = OffsetStore()
    store.apply(record(5), producer_id=7)
    store.apply(record(6))
    assert store.end_transaction(7, committed=True) == []
    assert fetch(store, stable=True) == (ErrorCode.NONE, 6)


def test_of_two_transactions_the_later_commit_counts_whichever_ends_first() -> None:
    for first, second in ((7, 8), (8, 7)):
        store = OffsetStore()
        store.apply(record(5), producer_id=7)
        store.apply(record(6), producer_id=8)
        store.end_transaction(first, committed=True)
        assert fetch(store, stable=True)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        store.end_transaction(second, committed=True)
        assert fetch(store, stable=True) == (ErrorCode.NONE, 6)


def test_an_undone_commit_does_not_supersede_a_transactional_one() -> None:
    store = OffsetStore()
    store.apply(record(5), producer_id=7)
    store.apply(record(6))()
    store.apply(record(7), producer_id=7)()
    store.end_transaction(7, committed=True)
    assert fetch(store, stable=True) == (ErrorCode.NONE, 5)


def test_a_removal_drops_pending_commits_and_undoing_it_restores_them() -> None:
    store = OffsetStore()
    store.apply(record(5), producer_id=7)
    store.apply(record(6))
    undo = store.apply(OffsetRecord("g", "t", 0, None))
    assert not store.exists("g", "t", 0)
    assert store.all_of("g") == []
    undo()
    assert store.all_of("g") == [("t", 0)]
    assert list(store.of_topic("t")) == [("g", 0)]
    store.end_transaction(7, committed=True)
    assert fetch(store, stable=True) == (ErrorCode.NONE, 6)


def test_the_deletion_of_a_topic_removes_pending_commits() -> None:
    store = OffsetStore()
    store.apply(record(5), producer_id=7)
    store.apply(record(5, "u"), producer_id=7)
    assert commits.topic_removals(store, ["t"]) == [OffsetRecord("g", "t", 0, None)]


def test_the_end_of_a_transaction_without_offsets_and_the_removal_of_an_unknown_one_change_nothing() -> None:
    """Every partition of a transaction gets a marker; a compacted log may hold a removal without the removed record."""
    store = OffsetStore()
    assert store.end_transaction(7, committed=True) == []
    undo = store.apply(OffsetRecord("g", "t", 0, None))
    assert store.topics("g") == {}
    undo()
    store.apply(record(1, topic="other"))
    store.apply(OffsetRecord("g", "t", 0, None))
    assert list(store.topics("g")) == ["other"]
