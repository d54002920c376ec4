from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from felice.pipelines.spark import reader as reader_module
from felice.pipelines.spark.cluster import DataLoss
from felice.pipelines.spark.mistakes import OptionError, QueryError
from felice.pipelines.spark.offsets import Offsets, Partition
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.spark.reader import (
    BatchReader,
    LatestOffsets,
    NarrowingBatchReader,
    StreamReader,
    TaskPartition,
)

A0, A1 = ("a", 0), ("a", 1)


class View:
    """A cluster as far as planning sees it."""

    def __init__(self, earliest: Offsets, latest: Offsets) -> None:
        self.earliest_offsets = earliest
        self.latest_offsets = latest
        self.asked = 0
        self.closed = False
        self.group = Group()
        self.recreated: set[str] = set()

    def start(self, position: Any) -> Offsets:
        return dict(self.latest_offsets)

    def end(self, position: Any) -> Offsets:
        return dict(self.latest_offsets)

    def earliest(self, partitions: Any) -> Offsets:
        return {key: self.earliest_offsets[key] for key in partitions}

    def latest(self) -> Offsets:
        self.asked += 1
        return dict(self.latest_offsets)

    def latest_from(self, start: Offsets) -> Offsets:
        return self.latest()

    def forget_recreated(self) -> None:
        self.recreated.clear()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    view = View({A0: 0, A1: 0}, {A0: 100, A1: 100})
    monkeypatch.setattr(reader_module, "open_view", lambda options: view)
    monkeypatch.setattr(reader_module, "open_group", lambda options, mark: view.group)
    return view


class Group:
    """The query's group: what it was told."""

    def __init__(self) -> None:
        self.told: list[Offsets] = []
        self.is_known = False

    def done(self, offsets: Offsets) -> None:
        self.told.append(offsets)

    def close(self) -> None: ...


def stream(**given: str) -> StreamReader:
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    return StreamReader(SourceOptions.parse(base | given), cores=2)


def ranges(partitions: list[Any]) -> list[tuple[Partition, int, int]]:
    pieces = [piece for partition in partitions for piece in partition.task]
    return sorted(((piece.topic, piece.partition), piece.start, piece.end) for piece in pieces)


def test_a_stream_takes_all_there_is(view: View) -> None:
    end = stream().latestOffset({"a": {"0": 5, "1": 100}}, ReadAllAvailable())
    assert end == {"a": {"0": 100, "1": 100}}


def test_a_new_query_is_told_the_same_start_twice_although_the_end_moved(view: View) -> None:
    reader = stream()
    first = reader.initialOffset()
    view.latest_offsets[A0] = 500
    assert reader.initialOffset() == first == {"a": {"0": 100, "1": 100}}


def test_a_stream_with_nothing_new_answers_its_start(view: View) -> None:
    start = {"a": {"0": 100, "1": 100}}
    assert stream().latestOffset(start, ReadAllAvailable()) == start


def test_a_batch_is_limited_as_asked(view: View) -> None:
    reader = stream(maxOffsetsPerTrigger="50")
    assert reader.getDefaultReadLimit() == ReadMaxRows(50)
    end = reader.latestOffset({"a": {"0": 0, "1": 0}}, ReadMaxRows(50))
    assert end == {"a": {"0": 25, "1": 25}}


def test_a_trigger_that_wants_all_overrules_the_limit(view: View) -> None:
    end = stream(maxOffsetsPerTrigger="50").latestOffset({"a": {"0": 0, "1": 0}}, ReadAllAvailable())
    assert end == {"a": {"0": 100, "1": 100}}


