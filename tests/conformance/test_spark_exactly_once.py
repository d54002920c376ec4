"""Spark's exactly-once sink leaves one copy when processes are killed at random, and each batch is visible as a whole
or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.spark_kills import QUICK, check_copy, check_copy_by_java, copy_under_kills, workplace
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.client.blocking.coordinators import BlockingCoordinators
from felice.client.error import KafkaException
from felice.pipelines.spark.commit import Decision, Outcome, Prepared, commit_batch
from felice.pipelines.spark.connections import client_of
from felice.pipelines.spark.identity import TaskIdentity, task_prefix
from felice.pipelines.spark.ledger import BrokerLedger
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.writer import Written, abort_parts, commit_parts, write_part


@pytest.mark.felice_only
@pytest.mark.timeout(1800)
def test_drivers_workers_and_brokers_that_are_killed_leave_one_copy(tmp_path: Path) -> None:
    with workplace(tmp_path) as (place, bootstrap, kill):
        outcome = copy_under_kills(bootstrap, place, QUICK, seed=3, kill_broker=kill)
        assert outcome.killed == {"worker": 2, "broker": 1, "commit": 2}
        check_copy_by_java(bootstrap, QUICK.records)


def test_the_check_reports_what_is_wrong_with_a_copy(broker: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance import spark_kills

    for copied, reproach in (([0, 1, 1, 2], "1 twice"), ([0, 2], "1 missing")):
        rows = [(0, b"%08d" % number) for number in copied]
        monkeypatch.setattr(spark_kills, "read_all", lambda *_, rows=rows: iter(rows))
        with pytest.raises(AssertionError, match=reproach):
            check_copy(broker.bootstrap, 3)


class Query:
    """The writes of a query without Spark: tasks write and drivers commit, as often as a test wants."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.options = SinkOptions.parse({"kafka.bootstrap.servers": bootstrap, "topic": topic})
        self.name = str(uuid.uuid4())
        self.bootstrap, self.topic = bootstrap, topic

    def write(self, batch: int, *parts: list[str], attempt: int = 0, topic: str = "") -> list[Written]:
        import pyarrow as pa

        options = replace(self.options, topic=topic or self.topic)
        return [
            write_part(
                iter([pa.RecordBatch.from_pydict({"value": rows})]),
                options,
                TaskIdentity(self.name, batch, slot, attempt),
            )
            for slot, rows in enumerate(parts)
        ]

    def commit(self, written: list[Written]) -> None:
        commit_parts(written, self.options)

    def abort(self, written: list[Written]) -> None:
        abort_parts(written, self.options)

    def coordinators(self) -> BlockingCoordinators:
        return BlockingCoordinators(client_of(self.options.client))

    def ledger(self) -> BrokerLedger:
        return BrokerLedger(self.coordinators(), self.name, [self.topic])

    def visible(self) -> list[str]:
        from conformance.copying import read_all

        return sorted(value.decode() for _, value in read_all(self.bootstrap, self.topic, 2))

    def open_now(self) -> list[str]:
        return self.coordinators().list_open(task_prefix(self.name))


@pytest.fixture
def query(broker: Target) -> Iterator[Query]:
    made = Query(broker.bootstrap, create_topic(broker, unique_name("once"), partitions=2))
    yield made
    client_of(made.options.client).close()


def prepared(written: list[Written]) -> list[Prepared]:
    return [message.prepared for message in written if message.prepared is not None]


def test_a_batch_is_visible_when_it_is_committed_and_a_replay_adds_nothing(query: Query) -> None:
    written = query.write(0, ["1", "2"], ["3"])
    assert query.visible() == []
    query.commit(written)
    assert query.visible() == ["1", "2", "3"]
    query.commit(query.write(0, ["1", "2", "3"]))
    assert query.visible() == ["1", "2", "3"]
    query.commit(query.write(1, ["4"]))
    assert query.visible() == ["1", "2", "3", "4"]
    assert query.open_now() == []


