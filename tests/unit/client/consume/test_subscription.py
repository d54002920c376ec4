import pytest

from felice.client.consume.subscription import Gathering, Subscription
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OFFSET_BEGINNING, OFFSET_INVALID, TopicPartition


def assigned(*partitions: TopicPartition) -> Subscription:
    subscription = Subscription()
    subscription.assign(partitions)
    return subscription


def test_pattern_matches_existing_topics_and_names_are_taken_as_they_are() -> None:
    subscription = Subscription()
    subscription.subscribe(["plain", "^log-.*", "^x$"])
    assert subscription.wanted_topics(["log-a", "xx", "x", "blog-a"]) == {"plain", "log-a", "x"}


def test_bad_pattern_is_refused() -> None:
    with pytest.raises(KafkaException) as caught:
        Subscription().subscribe(["^("])
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG


def test_an_assignment_replaces_every_partition_and_returns_the_old_ones() -> None:
    subscription = assigned(TopicPartition("t", 0, 5), TopicPartition("t", 1, 5))
    old = [subscription.of("t", 0), subscription.of("t", 1)]
    leases = [partition.lease for partition in old]
    assert subscription.assign([TopicPartition("t", 0), TopicPartition("t", 2)]) == old
    assert all(partition.lease is not lease for partition, lease in zip(old, leases, strict=True))
    assert subscription.of("t", 0) is not old[0] and subscription.of("t", 0).fetch_offset is None
    assert list(subscription.assigned) == [("t", 0), ("t", 2)]


@pytest.mark.parametrize("call", ["assign", "incremental_assign"])
def test_a_partition_named_twice_is_refused_without_any_change(call: str) -> None:
    subscription = assigned(TopicPartition("t", 0, 5))
    before = dict(subscription.assigned)
    with pytest.raises(KafkaException, match="t-1 is named twice") as caught:
        getattr(subscription, call)([TopicPartition("t", 1, 3), TopicPartition("t", 1, 4)])
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert subscription.assigned == before


def test_seek_discards_fetched_data_and_moves_both_offsets() -> None:
    partition = assigned(TopicPartition("t", 0, 5)).of("t", 0)
    lease = partition.lease
    partition.seek(9)
    assert partition.lease is not lease
    assert (partition.position, partition.fetch_offset) == (9, 9)
    partition.seek(OFFSET_BEGINNING)
    assert partition.fetch_offset is None and not partition.fetchable


def test_pause_returns_to_the_first_undelivered_record() -> None:
    partition = assigned(TopicPartition("t", 0, 5)).of("t", 0)
    partition.fetch_offset = 50
    partition.pause()
    assert partition.fetch_offset == 5 and not partition.fetchable
    partition.resume()
    assert partition.fetchable


def test_only_consumed_offsets_are_committed_automatically() -> None:
    subscription = assigned(TopicPartition("t", 0, 5), TopicPartition("t", 1, 5))
    consumed = subscription.of("t", 0)
    consumed.consumed, consumed.position = True, 8
    assert subscription.to_commit(auto_store=True) == {("t", 0): (8, -1, "")}
    assert subscription.to_commit(auto_store=False) == {}
    subscription.on_committed({("t", 0): 8})
    assert subscription.to_commit(auto_store=True) == {}


def test_stored_offset_is_committed_when_storing_is_manual() -> None:
    subscription = assigned(TopicPartition("t", 0, 5))
    partition = subscription.of("t", 0)
    partition.consumed, partition.position, partition.stored = True, 8, (6, 3)
    assert subscription.to_commit(auto_store=False) == {("t", 0): (6, 3, "")}


def test_a_seek_keeps_what_was_handed_out_until_the_next_record() -> None:
    subscription = assigned(TopicPartition("t", 0, 0))
    partition = subscription.of("t", 0)
    partition.seek(7)
    assert subscription.to_commit(auto_store=True) == {}, "nothing was handed out"
    partition.consumed, partition.position, partition.leader_epoch = True, 4, 2
    partition.seek(1)
    partition.seek(9)
    assert subscription.to_commit(auto_store=True) == {("t", 0): (4, 2, "")}
    partition.consumed, partition.position = True, 10
    assert subscription.to_commit(auto_store=True) == {("t", 0): (10, 2, "")}


@pytest.mark.parametrize("end", ["seek", "pause", "withhold", "drop_fetched", "give_back"])
def test_gathered_records_do_not_count_until_they_are_handed_out(end: str) -> None:
    subscription = assigned(TopicPartition("t", 0, 0))
    partition = subscription.of("t", 0)
    partition.consumed, partition.position, partition.fetch_offset = True, 4, 20
    gathering = Gathering()
    partition.hold(gathering)
    partition.position = 9
    assert subscription.to_commit(auto_store=True) == {("t", 0): (4, -1, "")}
    getattr(partition, end)(*([12] if end == "seek" else []))
    assert subscription.to_commit(auto_store=True) == {("t", 0): (4, -1, "")}
    assert partition.position == (12 if end == "seek" else 4)
    gathering.closed = True
    assert subscription.to_commit(auto_store=True) == {("t", 0): (4, -1, "")}


def test_lost_partitions_are_not_committed() -> None:
    subscription = assigned(TopicPartition("t", 0, 0))
    partition = subscription.of("t", 0)
    partition.consumed, partition.position = True, 4
    subscription.lose([("t", 0), ("t", 7)])
    assert subscription.to_commit(auto_store=True, partitions=[partition]) == {}


def test_incremental_changes_affect_only_the_named_partitions() -> None:
    subscription = assigned(TopicPartition("t", 0, 5))
    kept = subscription.of("t", 0)
    subscription.incremental_assign([TopicPartition("t", 1, OFFSET_INVALID)])
    assert subscription.of("t", 0) is kept
    subscription.incremental_unassign([("t", 1)])
    assert list(subscription.assigned) == [("t", 0)]
    with pytest.raises(KafkaException):
        subscription.incremental_unassign([("t", 1)])
    with pytest.raises(KafkaException):
        subscription.incremental_assign([TopicPartition("t", 0)])


def test_partition_that_is_not_assigned_is_named_in_the_error() -> None:
    with pytest.raises(KafkaException, match="t-7"):
        assigned().of("t", 7)