def test_a_batch_waits_until_there_is_enough(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(reader_module.time, "sleep", slept.append)
    reader = stream(minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    few = {"a": {"0": 90, "1": 95}}
    assert reader.latestOffset(few, limit) == few
    assert slept == [reader_module.IDLE_PAUSE_MAX_S]
    enough = {"a": {"0": 40, "1": 95}}
    assert reader.latestOffset(enough, limit) != enough
    assert reader.latestOffset(few, ReadAllAvailable()) != few
    later = reader_module.time.monotonic() + 11
    monkeypatch.setattr(reader_module.time, "monotonic", lambda: later)
    assert reader.latestOffset(few, limit) != few


def test_available_now_reads_nothing_that_came_later_and_ends(view: View) -> None:
    reader = stream(minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    view.latest_offsets[A0] = 500
    target = {"a": {"0": 100, "1": 100}}
    assert reader.latestOffset({"a": {"0": 0, "1": 0}}, reader.getDefaultReadLimit()) == target
    assert reader.latestOffset(target, reader.getDefaultReadLimit()) == target


def test_a_new_partition_is_read_from_its_beginning(view: View) -> None:
    end = stream(maxOffsetsPerTrigger="20").latestOffset({"a": {"0": 100}}, ReadMaxRows(20))
    assert end == {"a": {"0": 100, "1": 20}}
    assert ranges(stream().partitions({"a": {"0": 100}}, end)) == [(A1, 0, 20)]


def test_partitions_are_grouped_into_as_many_tasks_as_there_are_cores(view: View) -> None:
    start = {"a": {str(index): 0 for index in range(6)}}
    end = {"a": {str(index): 10 for index in range(6)}}
    partitions = stream().partitions(start, end)
    assert len(partitions) == 2
    assert len(ranges(partitions)) == 6


def test_a_loss_fails_the_query_unless_it_may_go_on(view: View) -> None:
    start, end = {"a": {"0": 9, "1": 0}}, {"a": {"0": 4, "1": 5}}
    with pytest.raises(DataLoss, match=r"went back from offset 9 to 4.*failOnDataLoss"):
        stream().partitions(start, end)
    assert ranges(stream(failOnDataLoss="false").partitions(start, end)) == [(A1, 0, 5)]


def test_a_topic_that_was_made_again_fails_the_query_unless_it_may_go_on(view: View) -> None:
    view.recreated = {"a"}
    with pytest.raises(DataLoss, match="topic a was deleted and created again"):
        stream().latestOffset({"a": {"0": 500, "1": 0}}, ReadAllAvailable())


def test_a_topic_that_was_made_again_is_read_from_its_beginning_once(view: View) -> None:
    reader, start = stream(failOnDataLoss="false"), {"a": {"0": 500, "1": 40}}
    view.recreated = {"a"}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"a": {"0": 100, "1": 100}}
    assert ranges(reader.partitions(start, end)) == [(A0, 0, 100), (A1, 0, 100)]
    view.latest_offsets[A0] = 120
    following = reader.latestOffset(end, ReadAllAvailable())
    assert ranges(reader.partitions(end, following)) == [(A0, 100, 120)]


def test_a_reader_travels_without_its_connections(view: View) -> None:
    reader = stream()
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.initialOffset() == reader.initialOffset()


def test_stopping_closes_what_was_opened(view: View) -> None:
    reader = stream()
    reader.initialOffset()
    reader.stop()
    assert view.closed
    reader.stop()


def test_the_last_known_ends_are_reported_without_asking_again(view: View) -> None:
    reader = stream()
    assert reader.reportLatestOffset() is None
    reader.latestOffset({"a": {"0": 0, "1": 0}}, ReadAllAvailable())
    asked = view.asked
    assert reader.reportLatestOffset() == {"a": {"0": 100, "1": 100}}
    assert view.asked == asked


def test_ends_are_reported_while_a_query_reads_what_there_was(view: View) -> None:
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    view.latest_offsets[A0] = 150
    assert reader.reportLatestOffset() == {"a": {"0": 150, "1": 100}}
    asked = view.asked
    reader.reportLatestOffset()
    assert view.asked == asked


def test_the_group_is_told_of_a_batch_when_the_next_is_asked_for(view: View) -> None:
    reader = stream()
    reader.latestOffset({"a": {"0": 7, "1": 9}}, ReadAllAvailable())
    assert view.group.told == [{A0: 7, A1: 9}]


def test_one_task_announces_the_reader_until_its_group_is_known(view: View) -> None:
    reader, start, end = stream(), {"a": {"0": 7, "1": 9}}, {"a": {"0": 17, "1": 19}}
    announced = [task.announcement for task in reader.partitions(start, end)]
    assert [found and (found.key, found.start) for found in announced] == [(A0, 7), None]
    view.group.is_known = True
    assert [task.announcement for task in reader.partitions(start, end)] == [None, None]
    view.group.is_known = False
    named = stream(groupId="mine")
    assert [task.announcement for task in named.partitions(start, end)] == [None, None]


def test_a_batch_query_reads_between_its_ends(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "start", lambda self, position: {A0: 3, A1: 100})
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    assert ranges(BatchReader(options, 2).partitions()) == [(A0, 3, 100)]
    assert view.closed


def test_filters_narrow_what_a_batch_query_fetches(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "start", lambda self, position: {A0: 3, A1: 5})
    monkeypatch.setattr(View, "first_since", lambda self, timestamps: {A1: 42}, raising=False)
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})

    def left(*filters: Any) -> list[Any]:
        reader = NarrowingBatchReader(options, 2)
        assert list(reader.pushFilters(list(filters))) == list(filters)
        return ranges(reader.partitions())

    assert left(EqualTo(("partition",), 1)) == [(A1, 5, 100)]
    assert left(GreaterThanOrEqual(("offset",), 90)) == [(A0, 90, 100), (A1, 90, 100)]
    assert left(GreaterThanOrEqual(("timestamp",), datetime.now(UTC))) == [(A1, 42, 100)]


