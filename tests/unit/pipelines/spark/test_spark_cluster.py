from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.model import ClusterMetadata, OffsetAndTimestamp, PartitionMetadata, TopicMetadata
from felice.pipelines.spark import cluster
from felice.pipelines.spark.cluster import ClusterView, DataLoss
from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.offsets import Offsets, Partition
from felice.pipelines.spark.options import AtOffsets, AtTimestamp, AtTimestamps, Earliest, Latest
from felice.pipelines.spark.options import SourceOptions as Options

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
EARLIEST, LATEST = -2, -1
UNKNOWN_TOPIC, TRANSPORT, TOPIC_DENIED = 3, -195, 29


class Brokers:
    """Partitions with a beginning, an end, and one record a millisecond from time 1000 on."""

    def __init__(self) -> None:
        self.held = {A0: (10, 20), A1: (0, 5), B0: (0, 0)}
        self.failures: list[int] = []
        self.leaderless: dict[Partition, KafkaException] = {}
        self.metadata_calls = 0
        self.ids = {"a": UUID(int=1), "b": UUID(int=2)}

    def metadata(self, names: list[str] | None) -> ClusterMetadata:
        self._maybe_fail()
        self.metadata_calls += 1
        topics: dict[str, TopicMetadata] = {}
        for topic, partition in self.held:
            if names is None or topic in names:
                described = topics.setdefault(topic, TopicMetadata(topic, topic_id=self.ids[topic]))
                described.partitions[partition] = PartitionMetadata(partition)
        if names is None:
            topics["__own"] = TopicMetadata("__own", {0: PartitionMetadata(0)}, is_internal=True)
            topics["z"] = TopicMetadata("z", error=error_of(TOPIC_DENIED))
        for name in names or ():
            topics.setdefault(name, TopicMetadata(name, error=error_of(UNKNOWN_TOPIC)))
        return ClusterMetadata(topics=topics)

    def offsets_of_each(
        self, timestamps: Mapping[Partition, int]
    ) -> dict[Partition, OffsetAndTimestamp | KafkaException]:
        try:
            self._maybe_fail()
        except KafkaException as error:
            return dict.fromkeys(timestamps, error)
        found = {key: OffsetAndTimestamp(self._find(key, at), -1, 0) for key, at in timestamps.items()}
        return found | {key: error for key, error in self.leaderless.items() if key in found}

    def _find(self, key: Partition, at: int) -> int:
        first, last = self.held[key]
        if at in (EARLIEST, LATEST):
            return first if at == EARLIEST else last
        found = max(first, at - 1000)
        return found if found < last else -1

    def _maybe_fail(self) -> None:
        if self.failures:
            code = self.failures.pop(0)
            raise failure(code, retriable=code == TRANSPORT)

    def close(self) -> None: ...


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(cluster.time, "sleep", slept.append)
    return slept


def view(brokers: Brokers, **given: str) -> ClusterView:
    base = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": "a"}
    client: Any = brokers
    return ClusterView(Options.parse({"kafka.bootstrap.servers": "h:1"} | base | given), client)


def test_subscribed_topics_are_read_whole(brokers: Brokers) -> None:
    assert view(brokers).partitions() == [A0, A1]
    assert view(brokers, subscribePattern="a|b").partitions() == [A0, A1, B0]
    assert view(brokers, subscribePattern="[^z]+").partitions() == [A0, A1, B0]
    assert view(brokers, assign='{"a":[1],"b":[0]}').partitions() == [A1, B0]


def test_a_topic_or_partition_there_is_none_of_is_named(brokers: Brokers) -> None:
    with pytest.raises(OptionError, match="cannot read nowhere"):
        view(brokers, subscribe="a,nowhere").partitions()
    with pytest.raises(OptionError, match="option 'assign': there is no partition 7 of topic a"):
        view(brokers, assign='{"a":[0,7]}').partitions()


def test_a_pattern_that_matches_nothing_yet_reads_nothing(brokers: Brokers) -> None:
    assert view(brokers, subscribePattern="y.*").start(Earliest()) == {}


