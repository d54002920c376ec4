"""The loop of source tasks against a real broker: offsets after records, failures, transactions, new topics."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from connect_tasks import MemoryOffsets, Running, run_source, stopped_at_end
from felice.client.admin import AdminClient
from felice.pipelines.connect.connector.base import SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import Header, SourceRecord
from felice.pipelines.connect.model.schema import STRING, Schema
from felice.pipelines.connect.task.conversion import Step
from felice.pipelines.connect.task.new_topics import TopicCreation, TopicGroup
from felice.pipelines.connect.task.source_transactions import Boundary
from felice.pipelines.connect.task.tolerance import ErrorPolicy
from felice.pipelines.connect.transforms.routing import Filter
from felice.pipelines.connect.transforms.transformation import R, Transformation
from felice.testing import Broker, ErrorCode, felice_broker
from waiting import wait_until

SOURCE = {"table": "t"}
TOLERANT = ErrorPolicy(tolerates_all=True)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("out", partitions=1)
        started.create_topic("offsets", partitions=1)
        yield started


class Quiet(SourceTask):
    """The numbers from its offset to `end`, in batches. It does not want to be told of each record."""

    def __init__(self, end: int = 100, batch: int = 10) -> None:
        self.end, self.batch = end, batch
        self.calls: list[str] = []
        self.confirmed: list[tuple[object, str | None]] = []
        self.failures: list[Exception] = []
        self.next = 0
        self._stopped = threading.Event()

    def start(self, config: Mapping[str, str]) -> None:
        self.calls.append("start")
        offset = self.context.offset(SOURCE)
        self.next = 0 if offset is None else int(offset["next"])
        self.first = self.next

    def poll(self) -> Sequence[SourceRecord] | None:
        if self.failures:
            raise self.failures.pop(0)
        numbers = range(self.next, min(self.next + self.batch, self.end))
        if not numbers:
            self._stopped.wait(0.05)
            return None
        self.next = numbers.stop
        return [self.record(n) for n in numbers]

    def record(self, number: int) -> SourceRecord:
        return SourceRecord(
            "out",
            0,
            None,
            str(number).encode(),
            Schema(STRING),
            f"v{number}",
            source_partition=SOURCE,
            source_offset={"next": number + 1},
        )

    def commit(self) -> None:
        self.calls.append("commit")

    def stop(self) -> None:
        self.calls.append("stop")
        self._stopped.set()

    def close(self) -> None:
        self.calls.append("close")


class Counter(Quiet):
    """The loop calls its `commit_record` for each record."""

    def commit_record(self, record: SourceRecord, topic: str | None, partition: int, offset: int) -> None:
        self.confirmed.append((record.value, topic))


class Large(Counter):
    """Its record 7 is too large for a broker."""

    def record(self, number: int) -> SourceRecord:
        made = Quiet.record(self, number)
        return replace(made, value="x" * 2_000_000) if number == 7 else made


def values(broker: Broker, topic: str = "out") -> list[str]:
    return [(one.value or b"").decode() for one in broker.records(topic)]


def offset_of(offsets: MemoryOffsets) -> Place | None:
    return offsets.read([SOURCE])[0]


def offsets_topic(broker: Broker) -> list[tuple[object, object]]:
    return [(json.loads(one.key or b""), json.loads(one.value or b"")) for one in broker.records("offsets")]


@pytest.mark.parametrize("boundary", [None, *Boundary])
def test_a_next_generation_goes_on_where_the_last_one_ended(
    broker: Broker, boundary: Boundary | None
) -> None:
    class Committing(Counter):
        def poll(self) -> Sequence[SourceRecord] | None:
            records = super().poll()
            if records and self.context.transaction is not None:
                self.context.transaction.commit(records[-1])
            return records

    offsets = MemoryOffsets()
    first, second = Committing(50), Committing(80)
    with stopped_at_end(run_source(broker, first, offsets=offsets, boundary=boundary)) as running:
        wait_until(lambda: len(first.confirmed) == 50)
        running.stop()
    assert first.calls.count("stop") == 1
    assert first.calls[-1] == "close"
    if boundary is not None:
        key, value = offsets_topic(broker)[-1]
        assert (key, value) == (["source", SOURCE], {"next": 50})
        offsets.write([(SOURCE, {"next": 50})])
    assert offset_of(offsets) == {"next": 50}
    with stopped_at_end(run_source(broker, second, offsets=offsets, boundary=boundary)):
        wait_until(lambda: len(second.confirmed) == 30)
    assert second.first == 50
    assert values(broker) == [f"v{n}" for n in range(80)]


def test_offsets_are_committed_regularly(broker: Broker) -> None:
    offsets = MemoryOffsets()
    task = Counter(20)
    with stopped_at_end(run_source(broker, task, offsets=offsets)):
        wait_until(lambda: offset_of(offsets) == {"next": 20})
        assert "commit" in task.calls


def test_no_offset_passes_a_record_that_is_not_in_its_topic(broker: Broker) -> None:
    broker.create_topic("stuck", partitions=1)
    broker.faults.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, topic="stuck", times=None)

    class Mixed(Counter):
        def record(self, number: int) -> SourceRecord:
            made = super().record(number)
            return replace(made, topic="stuck") if number == 5 else made

    offsets = MemoryOffsets()
    task = Mixed(20)
    with stopped_at_end(run_source(broker, task, offsets=offsets)):
        wait_until(lambda: len(task.confirmed) == 19)
        wait_until(lambda: offset_of(offsets) == {"next": 5})
    assert offset_of(offsets) == {"next": 5}


def test_a_record_that_the_broker_refuses_ends_the_task(broker: Broker) -> None:
    offsets = MemoryOffsets()
    error = run_source(broker, Large(20), offsets=offsets).wait()
    assert isinstance(error, ConnectError)
    assert "producer send callback" in str(error)
    assert offset_of(offsets) == {"next": 7}


def test_a_refused_record_is_skipped_if_errors_are_tolerated(broker: Broker) -> None:
    offsets = MemoryOffsets()
    task = Large(20)
    with stopped_at_end(run_source(broker, task, offsets=offsets, policy=TOLERANT)) as running:
        wait_until(lambda: offset_of(offsets) == {"next": 20})
        assert running.tolerance.failures == 1
    assert len(values(broker)) == 19


def test_dropped_records_are_told_and_their_offsets_committed(broker: Broker) -> None:
    offsets = MemoryOffsets()
    task = Counter(5)
    with stopped_at_end(run_source(broker, task, offsets=offsets, steps=[Step(Filter({}))])):
        wait_until(lambda: offset_of(offsets) == {"next": 5})
    assert task.confirmed == [(f"v{n}", None) for n in range(5)]
    assert values(broker) == []


# Tasks that are not told of each record: their records are sent in columns, if there are many


@pytest.mark.parametrize("batch", [5, 200])
@pytest.mark.parametrize("boundary", [None, Boundary.POLL, Boundary.INTERVAL])
def test_a_task_that_is_not_told_of_records(broker: Broker, boundary: Boundary | None, batch: int) -> None:
    offsets = MemoryOffsets()
    first, second = Quiet(450, batch), Quiet(700, batch)
    for task in (first, second):
        with stopped_at_end(run_source(broker, task, offsets=offsets, boundary=boundary)) as running:
            wait_until(lambda task=task: task.next == task.end)
            running.stop()
        if boundary is not None:
            offsets.write([(SOURCE, offsets_topic(broker)[-1][1])])
        assert offset_of(offsets) == {"next": task.end}
    assert second.first == 450
    assert values(broker) == [f"v{n}" for n in range(700)]


class Varied(Quiet):
    """Records of every shape that columns can have, and with `is_mixed` of some that they cannot have."""

    def __init__(self, topic: str, *, is_mixed: bool) -> None:
        super().__init__(300, 100)
        self._topic, self._is_mixed = topic, is_mixed

    def record(self, number: int) -> SourceRecord:
        made = replace(
            super().record(number),
            topic=self._topic,
            partition=(None, 0, 1)[number % 3],
            key=(None, b"", b"k%d" % number)[number % 3],
            value=None if number % 5 == 0 else f"v{number} \u00e4",
            timestamp=1_700_000_000_000 + number,
        )
        if self._is_mixed and number % 50 == 0:
            return replace(made, headers=(Header("h", None, b"x"),))
        return made


@pytest.mark.parametrize("is_mixed", [False, True])
def test_records_in_columns_are_those_that_are_sent_one_by_one(broker: Broker, is_mixed: bool) -> None:
    class Told(Varied):
        def commit_record(self, *about: object) -> None: ...

    found = []
    for kind, topic in ((Varied, "columns"), (Told, "single")):
        broker.create_topic(topic, partitions=3)
        task = kind(topic, is_mixed=is_mixed)
        with stopped_at_end(run_source(broker, task)) as running:
            wait_until(lambda task=task: task.next == task.end)
            running.stop()
        records = broker.records(topic)
        rows = [(one.key, one.value, one.timestamp_ms, one.headers) for one in records]
        # A record without a key and a partition goes to any partition.
        placed = {(one.key, one.value, one.partition) for one in records if one.key is not None}
        found.append((sorted(rows, key=str), placed))
    assert len(found[0][0]) == 300
    assert found[0] == found[1]


def test_a_refused_record_ends_a_task_that_is_not_told(broker: Broker) -> None:
    class QuietLarge(Quiet):
        record = Large.record

    offsets = MemoryOffsets()
    error = run_source(broker, QuietLarge(200, 50), offsets=offsets).wait()
    assert isinstance(error, ConnectError)
    assert "producer send callback" in str(error)
    assert (offset_of(offsets) or {"next": 0})["next"] <= 7


def test_a_task_that_is_not_told_waits_for_its_records(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, topic="out", times=None)
    offsets = MemoryOffsets()
    task = Quiet(10_000_000, 100)
    running = run_source(broker, task, offsets=offsets, commit_timeout_s=0.2)
    with stopped_at_end(running):
        wait_until(lambda: running.loop._is_behind)  # type: ignore[union-attr]
        reached = task.next
        time.sleep(0.5)
        assert task.next == reached
        assert offset_of(offsets) is None
        fault.remove()
        wait_until(lambda: (offset_of(offsets) or {"next": 0})["next"] > reached)
        task.end = task.next
    committed = offset_of(offsets)
    assert committed is not None
    assert values(broker)[: committed["next"]] == [f"v{n}" for n in range(committed["next"])]


def test_a_topic_that_is_not_there_yet_keeps_no_task_from_stopping() -> None:
    offsets = MemoryOffsets()
    with Broker(properties={"auto.create.topics.enable": "false"}) as broker:
        running = run_source(broker, Quiet(10_000_000, 100), offsets=offsets, commit_timeout_s=0.2)
        with stopped_at_end(running):
            wait_until(lambda: running.loop._is_behind)  # type: ignore[union-attr]
        assert offset_of(offsets) is None
        with stopped_at_end(run_source(broker, Quiet(300, 100), offsets=offsets, commit_timeout_s=0.2)):
            broker.create_topic("out", partitions=1)
            wait_until(lambda: offset_of(offsets) == {"next": 300})
        assert values(broker) == [f"v{n}" for n in range(300)]


class RefusesSeven(Transformation):
    def apply(self, record: R) -> R | None:
        if record.value == "v7":
            raise DataError("no v7")
        return record


def test_bad_records_end_the_task_or_are_set_aside(broker: Broker) -> None:
    error = run_source(broker, Counter(20), steps=[Step(RefusesSeven({}))]).wait()
    assert str(error) == "Tolerance exceeded in error handler"
    assert values(broker) == [f"v{n}" for n in range(7)]
    offsets = MemoryOffsets()
    with stopped_at_end(
        run_source(broker, Counter(20), steps=[Step(RefusesSeven({}))], policy=TOLERANT, offsets=offsets)
    ):
        wait_until(lambda: offset_of(offsets) == {"next": 20})
    assert len(values(broker)) == 7 + 19


def test_a_poll_is_tried_again_after_a_retriable_error(broker: Broker) -> None:
    task = Counter(5)
    task.failures = [RetriableError("busy"), RetriableError("busy")]
    with stopped_at_end(run_source(broker, task)):
        wait_until(lambda: len(task.confirmed) == 5)
    broken = Counter(5)
    broken.failures = [ValueError("broken")]
    assert str(run_source(broker, broken, policy=TOLERANT).wait()) == "broken"


def test_a_paused_task_is_not_polled(broker: Broker) -> None:
    task = Counter(1_000_000, batch=1)
    with stopped_at_end(run_source(broker, task)) as running:
        wait_until(lambda: task.confirmed)
        running.control.pause()
        seen = -1
        while seen != task.next:
            seen = task.next
            threading.Event().wait(0.5)
        running.control.resume()
        wait_until(lambda: task.next > seen)


@pytest.mark.parametrize("bad", [{"next": [1]}, {"next": {"a": 1}}, {1: 1}])
def test_an_offset_that_json_topics_cannot_hold_ends_the_task(broker: Broker, bad: Place) -> None:
    class Odd(Counter):
        def record(self, number: int) -> SourceRecord:
            return replace(super().record(number), source_offset=bad)

    for boundary in (None, Boundary.POLL):
        error = run_source(broker, Odd(5), boundary=boundary).wait()
        assert isinstance(error, ConnectError) and "of a record" in str(error)


# Exactly once


def test_records_and_their_offset_are_in_one_transaction(broker: Broker) -> None:
    class Failing(Counter):
        def poll(self) -> Sequence[SourceRecord] | None:
            if self.next == 20:
                return [self.record(20), self.record(21), replace(self.record(22), value="x" * 2_000_000)]
            return super().poll()

    error = run_source(broker, Failing(50), boundary=Boundary.POLL).wait()
    assert isinstance(error, ConnectError)
    assert values(broker) == [f"v{n}" for n in range(20)]
    assert offsets_topic(broker)[-1][1] == {"next": 20}


def test_an_older_generation_can_write_no_more(broker: Broker) -> None:
    old, new = Counter(1_000_000, batch=1), Counter(0)
    first = run_source(broker, old, boundary=Boundary.POLL)
    with stopped_at_end(first):
        wait_until(lambda: len(old.confirmed) > 3)
        with stopped_at_end(run_source(broker, new, boundary=Boundary.POLL)):
            assert first.wait() is not None
            assert values(broker) == [f"v{n}" for n in range(len(values(broker)))]
            assert offsets_topic(broker)[-1][1] == {"next": len(values(broker))}


def test_a_connector_aborts_records_and_does_not_meet_them_again(broker: Broker) -> None:
    class Choosing(Counter):
        def poll(self) -> Sequence[SourceRecord] | None:
            records = super().poll()
            transaction = self.context.transaction
            if records and transaction is not None:
                transaction.commit(records[3])
                transaction.abort(records[6])
                transaction.commit()
            return records

    with stopped_at_end(run_source(broker, Choosing(10), boundary=Boundary.CONNECTOR)):
        wait_until(lambda: offsets_topic(broker) and offsets_topic(broker)[-1][1] == {"next": 10})
    assert values(broker) == ["v0", "v1", "v2", "v3", "v7", "v8", "v9"]
    assert [value["next"] for _, value in offsets_topic(broker)] == [4, 7, 10]  # type: ignore[index]


def test_what_a_connector_did_not_commit_is_not_seen(broker: Broker) -> None:
    task = Counter(10)
    with stopped_at_end(run_source(broker, task, boundary=Boundary.CONNECTOR, interval_s=3600)) as running:
        wait_until(lambda: task.next == 10)
        running.stop()
    assert values(broker) == []
    assert offsets_topic(broker) == []


# New topics


def test_topics_are_created_by_the_first_group_that_matches(broker: Broker) -> None:
    class Spreading(Counter):
        def record(self, number: int) -> SourceRecord:
            topic = ("logs-a", "logs-not", "other")[number % 3]
            return replace(super().record(number), topic=topic, partition=None)

    groups = [
        TopicGroup(
            "logs", 1, 3, (re.compile("logs-.*"),), (re.compile("logs-not"),), {"cleanup.policy": "compact"}
        ),
        TopicGroup("default", -1, 2),
    ]
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        creation = TopicCreation(AdminClient({"bootstrap.servers": broker.bootstrap}), groups)
        with stopped_at_end(run_source(broker, task := Spreading(9), topics=creation)):
            wait_until(lambda: len(task.confirmed) == 9)
        found = {name: len(one.partitions) for name, one in admin.list_topics(timeout=60).topics.items()}
    assert {name: found[name] for name in ("logs-a", "logs-not", "other")} == {
        "logs-a": 3,
        "logs-not": 2,
        "other": 2,
    }


def test_a_topic_that_cannot_be_created_ends_the_task(broker: Broker) -> None:
    class Wrong(Counter):
        def record(self, number: int) -> SourceRecord:
            return replace(super().record(number), topic="new")

    creation = TopicCreation(
        AdminClient({"bootstrap.servers": broker.bootstrap}), [TopicGroup("default", 3, 1)]
    )
    error = run_source(broker, Wrong(1), topics=creation).wait()
    assert isinstance(error, ConnectError)
    assert str(error).startswith("Error while attempting to create/find topic(s) 'new': ")


# Dead letters


def run_refusing_seven(
    broker: Broker, offsets: MemoryOffsets, boundary: Boundary | None, dead_letter_topic: str
) -> Running:
    return run_source(
        broker,
        Counter(20),
        offsets=offsets,
        policy=TOLERANT,
        steps=[Step(RefusesSeven({}))],
        boundary=boundary,
        dead_letter_topic=dead_letter_topic,
    )


@pytest.mark.parametrize("boundary", [None, Boundary.POLL])
def test_records_that_fail_are_kept_in_the_dead_letter_topic(
    broker: Broker, boundary: Boundary | None
) -> None:
    broker.create_topic("dead", partitions=1)
    offsets = MemoryOffsets()
    running = run_refusing_seven(broker, offsets, boundary, "dead")
    with stopped_at_end(running):
        wait_until(lambda: len(values(broker)) == 19)
        wait_until(lambda: broker.records("dead"))
        running.stop()
    (letter,) = broker.records("dead")
    found = json.loads(letter.value or b"")
    assert (found["topic"], found["key"], found["value"]) == ("out", "Nw==", "v7")
    assert (found["source_partition"], found["source_offset"]) == (SOURCE, {"next": 8})
    headers = dict(letter.headers)
    assert headers["__connect.errors.stage"] == b"TRANSFORMATION"
    assert headers["__connect.errors.exception.message"] == b"no v7"
    assert headers["__connect.errors.topic"] == b"out"


def test_a_record_that_is_too_large_leaves_its_place(broker: Broker) -> None:
    broker.create_topic("dead", partitions=1)
    offsets = MemoryOffsets()
    with stopped_at_end(
        run_source(broker, Large(20), offsets=offsets, policy=TOLERANT, dead_letter_topic="dead")
    ):
        wait_until(lambda: offset_of(offsets) == {"next": 20})
    (letter,) = broker.records("dead")
    found = json.loads(letter.value or b"")
    assert found["source_offset"] == {"next": 8}
    assert found["left_out_bytes"] > 2_000_000


@pytest.mark.parametrize("boundary", [None, Boundary.POLL])
def test_no_offset_passes_a_record_whose_dead_letter_cannot_be_written(
    broker: Broker, boundary: Boundary | None
) -> None:
    offsets = MemoryOffsets()
    error = run_refusing_seven(broker, offsets, boundary, "no/topic").wait()
    assert isinstance(error, ConnectError) and "no/topic" in str(error)
    committed = [offset_of(offsets) or {"next": 0}, *(value for _, value in offsets_topic(broker))]
    assert max(one["next"] for one in committed) <= 7  # type: ignore[index]
