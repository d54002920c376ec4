"""The loop of sink tasks against a real broker: order, commits, failures, rebalances, dead letters."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest

from connect_tasks import plain_json, run_sink, stopped_at_end
from felice.client import Consumer, TopicPartition
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition as Partition
from felice.pipelines.connect.model.errors import ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import ConnectRecord, SinkRecord
from felice.pipelines.connect.task import sink
from felice.pipelines.connect.task.conversion import Step
from felice.pipelines.connect.task.tolerance import ErrorPolicy
from felice.pipelines.connect.transforms.routing import Filter
from felice.pipelines.connect.transforms.transformation import R, Transformation
from felice.testing import Broker, felice_broker
from waiting import wait_until

TOLERANT = ErrorPolicy(tolerates_all=True)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("in", partitions=2)
        started.create_topic("dead", partitions=1)
        yield started


class Recorder(SinkTask):
    """Keeps what it gets; `flush` moves it to `written`."""

    def __init__(self) -> None:
        self.records: list[SinkRecord] = []
        self.written: list[SinkRecord] = []
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.failures: list[Exception] = []
        self.flush_failures: list[Exception] = []

    def start(self, config: Mapping[str, str]) -> None:
        self.calls.append("start")
        self.threads.add(threading.get_ident())

    def open(self, partitions: Collection[Partition]) -> None:
        self.calls.append(f"open {sorted(partitions)}")
        self.threads.add(threading.get_ident())

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.threads.add(threading.get_ident())
        if self.failures:
            raise self.failures.pop(0)
        self.records += records

    def flush(self, offsets: Mapping[Partition, int]) -> None:
        self.threads.add(threading.get_ident())
        if self.flush_failures:
            self.records = list(self.written)
            raise self.flush_failures.pop(0)
        self.written = list(self.records)

    def close(self, partitions: Collection[Partition]) -> None:
        self.calls.append(f"close {sorted(partitions)}")
        self.threads.add(threading.get_ident())

    def stop(self) -> None:
        self.calls.append("stop")
        self.threads.add(threading.get_ident())

    def values(self, partition: int) -> list[object]:
        return [one.value for one in self.records if one.original_partition == partition]


def committed(broker: Broker, *partitions: int, group: str = "connect-sink") -> list[int]:
    with Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group}) as consumer:
        asked = [TopicPartition("in", one) for one in partitions]
        return [one.offset for one in consumer.committed(asked, timeout=60)]


def fill(broker: Broker, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        broker.produce("in", f"v{number}", key=str(number), partition=number % 2)


def test_records_come_in_order_and_are_committed_after_the_flush(broker: Broker) -> None:
    fill(broker, 200)
    task = Recorder()
    with stopped_at_end(run_sink(broker, task, "in")) as running:
        wait_until(lambda: len(task.records) == 200)
        assert task.values(0) == [f"v{n}" for n in range(0, 200, 2)]
        assert task.values(1) == [f"v{n}" for n in range(1, 200, 2)]
        wait_until(lambda: committed(broker, 0, 1) == [100, 100])
        assert len(task.written) == 200
        fill(broker, 2, 200)
        wait_until(lambda: len(task.records) == 202)
        running.stop()
    assert committed(broker, 0, 1) == [101, 101]  # the commit at the end
    assert task.calls == [
        "start",
        "open [('in', 0), ('in', 1)]",
        "close [('in', 0), ('in', 1)]",
        "stop",
    ]
    assert len(task.threads) == 1


def test_a_record_has_its_place_key_time_and_headers(broker: Broker) -> None:
    broker.produce("in", "value", key="key", partition=1, headers=[("h", b"1"), ("h", None)])
    task = Recorder()
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: task.records)
    (record,) = task.records
    (stored,) = broker.records("in")
    assert (record.topic, record.partition, record.offset, record.key, record.value) == (
        "in",
        1,
        0,
        b"key",
        "value",
    )
    assert (record.timestamp, record.timestamp_type) == (stored.timestamp_ms, "CreateTime")
    assert [(one.name, one.value) for one in record.headers] == [("h", b"1"), ("h", None)]


def test_a_task_that_cannot_open_its_partitions_tries_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_RETRY_S", 0.2)
    fill(broker, 20)

    class Late(Recorder):
        def open(self, partitions: Collection[Partition]) -> None:
            super().open(partitions)
            if len(self.calls) < 4:
                raise RetriableError("the server is away")
            self.context.seek({("in", 0): 5})

    task = Late()
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: len(task.records) == 15)
        assert task.values(0) == [f"v{n}" for n in range(10, 20, 2)]
        assert task.values(1) == [f"v{n}" for n in range(1, 20, 2)]
        fill(broker, 2, 20)
        wait_until(lambda: len(task.records) == 17)
    assert task.calls.count("open [('in', 0), ('in', 1)]") == 3


def test_a_next_generation_goes_on_after_the_last_commit(broker: Broker) -> None:
    fill(broker, 10)
    first, second = Recorder(), Recorder()
    with stopped_at_end(run_sink(broker, first, "in")) as running:
        wait_until(lambda: len(first.records) == 10)
        running.stop()
    fill(broker, 4, 10)
    with stopped_at_end(run_sink(broker, second, "in")):
        wait_until(lambda: len(second.records) == 4)
    assert sorted(str(one.value) for one in second.records) == ["v10", "v11", "v12", "v13"]


def test_a_batch_is_tried_again_after_a_retriable_error(broker: Broker) -> None:
    task = Recorder()
    task.failures = [RetriableError("busy"), RetriableError("busy")]
    original = task.put

    def put(records: Sequence[SinkRecord]) -> None:
        task.context.set_timeout(1)
        original(records)

    task.put = put  # type: ignore[method-assign]
    fill(broker, 6)
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: len(task.records) == 6)
        fill(broker, 2, 6)  # the partitions are read again afterwards
        wait_until(lambda: len(task.records) == 8)
    assert task.values(0) == ["v0", "v2", "v4", "v6"]
    assert task.failures == []


def test_a_put_that_fails_ends_the_task_and_commits_nothing_of_the_batch(broker: Broker) -> None:
    task = Recorder()
    task.failures = [ConnectError("the disk is full")]
    fill(broker, 6)
    error = run_sink(broker, task, "in").wait()
    assert isinstance(error, ConnectError) and str(error) == "the disk is full"
    assert task.calls[-2:] == ["close [('in', 0), ('in', 1)]", "stop"]
    assert committed(broker, 0, 1) == [-1001, -1001]


def test_an_error_at_the_end_hides_no_other_and_ends_every_step(broker: Broker) -> None:
    class Stubborn(Recorder):
        def close(self, partitions: Collection[Partition]) -> None:
            super().close(partitions)
            raise OSError("cannot close")

    fill(broker, 2)
    failing = Stubborn()
    failing.failures = [ConnectError("the disk is full")]
    assert str(run_sink(broker, failing, "in").wait()) == "the disk is full"
    assert failing.calls[-1] == "stop"
    task = Stubborn()
    running = run_sink(broker, task, "in")
    wait_until(lambda: task.records)
    running.control.stop()
    assert str(running.wait()) == "cannot close"
    assert task.calls[-1] == "stop"
    assert committed(broker, 0, 1) == [1, 1]


def test_records_come_again_after_a_failed_flush(broker: Broker) -> None:
    task = Recorder()
    fill(broker, 10)
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: committed(broker, 0, 1) == [5, 5])
        task.flush_failures = [OSError("the disk is full"), OSError("the disk is full")]
        fill(broker, 10, 10)
        wait_until(lambda: committed(broker, 0, 1) == [10, 10])
    assert task.flush_failures == []
    assert task.values(0) == [f"v{n}" for n in range(0, 20, 2)]


def test_a_failed_flush_before_the_first_commit_rewinds_to_the_first_record(broker: Broker) -> None:
    task = Recorder()
    task.flush_failures = [OSError("not yet")]
    fill(broker, 10)
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: committed(broker, 0, 1) == [5, 5])
    assert task.values(0) == [f"v{n}" for n in range(0, 10, 2)]


def test_a_task_that_keeps_its_offsets_reads_from_them(broker: Broker) -> None:
    class Keeper(Recorder):
        def open(self, partitions: Collection[Partition]) -> None:
            super().open(partitions)
            self.context.seek({("in", 0): 3, ("in", 1): 4})

        def pre_commit(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int]:
            return {}

    fill(broker, 10)
    task = Keeper()
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: len(task.records) == 3)
    assert (task.values(0), task.values(1)) == (["v6", "v8"], ["v9"])
    assert committed(broker, 0, 1) == [-1001, -1001]


def test_no_offset_is_committed_that_the_task_has_not_taken(broker: Broker) -> None:
    class Eager(Recorder):
        def pre_commit(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int]:
            return {**offsets, ("in", 0): 99, ("other", 0): 1}

    fill(broker, 10)
    task = Eager()
    with stopped_at_end(run_sink(broker, task, "in")):
        wait_until(lambda: committed(broker, 1) == [5])
    assert committed(broker, 0) == [-1001]


def test_a_paused_task_gets_nothing_and_keeps_its_partitions(broker: Broker) -> None:
    task = Recorder()
    fill(broker, 2)
    with stopped_at_end(run_sink(broker, task, "in")) as running:
        wait_until(lambda: len(task.records) == 2)
        running.control.pause()
        wait_until(lambda: running.loop._is_waiting)  # type: ignore[union-attr]
        fill(broker, 4, 2)
        threading.Event().wait(1)
        assert len(task.records) == 2
        running.control.resume()
        wait_until(lambda: len(task.records) == 6)
    assert [one for one in task.calls if one.startswith("open")] == ["open [('in', 0), ('in', 1)]"]


def test_partitions_move_to_another_task_without_a_record_twice(broker: Broker) -> None:
    first, second = Recorder(), Recorder()
    fill(broker, 20)
    with stopped_at_end(run_sink(broker, first, "in")) as one:
        wait_until(lambda: len(first.records) == 20)
        with stopped_at_end(run_sink(broker, second, "in")):
            wait_until(lambda: any(call.startswith("open") for call in second.calls))
            wait_until(lambda: len(one.loop.assignment) == 1)  # type: ignore[union-attr]
            fill(broker, 20, 20)
            wait_until(lambda: len(first.records) + len(second.records) >= 40)
    values = [str(record.value) for record in first.records + second.records]
    assert sorted(values) == sorted(f"v{n}" for n in range(40))


class Refuses(Transformation):
    """Fails for values that begin with `bad`."""

    def apply(self, record: R) -> R | None:
        if str(record.value).startswith("bad"):
            raise DataError(f"refused: {record.value}")
        return record


def test_a_bad_record_ends_the_task_if_no_error_is_tolerated(broker: Broker) -> None:
    broker.produce("in", "good", partition=0)
    broker.produce("in", "bad", partition=0)
    task = Recorder()
    error = run_sink(broker, task, "in", steps=[Step(Refuses({}))]).wait()
    assert isinstance(error, ConnectError) and str(error) == "Tolerance exceeded in error handler"
    assert str(error.__cause__) == "refused: bad"


def test_bad_records_go_to_the_dead_letter_topic_as_they_were(broker: Broker) -> None:
    broker.produce("in", '{"a": 1}', partition=0)
    broker.produce("in", "{bad", key="k", partition=0, headers=[("h", b"x")])
    broker.produce("in", '{"a": 2}', partition=0)
    task = Recorder()
    with stopped_at_end(
        run_sink(broker, task, "in", policy=TOLERANT, value=plain_json(), dead_letter_topic="dead")
    ) as running:
        wait_until(lambda: committed(broker, 0) == [3])
        assert running.tolerance.failures == 1
    assert [record.value for record in task.records] == [{"a": 1}, {"a": 2}]
    (letter,) = broker.records("dead")
    assert (letter.key, letter.value) == (b"k", b"{bad")
    headers = dict(letter.headers)
    assert headers.pop("h") == b"x"
    assert list(headers) == [
        "__connect.errors." + name
        for name in (
            "topic",
            "partition",
            "offset",
            "connector.name",
            "task.id",
            "stage",
            "class.name",
            "exception.class.name",
            "exception.message",
            "exception.stacktrace",
        )
    ]
    assert headers["__connect.errors.topic"] == b"in"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.connector.name"] == b"sink"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert b"Traceback" in (headers["__connect.errors.exception.stacktrace"] or b"")


def test_records_that_the_target_refuses_are_reported_by_the_task(broker: Broker) -> None:
    class Picky(Recorder):
        def put(self, records: Sequence[SinkRecord]) -> None:
            for record in records:
                if record.value == "v3":
                    self.context.report(record, ValueError("no v3 here"))
                else:
                    self.records.append(record)

    fill(broker, 6)
    task = Picky()
    with stopped_at_end(run_sink(broker, task, "in", policy=TOLERANT, dead_letter_topic="dead")):
        wait_until(lambda: committed(broker, 0, 1) == [3, 3])
    (letter,) = broker.records("dead")
    assert letter.value == b"v3"
    assert dict(letter.headers)["__connect.errors.stage"] == b"TASK_PUT"


def test_no_offset_is_committed_while_its_dead_letter_cannot_be_written(broker: Broker) -> None:
    broker.produce("in", "{bad", partition=0)
    task = Recorder()
    with stopped_at_end(
        run_sink(broker, task, "in", policy=TOLERANT, value=plain_json(), dead_letter_topic="no/topic")
    ) as running:
        error = running.wait()
    assert isinstance(error, ConnectError) and "no/topic" in str(error)
    assert committed(broker, 0) == [-1001]


def test_dropped_records_are_committed(broker: Broker) -> None:
    fill(broker, 10)
    task = Recorder()
    with stopped_at_end(run_sink(broker, task, "in", steps=[Step(Filter({}))])):
        wait_until(lambda: committed(broker, 0, 1) == [5, 5])
    assert task.records == []


def test_a_predicate_chooses_the_records_of_a_transformation(broker: Broker) -> None:
    class Even:
        def test(self, record: ConnectRecord) -> bool:
            return int(str(record.value)[1:]) % 2 == 0

    for negate, expected in ((False, ["v1", "v3"]), (True, ["v0", "v2"])):
        task = Recorder()
        name = f"predicate-{negate}"
        steps = [Step(Filter({}), Even(), negate)]  # type: ignore[arg-type]
        if not negate:
            fill(broker, 4)
        with stopped_at_end(run_sink(broker, task, "in", steps=steps, name=name)):
            wait_until(lambda: committed(broker, 0, 1, group=f"connect-{name}") == [2, 2])  # noqa: B023
        assert sorted(str(one.value) for one in task.records) == expected


def test_a_topic_that_appears_later_is_read_by_a_pattern(broker: Broker) -> None:
    task = Recorder()
    with stopped_at_end(run_sink(broker, task, "^late-.*")):
        broker.create_topic("late-1", partitions=1)
        broker.produce("late-1", "x", partition=0)
        wait_until(lambda: task.records)
