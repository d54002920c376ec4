from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from felice.client.blocking.coordinators import TransactionalProducer
from felice.client.error import failure
from felice.client.model import ClusterMetadata, PartitionMetadata, TopicMetadata
from felice.pipelines.spark import identity, transactional
from felice.pipelines.spark.commit import Prepared
from felice.pipelines.spark.identity import TaskIdentity, TransactionNames
from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.producing import TopicWriter
from felice.pipelines.spark.transactional import TransactionalOutput, fingerprint
from felice.records.batch import iter_batches

IDENTITY = TaskIdentity("query", 4, 2, 1)
NAME = "felice-spark-query-a0b1c2d3-2-1"
INVALID_TRANSACTION_TIMEOUT = 50


class Brokers:
    """Notes what is asked, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.batches: list[tuple[str, int, Any]] = []
        self.refusal: int | None = None

    def metadata(self, topics: list[str], *, allow_auto_create: bool) -> ClusterMetadata:
        (name,) = topics
        return ClusterMetadata(
            topics={name: TopicMetadata(name, {0: PartitionMetadata(0), 1: PartitionMetadata(1)})}
        )

    def produce(self, batches: Iterable[tuple[str, int, Any]], acks: int, *, transactional_id: str) -> None:
        rows = list(batches)
        self.batches += rows
        self.calls.append(("produce", acks, transactional_id, len(rows)))

    def begin(self, transactional_id: str, timeout_ms: int) -> TransactionalProducer:
        if self.refusal is not None:
            raise failure(self.refusal)
        self.calls.append(("begin", transactional_id, timeout_ms))
        return TransactionalProducer(transactional_id, 77, 5)

    def add_partitions(self, producer: TransactionalProducer, partitions: Any) -> None:
        self.calls.append(("add", list(partitions)))

    def end(self, producers: Iterable[TransactionalProducer], *, committed: bool) -> None:
        self.calls.append(("end", [producer.transactional_id for producer in producers], committed))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(transactional, "BlockingCoordinators", lambda client: client)
    monkeypatch.setattr(identity.secrets, "token_hex", lambda _: "a0b1c2d3")
    monkeypatch.setattr(transactional, "NAMES", TransactionNames())
    return brokers


def output_to(brokers: Any, **given: str) -> tuple[TransactionalOutput, TopicWriter]:
    options = SinkOptions.parse({"kafka.bootstrap.servers": "h:1", "topic": "out"} | given)
    output = TransactionalOutput(brokers, options, IDENTITY)
    return output, TopicWriter(options, brokers, output)


def rows(first: int, count: int, partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": [str(number) for number in range(first, first + count)],
            "partition": pa.array([partition] * count, pa.int32()),
        }
    )


def test_a_task_without_rows_has_no_transaction(brokers: Brokers) -> None:
    output, writer = output_to(brokers)
    writer.flush()
    assert output.prepare() is None
    output.give_up()
    assert brokers.calls == []


def test_a_partition_joins_the_transaction_before_the_first_record_and_once(brokers: Brokers) -> None:
    output, writer = output_to(brokers, **{"kafka.transaction.timeout.ms": "9000"})
    for first, partition in ((0, 0), (10, 0), (20, 1)):
        writer.add(rows(first, 10, partition))
        writer.flush()
    assert brokers.calls == [
        ("begin", NAME, 9000),
        ("add", [("out", 0)]),
        ("produce", -1, NAME, 1),
        ("produce", -1, NAME, 1),
        ("add", [("out", 1)]),
        ("produce", -1, NAME, 1),
    ]
    prepared = output.prepare()
    assert prepared is not None and output.topics == {"out"}
    assert prepared == Prepared(2, NAME, 77, 5, 30, prepared.fingerprint)


def test_batches_carry_the_producer_and_follow_each_other_in_each_partition(brokers: Brokers) -> None:
    _, writer = output_to(brokers, **{"kafka.batch.size": "400"})
    for first, partition in ((0, 0), (50, 1), (90, 0)):
        writer.add(rows(first, 40, partition))
        writer.flush()
    expected = {0: 0, 1: 0}
    for _, partition, data in brokers.batches:
        for header in iter_batches(memoryview(data)):
            assert (header.producer_id, header.producer_epoch, header.is_transactional) == (77, 5, True)
            assert header.base_sequence == expected[partition]
            expected[partition] += header.record_count
    assert expected == {0: 80, 1: 40}
    assert len(brokers.batches) > 3


def test_a_task_that_fails_aborts_what_it_began(brokers: Brokers) -> None:
    output, writer = output_to(brokers)
    writer.add(rows(0, 1))
    writer.flush()
    output.give_up()
    assert brokers.calls[-1] == ("end", [NAME], False)


def test_a_timeout_that_brokers_do_not_allow_is_the_options_fault(brokers: Brokers) -> None:
    brokers.refusal = INVALID_TRANSACTION_TIMEOUT
    _, writer = output_to(brokers)
    writer.add(rows(0, 1))
    with pytest.raises(OptionError, match=r"kafka\.transaction\.timeout\.ms.*does not allow 900000"):
        writer.flush()


def table(*pairs: tuple[str | None, str | None]) -> pa.Table:
    return pa.table({"key": pa.array([k for k, _ in pairs], pa.string()), "value": [v for _, v in pairs]})


PAIRS = [("a", "1"), ("b", "2"), (None, "3"), ("c", None)]


def test_a_fingerprint_depends_on_the_rows_and_not_on_their_order() -> None:
    whole = fingerprint(table(*PAIRS))
    assert fingerprint(table(*reversed(PAIRS))) == whole
    assert (fingerprint(table(*PAIRS[:2])) + fingerprint(table(*PAIRS[2:]))) % 2**32 == whole


@pytest.mark.parametrize(
    "other",
    [
        [("a", "2"), ("b", "1"), (None, "3"), ("c", None)],
        [("a", "1"), ("b", "2"), (None, "3"), ("c", "")],
        [("a", "1"), ("b", "2"), ("", "3"), ("c", None)],
        [("a", "1"), ("a", "1"), (None, "3"), ("c", None)],
        PAIRS[:3],
    ],
)
def test_other_rows_have_another_fingerprint(other: list[tuple[str | None, str | None]]) -> None:
    assert fingerprint(table(*other)) != fingerprint(table(*PAIRS))


def sink(**given: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": "h:1"} | given)


def test_a_stream_is_exactly_once_and_a_batch_is_not_unless_told_otherwise() -> None:
    assert sink().for_stream() and not sink().for_batch()
    assert not sink(deliveryGuarantee="at_least_once").for_stream()
    assert sink(txnAppId="totals", txnVersion="3").for_batch()
    assert sink(txnAppId="totals", txnVersion="3").identified == ("totals", 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deliveryGuarantee": "once"}, "expected one of exactly_once, at_least_once"),
        ({"txnAppId": "a"}, "goes together with txnVersion"),
        ({"txnVersion": "1"}, "goes together with txnVersion"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "at least 0"),
        ({"txnAppId": "a", "txnVersion": "1", "deliveryGuarantee": "at_least_once"}, "asks for exactly once"),
        ({"kafka.transaction.timeout.ms": "soon"}, "whole number"),
    ],
)
def test_contradictions_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        sink(**given)


def test_what_exactly_once_needs_is_asked_for() -> None:
    with pytest.raises(OptionError, match="needs acks=all"):
        sink(**{"kafka.acks": "1"}).for_stream()
    with pytest.raises(OptionError, match="txnAppId and txnVersion"):
        sink(deliveryGuarantee="exactly_once").for_batch()
    with pytest.raises(OptionError, match="have a name already"):
        sink(txnAppId="a", txnVersion="1").for_stream()