@pytest.mark.parametrize("pushed", [[], [EqualTo(("partition",), 0)]])
def test_a_batch_query_names_the_partitions_that_end_before_they_start(
    view: View, monkeypatch: pytest.MonkeyPatch, pushed: list[Any]
) -> None:
    monkeypatch.setattr(View, "start", lambda self, position: {A0: 0, A1: 300})
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"})
    reader = NarrowingBatchReader(options, 2)
    reader.pushFilters(pushed)
    with pytest.raises(
        QueryError, match="partition 1 of topic a would be read from offset 300 to 100"
    ) as raised:
        reader.partitions()
    assert "partition 0" not in str(raised.value)


def test_a_batch_reader_refuses_the_options_of_a_stream() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "maxOffsetsPerTrigger": "5"}
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        BatchReader(SourceOptions.parse(options), 2)


def test_a_plan_without_work_reads_nothing() -> None:
    from pyspark.sql.datasource import InputPartition

    assert list(stream().read(InputPartition(None))) == []


class Timer:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds


def test_an_idle_query_asks_less_and_less_often_up_to_a_bound() -> None:
    timer, asked = Timer(), []

    def ask(start: Offsets) -> Offsets:
        asked.append(timer.now)
        return {A0: 5}

    ends = LatestOffsets(ask, timer, timer.sleep)
    for _ in range(8):
        assert ends.newer_than({A0: 5}) == {A0: 5}
    assert timer.slept == [0.02, 0.04, 0.08, 0.1, 0.1, 0.1, 0.1]
    assert len(asked) == 8


def test_new_records_are_answered_at_once_and_end_the_idling() -> None:
    timer = Timer()
    latest = {A0: 5}
    ends = LatestOffsets(lambda start: dict(latest), timer, timer.sleep)
    for _ in range(6):
        ends.newer_than({A0: 5})
    slept = len(timer.slept)
    latest[A0] = 9
    ends.newer_than({A0: 5})
    assert ends.newer_than({A0: 5}) == {A0: 9}
    assert len(timer.slept) == slept + 1


def test_a_task_partition_travels() -> None:
    from felice.pipelines.spark.planning import OffsetRange

    task = (OffsetRange("a", 0, 1, 2),)
    assert pickle.loads(pickle.dumps(TaskPartition(task))).task == task
