import pytest

from felice.client.consume.subscription import Subscription
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


def test_partition_kept_by_an_assignment_continues_at_its_position() -> None:
    subscription = assigned(TopicPartition("t", 0, 5), TopicPartition("t", 1, 5))
    kept, lost = subscription.of("t", 0), subscription.of("t", 1)
    lease_kept, lease_lost = kept.lease, lost.lease
    fresh = subscription.assign([TopicPartition("t", 0), TopicPartition("t", 2)])
    assert subscription.of("t", 0) is kept and kept.lease is lease_kept
    assert lost.lease is not lease_lost
    assert [partition.key for partition in fresh] == [("t", 2)]


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
    partition.consumed, partition.position, partition.stored = True, 8, 6
    assert subscription.to_commit(auto_store=False) == {("t", 0): (6, -1, "")}


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