def test_the_next_driver_carries_out_a_decision_although_its_rows_differ(query: Query) -> None:
    first = prepared(query.write(0, ["1"], ["2"], ["3"]))
    ledger = query.ledger()
    ledger.take_over()
    ledger.decide(Decision(0, tuple(first)))
    ledger.commit(first[:1])
    query.commit(query.write(0, ["3"], ["x"]))
    assert query.visible() == ["1", "2", "3"]
    assert query.open_now() == []


def test_aborting_a_replay_keeps_the_decided_transactions(query: Query) -> None:
    first = query.write(0, ["1"], ["2"])
    ledger = query.ledger()
    ledger.take_over()
    ledger.decide(Decision(0, tuple(prepared(first))))
    query.abort(first)
    assert len(query.open_now()) == 2
    query.commit(query.write(0, ["other"]))
    assert query.visible() == ["1", "2"]


def test_an_aborted_batch_is_written_again_and_open_transactions_are_aborted(query: Query) -> None:
    query.abort(query.write(0, ["1"], ["2"]))
    query.write(0, ["1"], ["2"])  # its driver dies
    query.commit(query.write(0, ["1", "2"]))
    assert query.visible() == ["1", "2"]
    assert query.open_now() == []


def test_an_aborted_batch_leaves_nothing_open_although_the_batch_before_used_the_same_ids(
    query: Query,
) -> None:
    query.commit(query.write(0, ["1"]))
    query.abort(query.write(1, ["2"]))
    assert query.open_now() == []


@pytest.mark.parametrize("winner", [0, 1])
def test_the_open_transaction_of_a_speculative_attempt_is_aborted(query: Query, winner: int) -> None:
    query.commit(query.write(0, ["1"]))
    attempts = [query.write(1, ["2"]), query.write(1, ["2"], attempt=1)]
    query.commit(attempts[winner])
    assert query.visible() == ["1", "2"]
    assert query.open_now() == []


def test_a_task_of_a_stage_that_runs_again_does_not_abort_what_the_first_wrote(query: Query) -> None:
    """Spark numbers the attempts of a repeated stage from 0 again."""
    first = query.write(0, ["1"], ["2"])
    query.write(0, ["1"])
    query.commit(first)
    assert query.visible() == ["1", "2"]
    assert query.open_now() == []


def test_a_write_that_is_retried_within_a_batch_is_written_once(query: Query) -> None:
    """As in `foreachBatch`: the first write was decided, and failed during its commit."""
    first = query.write(0, ["1"], ["2"])
    ledger = query.ledger()
    ledger.take_over()
    ledger.decide(Decision(0, tuple(prepared(first))))
    ledger.commit(prepared(first)[:1])
    query.abort(first)
    query.commit(query.write(0, ["1"], ["2"]))
    assert query.visible() == ["1", "2"]
    assert query.open_now() == []


def test_a_late_task_cannot_change_the_outcome_of_a_decision(query: Query) -> None:
    """The late transaction is aborted after the commit: a replay must not mistake the commit for an abort."""
    query.commit(query.write(0, ["1"]))
    late = query.write(0, ["1"])
    query.ledger().abort(prepared(late))
    query.commit(query.write(0, ["1"]))
    assert query.visible() == ["1"]


def test_a_batch_that_is_decided_again_for_another_topic_is_replayed_by_its_last_decision(
    broker: Target, query: Query
) -> None:
    other = create_topic(broker, f"a-{query.topic}", partitions=2)
    first = query.write(0, ["1"])
    ledger = query.ledger()
    ledger.take_over()
    ledger.decide(Decision(0, tuple(prepared(first))))
    ledger.abort(prepared(first))  # as the broker does after the timeout
    query.commit(query.write(0, ["1"], topic=other))
    query.commit(query.write(0, ["1"]))
    assert query.visible() == []
    query.topic = other
    assert query.visible() == ["1"]


def test_open_transactions_of_a_query_whose_name_is_longer_are_left_alone(
    broker: Target, query: Query
) -> None:
    longer = Query(broker.bootstrap, query.topic)
    longer.name = f"{query.name}-more"
    written = longer.write(0, ["1"])
    query.commit(query.write(0, ["2"]))
    longer.commit(written)
    assert query.visible() == ["1", "2"]
    client_of(longer.options.client).close()