def test_topics_are_asked_for_again_only_when_their_list_is_old(brokers: Brokers) -> None:
    patient, curious = view(brokers), view(brokers, **{"kafka.metadata.max.age.ms": "1"})
    for _ in range(3):
        patient.partitions()
    assert brokers.metadata_calls == 1
    curious.partitions()
    brokers.held["a", 2] = (0, 1)
    cluster.time.sleep(0.005)
    assert ("a", 2) in curious.partitions()


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (Earliest(), {A0: 10, A1: 0}),
        (Latest(), {A0: 20, A1: 5}),
        (AtOffsets({A0: 15, A1: EARLIEST}), {A0: 15, A1: 0}),
        (AtOffsets({A0: LATEST, A1: 5}), {A0: 20, A1: 5}),
        (AtTimestamp(1003), {A0: 10, A1: 3}),
        (AtTimestamps({A0: 1012, A1: 0}), {A0: 12, A1: 0}),
    ],
)
def test_a_start_becomes_offsets(brokers: Brokers, position: Any, offsets: Offsets) -> None:
    assert view(brokers).start(position) == offsets


def test_every_partition_must_be_named_and_no_other(brokers: Brokers) -> None:
    with pytest.raises(OptionError, match="startingOffsets.*lacks partition 1 of topic a"):
        view(brokers).start(AtOffsets({A0: 15}))
    with pytest.raises(OptionError, match="endingOffsetsByTimestamp.*names partition 0 of topic b"):
        view(brokers).end(AtTimestamps({A0: 0, A1: 0, B0: 0}))


@pytest.mark.parametrize("offset", [9, 21])
def test_an_offset_the_log_does_not_hold_is_a_loss(brokers: Brokers, offset: int) -> None:
    wanted = AtOffsets({A0: offset, A1: 0})
    with pytest.raises(DataLoss, match=f"holds offsets 10 to 20, not {offset}"):
        view(brokers).start(wanted)
    nearest = view(brokers, failOnDataLoss="false").start(wanted)
    assert nearest == {A0: 10 if offset == 9 else 20, A1: 0}


def test_a_time_after_the_last_record_is_an_error_or_the_end_as_asked(brokers: Brokers) -> None:
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy=latest"):
        view(brokers).start(AtTimestamp(1007))
    assert view(brokers, startingOffsetsByTimestampStrategy="latest").start(AtTimestamp(1007)) == {
        A0: 10,
        A1: 5,
    }
    assert view(brokers).end(AtTimestamp(1007)) == {A0: 10, A1: 5}


def test_a_question_is_asked_again_as_often_as_the_query_says(brokers: Brokers, slept: list[float]) -> None:
    brokers.failures = [TRANSPORT, TRANSPORT]
    options = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "300"}
    assert view(brokers, **options).start(Earliest()) == {A0: 10, A1: 0}
    assert slept == [0.3, 0.3]
    brokers.failures = [TRANSPORT] * 3
    with pytest.raises(KafkaException):
        view(brokers, **options).start(Earliest())


def test_what_asking_again_cannot_mend_is_not_asked_again(brokers: Brokers, slept: list[float]) -> None:
    brokers.failures = [TOPIC_DENIED]
    with pytest.raises(KafkaException):
        view(brokers).start(Earliest())
    assert slept == []


def test_a_running_query_rides_out_a_restart(brokers: Brokers, slept: list[float]) -> None:
    running = view(brokers, **{"fetchOffset.numRetries": "0"})
    running.latest()
    brokers.failures = [TRANSPORT] * 10
    assert running.latest() == {A0: 20, A1: 5}
    assert len(slept) == 10


