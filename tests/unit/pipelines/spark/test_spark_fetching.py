from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

pytest.importorskip("pyarrow")

from felice.client.blocking import OffsetOutOfRange, RawBatches
from felice.client.model import OffsetAndTimestamp
from felice.pipelines.spark import fetching
from felice.pipelines.spark.cluster import DataLoss
from felice.pipelines.spark.fetching import read_task
from felice.pipelines.spark.offsets import Partition
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.spark.planning import OffsetRange
from felice.records.batch import stamp
from felice.records.builder import BatchBuilder

BATCH_ROWS = 10


class Brokers:
    """Partitions of ten-record batches; `value` of a record is its offset."""

    def __init__(self, held: dict[Partition, tuple[int, int]]) -> None:
        self.held = held
        self.rounds: list[list[Partition]] = []

    def list_offsets(self, timestamps: Mapping[Partition, int]) -> dict[Partition, OffsetAndTimestamp]:
        return {
            key: OffsetAndTimestamp(self.held[key][0 if at == -2 else 1], -1, 0)
            for key, at in timestamps.items()
        }

    def fetch(self, ranges: Mapping[Partition, tuple[int, int]]) -> Iterator[RawBatches]:
        self.rounds.append(list(ranges))
        for key, (start, end) in list(ranges.items()):
            first, last = self.held[key]
            if not first <= start <= last:
                raise OffsetOutOfRange(*key, start)
            for base in range(start - start % BATCH_ROWS, end, BATCH_ROWS):
                yield RawBatches(*key, memoryview(batch(base)), base + BATCH_ROWS)


def batch(base: int) -> bytearray:
    builder = BatchBuilder()
    for offset in range(base, base + BATCH_ROWS):
        builder.append(1000 + offset, b"k", str(offset).encode(), [("h", b"x")])
    data = bytearray(builder.build())
    stamp(data, 0, base, 0)
    return data


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a"} | given)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers({("a", 0): (0, 100), ("a", 1): (0, 100)})
    monkeypatch.setattr(fetching, "client_of", lambda config: brokers)
    return brokers


def read(*task: OffsetRange, **given: str) -> list[tuple[int, int]]:
    rows = [row for batch in read_task(task, options(**given)) for row in batch.to_pylist()]
    assert all(int(row["value"]) == row["offset"] for row in rows)
    return [(row["partition"], row["offset"]) for row in rows]


def test_just_the_records_between_the_offsets_are_read(brokers: Brokers) -> None:
    assert read(OffsetRange("a", 0, 13, 27)) == [(0, offset) for offset in range(13, 27)]


def test_partitions_of_one_task_are_fetched_together(brokers: Brokers) -> None:
    assert len(read(OffsetRange("a", 0, 0, 20), OffsetRange("a", 1, 5, 15))) == 30
    assert brokers.rounds == [[("a", 0), ("a", 1)]]


def test_two_parts_of_one_partition_are_both_read(brokers: Brokers) -> None:
    rows = read(OffsetRange("a", 0, 0, 12), OffsetRange("a", 0, 40, 45))
    assert rows == [(0, offset) for offset in [*range(12), *range(40, 45)]]


def test_columns_are_those_of_sparks_kafka_source(brokers: Brokers) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from felice.pipelines.spark.schema import source_schema

    for headers in (False, True):
        given = options(includeHeaders=str(headers).lower())
        (rows,) = read_task((OffsetRange("a", 0, 0, 10),), given)
        assert rows.schema.equals(to_arrow_schema(source_schema(headers), timezone="UTC"))


def test_a_record_that_is_gone_fails_the_task(brokers: Brokers) -> None:
    brokers.held["a", 0] = (23, 100)
    with pytest.raises(DataLoss, match="holds offsets 23 to 100, not all of 5 to 50"):
        read(OffsetRange("a", 0, 5, 50))


def test_a_query_may_go_on_where_the_log_now_begins(brokers: Brokers) -> None:
    brokers.held["a", 0] = (23, 100)
    rows = read(OffsetRange("a", 0, 5, 50), OffsetRange("a", 1, 0, 3), failOnDataLoss="false")
    assert sorted(rows) == [*((0, offset) for offset in range(23, 50)), (1, 0), (1, 1), (1, 2)]


def test_a_range_that_is_gone_whole_is_left_out(brokers: Brokers) -> None:
    brokers.held["a", 0] = (60, 100)
    assert read(OffsetRange("a", 0, 5, 50), failOnDataLoss="false") == []


def test_a_range_beyond_the_end_is_left_out(brokers: Brokers) -> None:
    brokers.held["a", 0] = (0, 3)
    assert read(OffsetRange("a", 0, 5, 50), failOnDataLoss="false") == []