def test_a_batch_torn_by_a_timeout_is_completed_by_a_replay_of_the_same_parts(query: Query) -> None:
    first = prepared(query.write(0, ["1"], ["2"]))
    ledger = query.ledger()
    ledger.take_over()
    ledger.decide(Decision(0, tuple(first)))
    assert ledger.commit(first[:1]) == {first[0]: Outcome.COMMITTED}
    query.ledger().abort(first[1:])  # as the broker does after the timeout
    assert ledger.commit(first) == {first[0]: Outcome.COMMITTED, first[1]: Outcome.ABORTED}
    with pytest.raises(Exception, match="batch 0 was committed in part: the transactions of tasks 1 of 2"):
        query.commit(query.write(0, ["1"], ["other"]))
    query.commit(query.write(0, ["1"], ["2"]))
    assert query.visible() == ["1", "2"]
    assert query.open_now() == []


def test_an_older_driver_cannot_decide(query: Query) -> None:
    older, first = query.ledger(), prepared(query.write(0, ["1"]))
    older.take_over()
    query.commit(query.write(0, ["1"]))
    with pytest.raises(KafkaException, match=r"FENCED|PRODUCER_EPOCH|fenced|epoch"):
        older.decide(Decision(0, tuple(first)))
    assert query.visible() == ["1"]


def test_an_older_driver_that_aborts_its_batch_fails_a_batch_of_a_newer_driver_once(query: Query) -> None:
    query.commit(query.write(0, ["1"]))
    of_older = query.write(1, ["2"])
    of_newer = query.write(1, ["2"])
    query.abort(of_older)
    with pytest.raises(Exception, match="1 of its transactions ended before the batch could be committed"):
        query.commit(of_newer)
    query.commit(query.write(1, ["2"]))
    assert query.visible() == ["1", "2"]
    assert query.open_now() == []


def test_a_batch_whose_transaction_has_ended_is_not_decided(query: Query) -> None:
    first = prepared(query.write(0, ["1"], ["2"]))
    query.ledger().abort(first[:1])
    with pytest.raises(Exception, match="1 of its transactions ended before the batch could be committed"):
        commit_batch(query.ledger(), 0, first)
    assert query.visible() == []


def test_updates_of_an_aggregation_are_written_once(
    broker: Target, spark: Any, query: Query, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    from felice.spark import write_updates

    source = create_topic(broker, unique_name("counted"), partitions=1)
    connected = {"kafka.bootstrap.servers": broker.bootstrap}

    def run(*values: str) -> Any:
        rows = spark.createDataFrame([(value,) for value in values], "value string")
        rows.write.format("felice").options(**connected, topic=source).mode("append").save()
        frame = spark.readStream.format("felice").options(
            **connected, subscribe=source, startingOffsets="earliest"
        )
        counted = frame.load().groupBy(F.col("value").cast("string").alias("key")).count()
        records = counted.select("key", F.concat_ws("=", "key", "count").alias("value"))
        writer = write_updates(records, **connected, topic=query.topic)
        started = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        started.awaitTermination()
        return started

    run("a", "a", "b")
    assert query.visible() == ["a=2", "b=1"]
    last = max((tmp_path / "commits").glob("[0-9]*"))
    last.unlink()  # Spark died before it noted the end of the batch
    (tmp_path / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    started = run("b")
    assert query.visible() == ["a=2", "b=1", "b=2"]
    query.name = str(started.id)
    assert query.open_now() == []


def test_a_batch_write_is_done_once_under_its_name(
    broker: Target, spark: Any, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(values: list[str], version: int) -> None:
        frame = spark.createDataFrame([(value,) for value in values], "value string").repartition(2)
        named = {"txnAppId": query.name, "txnVersion": version}
        target = frame.write.format("felice").option("kafka.bootstrap.servers", broker.bootstrap)
        target.options(topic=query.topic, **named).mode("append").save()

    write(["1", "2"], 0)
    write(["1", "2"], 0)
    write(["3"], 1)
    assert query.visible() == ["1", "2", "3"]
    assert query.open_now() == []
