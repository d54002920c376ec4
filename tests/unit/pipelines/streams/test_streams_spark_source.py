"""The real limits of packs, packs that count, and the data source that reads and writes packs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from felice.pipelines.spark import reader as reader_module
from felice.pipelines.spark import writer as writer_module
from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.options import SinkOptions, SourceOptions
from felice.pipelines.spark.reader import RefusedStream, StreamReader, TaskPartition
from felice.pipelines.spark.writer import Written
from felice.pipelines.streams.on_spark import source, stage
from felice.pipelines.streams.on_spark.packs import (
    MOST_BYTES,
    MOST_ROWS,
    PACKS,
    READ,
    SKIPPED,
    counted,
    packed,
    unpacked,
)
from felice.pipelines.streams.on_spark.rows import OUT, SCHEMA
from felice.pipelines.streams.on_spark.source import (
    PLAN,
    PackReader,
    PackWriter,
    StreamsDataSource,
    written_plan,
)
from felice.pipelines.streams.on_spark.stage import Plan, packed_source
from felice.streams import App
from streams.spark_batches import source_batch

CONNECTED = {"kafka.bootstrap.servers": "h:1"}


def rows(count: int, value: bytes) -> pa.RecordBatch:
    made = {
        "part": [0] * count,
        "place": [0] * count,
        "origin": ["a-0"] * count,
        "seq": range(count),
        "topic": ["a"] * count,
        "key": [b"k"] * count,
        "value": [value] * count,
        "timestamp": [5] * count,
        "headers": [[]] * count,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(made[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


@pytest.mark.parametrize(
    ("count", "value", "at_least"),
    [
        (MOST_ROWS * 3, b"", 3),
        (1_000, b"v" * 20_000, 1_000 * 20_000 // MOST_BYTES),
        (3, b"v" * (MOST_BYTES + 1), 3),
    ],
    ids=["many", "large", "larger than a pack"],
)
def test_a_task_holds_one_batch_of_packs_at_a_time(count: int, value: bytes, at_least: int) -> None:
    batches = list(packed(rows(count, value)))
    assert len(batches) >= at_least // 2
    for batch in batches[:-1]:
        assert sum(len(data) for data in batch["packed"].to_pylist()) > MOST_BYTES
    for batch in batches:
        assert sum(len(data) for data in batch["packed"].to_pylist()[:-1]) <= MOST_BYTES
        for found in batch["count"].to_pylist():
            assert found <= MOST_ROWS and (found == 1 or found * len(value) <= MOST_BYTES)
    assert unpacked(pa.Table.from_batches(batches))["seq"].to_pylist() == list(range(count))


def test_packing_keeps_no_memory() -> None:
    given = rows(20_000, b"v" * 100)
    before = pa.total_allocated_bytes()
    for batch in packed(given):
        assert batch["packed"][0].as_buffer().size > 1_000_000
    del batch
    assert pa.total_allocated_bytes() == before


def test_records_of_a_group_stay_in_their_order() -> None:
    dice, size = Random(2), 2_000
    topics = pa.array([dice.choice("abc") for _ in range(size)])
    made = rows(size, b"v").set_column(SCHEMA.get_field_index("topic"), "topic", topics)
    back = unpacked(pa.Table.from_batches(packed(made)))
    for topic in "abc":
        wanted = [seq for seq, one in enumerate(topics.to_pylist()) if one == topic]
        assert back.filter(pa.compute.equal(back["topic"], topic))["seq"].to_pylist() == wanted


def test_more_groups_than_a_short_number_counts_are_kept_apart() -> None:
    """The rows have 257 topics and 256 origins, so their first group and their last one differ by 1 << 16."""
    size = 257
    given = rows(size, b"v").to_pylist()
    for number, row in enumerate(given):
        row.update(topic=f"t{number}", origin=f"o{number % 256}")
    made = pa.RecordBatch.from_pylist(given, SCHEMA)
    packs = pa.Table.from_batches(packed(made))
    assert packs["count"].to_pylist() == [1] * size
    assert unpacked(packs).to_pylist() == given


def test_without_rows_there_is_no_pack() -> None:
    assert list(packed(rows(0, b""))) == []
    assert len(unpacked(pa.Table.from_batches([], PACKS))) == 0


def test_a_count_is_a_pack_without_records() -> None:
    assert list(counted(READ, 0)) == []
    (batch,) = counted(SKIPPED, 7)
    (pack,) = batch.to_pylist()
    assert (pack["part"], pack["place"], pack["count"], pack["packed"]) == (SKIPPED, 0, 7, None)


def plan_of() -> Plan:
    app = App("passes", value="string")
    app.stream("in").filter(lambda key, value: value != "no").to("out")
    return Plan(cloudpickle.dumps(app.topology), 2, ())  # type: ignore[no-untyped-call]


def data_source(**options: str) -> StreamsDataSource:
    return StreamsDataSource(CONNECTED | {PLAN: written_plan(plan_of())} | options)


def test_the_reader_runs_parts_without_state_and_counts_what_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [(b"k", value, "in", 0, 3 + at, 2_000, None) for at, value in enumerate((b"a", b"no", b"b"))]
    batch = source_batch(given)
    monkeypatch.setattr(reader_module, "read_task", lambda task, options: iter([batch, batch]))
    reader = data_source(subscribe="in").streamReader(StructType())
    assert isinstance(reader, PackReader)
    made = pa.Table.from_batches(reader.read(TaskPartition(SimpleNamespace())), PACKS)  # type: ignore[arg-type]
    of_records = made.filter(pa.compute.equal(made["part"], OUT))
    assert unpacked(of_records)["value"].to_pylist() == [b"a", b"b"] * 2
    counts = made.filter(pa.compute.less(made["part"], OUT)).to_pylist()
    assert [(pack["part"], pack["count"]) for pack in counts] == [(READ, 6)]


def test_large_batches_of_the_source_are_processed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MOST_GROUP", 10)
    given = [(b"k", b"%d" % at, "in", 0, at, 2_000, None) for at in range(25)]
    batch = source_batch(given)
    made = pa.Table.from_batches(packed_source([batch], plan_of()), PACKS)
    of_records = made.filter(pa.compute.equal(made["part"], OUT))
    assert of_records["count"].to_pylist() == [10, 10, 5]
    assert unpacked(of_records)["value"].to_pylist() == [one[1] for one in given]


def test_the_reader_plans_tasks_for_the_cores_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamsDataSource, "cores", 7)
    reader = data_source(subscribe="in").streamReader(StructType())
    assert isinstance(reader, PackReader) and reader._cores == 7


def test_a_limit_of_the_reader_is_a_limit_of_records() -> None:
    reader = data_source(subscribe="in", maxOffsetsPerTrigger="50").streamReader(StructType())
    assert reader.getDefaultReadLimit() == ReadMaxRows(50)


def test_wrong_options_are_refused_as_by_the_source_of_topics() -> None:
    reader = data_source(subscribe="in", includeHeaders="perhaps").streamReader(StructType())
    assert isinstance(reader, RefusedStream)
    with pytest.raises(OptionError, match="includeHeaders"):
        reader.initialOffset()


def test_the_writer_takes_packs_and_writes_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[dict[str, Any]] = []

    def write_part(records: Iterator[pa.RecordBatch], options: SinkOptions, identity: object) -> Written:
        written.extend(row for batch in records for row in batch.to_pylist())
        return Written(len(written))

    monkeypatch.setattr(writer_module, "write_part", write_part)
    monkeypatch.setattr(writer_module, "_identity_in_stream", lambda: None)
    writer = StreamsDataSource(CONNECTED).streamWriter(StructType(), False)
    assert isinstance(writer, PackWriter)
    batches = (batch.select(["topic", "packed"]) for batch in packed(rows(3, b"v")))
    assert writer.write(batches) == Written(3)
    assert {row["timestamp"] for row in written} == {datetime.fromtimestamp(0.005, UTC)}
    assert [(row["topic"], row["key"], row["value"], row["headers"]) for row in written] == [
        ("a", b"k", b"v", [])
    ] * 3


def test_results_without_a_later_shuffle_keep_their_order() -> None:
    """Also those of different keys: a window that reads the topic would drop late records."""
    given = [(b"%d" % (at % 7), b"%d" % at, "in", 0, at, at * 1_000, None) for at in range(50)]
    batch = source_batch(given)
    made = pa.Table.from_batches(packed_source([batch], plan_of()), PACKS)
    of_records = made.filter(pa.compute.equal(made["part"], OUT))
    assert unpacked(of_records)["value"].to_pylist() == [one[1] for one in given]


def test_a_batch_waits_for_partitions_without_records_as_long_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(source.time, "monotonic", lambda: now)
    reader = PackReader(
        SourceOptions.parse(CONNECTED | {"subscribe": "a"}), 1, Plan(b"", 1, ()), max_idle_ms=500
    )
    begin = {("a", 0): 4, ("a", 1): 4}
    one, both = {("a", 0): 5, ("a", 1): 4}, {("a", 0): 5, ("a", 1): 5}
    limit = ReadMaxRows(10)
    assert not reader._too_few(begin, both, limit) and not reader._too_few(begin, begin, limit)
    assert reader._too_few(begin, one, limit)
    now += 0.4
    assert reader._too_few(begin, one, limit)
    assert not reader._too_few(begin, both, limit)
    assert reader._too_few(begin, one, limit), "the wait begins again after a batch"
    now += 0.5
    assert not reader._too_few(begin, one, limit)
    reader._target = both
    assert not reader._too_few(begin, one, limit), "what exists now is all there is to wait for"


def test_a_batch_that_another_version_planned_is_read_without_the_topics_of_this_one() -> None:
    asked: list[Any] = []
    starts = {("new", 0): 7, ("old", 0): 3}
    options = SourceOptions.parse(CONNECTED | {"subscribe": "a,new"})
    reader = PackReader(options, 1, Plan(b"", 1, ()), starts=starts)
    plan = StreamReader.partitions
    try:
        StreamReader.partitions = lambda self, start, end: asked.append((start, end)) or []  # type: ignore
        reader.partitions({"a": {"0": 1}, "old": {"0": 2}}, {"a": {"0": 5}, "old": {"0": 9}})
        reader.partitions({"a": {"0": 1}}, {"a": {"0": 5}, "new": {"0": 9}})
        reader.partitions({"a": {"0": 1}, "new": {"0": 8}}, {"a": {"0": 5}, "new": {"0": 9}})
    finally:
        StreamReader.partitions = plan  # type: ignore[method-assign]
    assert asked == [
        ({"a": {"0": 1}}, {"a": {"0": 5}}),
        ({"a": {"0": 1}, "new": {"0": 7}}, {"a": {"0": 5}, "new": {"0": 9}}),
        ({"a": {"0": 1}, "new": {"0": 8}}, {"a": {"0": 5}, "new": {"0": 9}}),
    ]
