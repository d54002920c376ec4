"""What `make group-kills` checks: that it sees each kind of wrong assignment."""

from conformance.group_kills import Seen
from felice.client import TopicPartition


def test_a_partition_with_two_owners_is_seen() -> None:
    seen = Seen()
    first, second = seen.callbacks("first"), seen.callbacks("second")
    first["on_assign"](None, [TopicPartition("t", 0), TopicPartition("t", 1)])
    first["on_revoke"](None, [TopicPartition("t", 1)])
    second["on_assign"](None, [TopicPartition("t", 1)])
    assert seen.anomalies == []
    second["on_assign"](None, [TopicPartition("t", 0)])
    first["on_revoke"](None, [TopicPartition("t", 1)])
    assert seen.anomalies == ["0 of first is given to second", "1 was not of first, which gives it up"]


def test_a_lost_partition_is_seen() -> None:
    seen = Seen()
    callbacks = seen.callbacks("first")
    callbacks["on_assign"](None, [TopicPartition("t", 0)])
    callbacks["on_lost"](None, [TopicPartition("t", 0)])
    assert seen.anomalies == ["first lost [0]"]
