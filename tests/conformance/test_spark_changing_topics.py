"""A stream runs while its topics change: partitions, topics, transactions.

Nothing is read twice, and losses are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from waiting import wait_until

PATIENCE_S = 300
WAIT_S = 60.0
pytestmark = pytest.mark.timeout(1200)


class Stream:
    """A running query over a pattern of topics, and the values that it has read."""

    def __init__(self, spark: Any, broker: Target, place: Path, **options: str) -> None:
        self.read: list[str] = []
        self._broker = broker
        source = spark.readStream.format("felice").options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.metadata.max.age.ms": "100",
                "kafka.request.timeout.ms": "60000",
                "startingOffsets": "earliest",
            },
            **options,
        )
        self.query = (
            source.load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(place))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def _take(self, batch: Any, number: int) -> None:
        self.read += [bytes(row["value"]).decode() for row in batch.collect()]

    def expect(self, *values: str) -> None:
        """Exactly these values are read, each once."""
        expected = sorted(values)
        wait_until(lambda: len(self.read) >= len(expected) or not self.query.isActive, PATIENCE_S)
        assert sorted(self.read) == expected, self.query.exception()


@pytest.fixture
def start(spark: Any, broker: Target, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    started: list[Stream] = []

    def run(**options: str) -> Stream:
        started.append(Stream(spark, broker, tmp_path, **options))
        return started[-1]

    yield run
    for stream in started:
        stream.query.stop()


@pytest.fixture
def admin(broker: Target) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def produce(broker: Target, topic: str, *values: str, partition: int = 0, **config: Any) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **config})
    if config:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WAIT_S) == 0
    return producer


def transaction() -> dict[str, Any]:
    """A transaction that does not end by itself during a test."""
    return {"transactional.id": unique_name("t"), "transaction.timeout.ms": 900_000}


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)


def test_a_stream_reads_new_partitions_and_topics(
    broker: Target, admin: AdminClient, start: Callable[..., Stream]
) -> None:
    prefix = unique_name("follow")
    first, second = f"{prefix}-a", f"{prefix}-b"
    create_topic(broker, first, partitions=1)
    produce(broker, first, "a0", "a1")
    stream = start(
        **{
            "subscribePattern": f"{prefix}-.*",
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_committed",
        }
    )
    expected = ["a0", "a1"]
    stream.expect(*expected)

    admin.create_partitions([NewPartitions(first, 2)])[first].result()
    produce(broker, first, "new partition", partition=1)
    stream.expect(*(expected := [*expected, "new partition"]))

    create_topic(broker, second, partitions=1)
    produce(broker, second, "b0", "b1", "b2")
    stream.expect(*(expected := [*expected, "b0", "b1", "b2"]))

    aborted = produce(broker, first, "aborted", "aborted too", **transaction())
    aborted.abort_transaction(WAIT_S)
    pending = produce(broker, first, "pending", partition=1, **transaction())
    produce(broker, first, "behind aborted")
    produce(broker, first, "behind pending", partition=1)
    stream.expect(*(expected := [*expected, "behind aborted"]))
    pending.commit_transaction(WAIT_S)
    stream.expect(*(expected := [*expected, "pending", "behind pending"]))

    delete(admin, second)
    create_topic(broker, second, partitions=1)
    produce(broker, second, "made again")
    stream.expect(*expected, "made again")


def test_a_recreated_topic_fails_a_stream_with_fail_on_data_loss(
    broker: Target, admin: AdminClient, start: Callable[..., Stream]
) -> None:
    topic = unique_name("again")
    create_topic(broker, topic, partitions=1)
    produce(broker, topic, "0", "1")
    stream = start(subscribe=topic)
    stream.expect("0", "1")
    delete(admin, topic)
    create_topic(broker, topic, partitions=1)
    produce(broker, topic, "new")
    wait_until(lambda: not stream.query.isActive, PATIENCE_S)
    assert "DataLoss" in str(stream.query.exception())
    assert sorted(stream.read) == ["0", "1"]
