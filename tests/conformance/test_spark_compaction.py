"""A stream reads a topic while the cleaner compacts it: gaps are no data loss, and no record comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.test_compaction import clean, create, produce, start
from felice.server.process.embedded import EmbeddedBroker

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(1200)]

ROWS_PER_BATCH = 40


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with start(tmp_path / "data") as running:
        yield running


def test_a_stream_reads_a_topic_while_it_is_compacted(
    compacting: EmbeddedBroker, spark: Any, tmp_path: Path
) -> None:
    create(compacting, "table")
    dice, sent, read = Random(8), list[tuple[str, str]](), list[tuple[int, str, str]]()

    def send(count: int, keys: int) -> None:
        pairs = [(f"k{dice.randrange(keys)}", str(len(sent) + number)) for number in range(count)]
        produce(compacting, "table", pairs)
        sent.extend(pairs)

    def take(batch: Any, number: int) -> None:
        found = batch.selectExpr("offset", "cast(key as string)", "cast(value as string)").collect()
        read.extend(sorted(tuple(row) for row in found))

    # Compacted before it is read: whole batches of the query have no record.
    send(6 * ROWS_PER_BATCH, keys=3)
    clean(compacting, "table")
    query = (
        spark.readStream.format("felice")
        .option("kafka.bootstrap.servers", compacting.bootstrap)
        .option("subscribe", "table")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for _ in range(4):
            send(3 * ROWS_PER_BATCH, keys=10)
            clean(compacting, "table")
        send(5, keys=10)
        query.processAllAvailable()
    finally:
        query.stop()
    offsets = [offset for offset, _, _ in read]
    assert offsets == sorted(set(offsets)) and offsets[-1] == len(sent) - 1
    assert all(sent[offset] == (key, value) for offset, key, value in read)
    # Each key's last record is there, so the table is right; others were compacted away before they were read.
    assert {key: value for _, key, value in read} == dict(sent)
    assert len(read) < len(sent) - 4 * ROWS_PER_BATCH