def test_a_topic_that_a_restarted_broker_does_not_know_yet_is_waited_for(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = view(brokers, **{"kafka.metadata.max.age.ms": "1"})
    running.latest()
    held, brokers.held = brokers.held, {}

    def come_back(seconds: float) -> None:
        brokers.held = held

    cluster.time.sleep(0.005)
    monkeypatch.setattr(cluster.time, "sleep", come_back)
    assert running.latest() == {A0: 20, A1: 5}


UNKNOWN = {"kafka.metadata.max.age.ms": "1", "kafka.request.timeout.ms": "1"}


def delete(brokers: Brokers, topic: str) -> None:
    brokers.held = {key: ends for key, ends in brokers.held.items() if key[0] != topic}
    cluster.time.sleep(0.005)


def test_a_topic_that_is_deleted_fails_a_running_query(brokers: Brokers) -> None:
    running = view(brokers, subscribe="a,b", **UNKNOWN, **{"fetchOffset.numRetries": "0"})
    running.latest()
    delete(brokers, "b")
    with pytest.raises(DataLoss, match="topic b was deleted while the query was running"):
        running.latest()


@pytest.mark.parametrize("named", [{"subscribe": "a,b"}, {"assign": '{"a":[0,1],"b":[0]}'}])
def test_a_query_may_go_on_without_a_topic_and_with_it_when_it_is_back(
    brokers: Brokers, slept: list[float], named: dict[str, str]
) -> None:
    running = view(brokers, **named, **UNKNOWN, failOnDataLoss="false")
    running.latest()
    delete(brokers, "b")
    running._partitions_good_until = 0
    assert running.latest() == {A0: 20, A1: 5}
    waited = len(slept)
    brokers.held[B0], brokers.ids["b"] = (0, 7), UUID(int=3)
    running._partitions_good_until = 0
    assert running.latest() == {A0: 20, A1: 5, B0: 7}
    assert running.recreated == {"b"}
    running.forget_recreated()
    assert running.latest() and running.recreated == set()
    assert len(slept) == waited


def test_a_list_of_partitions_is_asked_for_anew_when_one_of_them_is_gone(
    brokers: Brokers, slept: list[float]
) -> None:
    running = view(brokers, subscribePattern="a|b")
    running.latest()
    brokers.held = {key: ends for key, ends in brokers.held.items() if key[0] != "b"}
    brokers.failures = [UNKNOWN_TOPIC]
    assert running.latest() == {A0: 20, A1: 5}
    assert len(slept) == 1


def leaderless(code: int = KafkaError.LEADER_NOT_AVAILABLE, **more: bool) -> KafkaException:
    return failure(code, "a-1", **more)


def test_a_stream_goes_on_without_a_partition_that_has_no_leader(
    brokers: Brokers, slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    running = view(brokers)
    brokers.leaderless = {A1: leaderless()}
    start = {A0: 12, A1: 3}
    for _ in range(2):
        assert running.latest_from(start) == {A0: 20, A1: 3}
    [line] = caplog.messages
    assert line.startswith("the query goes on without partition 1 of topic a, and reads them when")
    brokers.leaderless = {}
    assert running.latest_from(start) == {A0: 20, A1: 5}
    assert caplog.messages[1:] == ["the query reads partition 1 of topic a again"]
    assert slept == []


@pytest.mark.parametrize("case", ["all", "new partition", "recreated", "denied", "gone", "batch"])
def test_an_end_that_cannot_be_left_out_is_an_error_that_names_its_partition(
    brokers: Brokers, slept: list[float], case: str
) -> None:
    running = view(brokers, **{"kafka.request.timeout.ms": "1"})
    brokers.leaderless = {A1: leaderless()}
    start = {A0: 12, A1: 3}
    if case == "all":
        brokers.leaderless[A0] = failure(KafkaError.LEADER_NOT_AVAILABLE, "a-0")
    elif case == "new partition":
        del start[A1]
    elif case == "recreated":
        running.recreated.add("a")
    elif case == "denied":
        brokers.leaderless = {A1: leaderless(TOPIC_DENIED)}
    elif case == "gone":
        brokers.leaderless = {A1: leaderless(KafkaError.UNKNOWN_TOPIC_ID, retriable=True)}
    with pytest.raises(KafkaException, match="a-[01]"):
        running.latest() if case == "batch" else running.latest_from(start)
    if case != "denied":
        assert slept, "it is asked again first"


def test_offsets_of_nothing_are_not_asked_for(brokers: Brokers) -> None:
    brokers.failures = [TOPIC_DENIED]
    assert view(brokers).earliest([]) == {}
