"""A streaming query survives a restart of the broker that it reads."""

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from conformance.wire import unique_name
from peers.apache_kafka import free_port

AWAY_S = 6


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0


@pytest.mark.felice_only
def test_a_running_query_reads_on_when_its_broker_is_back(spark: Any, tmp_path: Path) -> None:
    from felice.server.process.embedded import EmbeddedBroker

    topic, port, read = unique_name("restart"), free_port(), []
    with EmbeddedBroker(tmp_path / "data", port) as broker:
        bootstrap = broker.bootstrap
        produce(bootstrap, topic, 0, 10)
        query = (
            spark.readStream.format("felice")
            .options(
                **{"kafka.bootstrap.servers": bootstrap, "kafka.request.timeout.ms": "120000"},
                subscribe=topic,
                startingOffsets="earliest",
            )
            .load()
            .writeStream.foreachBatch(
                lambda batch, _: read.extend(int(row["value"]) for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        assert sorted(read) == list(range(10))
    try:
        time.sleep(AWAY_S)
        with EmbeddedBroker(tmp_path / "data", port):
            produce(bootstrap, topic, 10, 10)
            query.processAllAvailable()
            assert sorted(read) == list(range(20))
    finally:
        query.stop()
