"""Apps that read DataFrames of Spark, and queries of Spark that read Streams."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import Producer

from conformance.targets import Target
from conformance.test_streams_on_spark import read_pairs
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.streams import App, Stream, TopologyError


class Place:
    """Two topics and a checkpoint."""

    def __init__(self, broker: Target, spark: Any, checkpoint: Path) -> None:
        self.broker, self.spark, self.checkpoint = broker, spark, checkpoint
        self.name = unique_name("frames")
        self.lines, self.counts = f"{self.name}-lines", f"{self.name}-counts"
        for topic in (self.lines, self.counts):
            create_topic(broker, topic, partitions=2)

    def send(self, *rows: tuple[str, str]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        now = int(time.time() * 1000)
        for number, (key, value) in enumerate(rows):
            producer.produce(self.lines, value, key, timestamp=now + number, partition=ord(key[-1]) % 2)
        assert producer.flush(60) == 0

    def long_lines(self, spark: Any) -> Any:
        """A DataFrame that Spark computes by itself."""
        rows = spark.readStream.format("felice").option("kafka.bootstrap.servers", self.broker.bootstrap)
        rows = rows.option("subscribe", self.lines).option("startingOffsets", "earliest").load()
        rows = rows.selectExpr(
            "cast(key as string) as key", "upper(cast(value as string)) as value", "timestamp"
        )
        return rows.where("length(value) > 2")

    def run(self, app: App) -> None:
        from felice.pipelines.streams.on_spark.runner import start

        start(
            app.scope, self.spark, self.broker.bootstrap, self.checkpoint, partitions=2, until_caught_up=True
        ).awaitTermination()

    def rows_of(self, stream: Stream, checkpoint: Path | None = None) -> list[tuple[Any, ...]]:
        """The rows of one query, which ends when it has caught up."""
        found: list[tuple[Any, ...]] = []
        frame = stream.df(self.spark, self.checkpoint, self.broker.bootstrap, partitions=2)
        query = (
            frame.selectExpr(
                "cast(key as string)", "cast(value as string)", "unix_millis(timestamp)", "headers"
            )
            .writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
            .option("checkpointLocation", str(checkpoint or self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found


def rates(spark: Any) -> Any:
    return spark.readStream.format("rate").load()


@pytest.fixture
def place(broker: Target, spark: Any, tmp_path: Path) -> Place:
    return Place(broker, spark, tmp_path / "checkpoint")


def test_rows_of_a_dataframe_become_records(place: Place) -> None:
    app = App(place.name, value="string")
    lines = app.from_df("long-lines", place.long_lines)
    lines.group_by(lambda key, value: value).count(name="counts").to(place.counts)
    place.send(("a", "one"), ("b", "x"), ("b", "two"))
    place.run(app)
    place.send(("a", "two"), ("a", "y"))
    place.run(app)
    assert sorted(read_pairs(place.broker.bootstrap, place.counts)) == [
        ("ONE", "1"),
        ("TWO", "1"),
        ("TWO", "2"),
    ]


def test_a_dataframe_is_joined_with_a_table_of_a_topic(place: Place) -> None:
    app = App(place.name, value="string")
    table = app.table(place.counts)
    lines = app.from_df("long-lines", place.long_lines)
    lines.join(table, lambda line, row: f"{line} {row}").to(f"{place.name}-joined")
    create_topic(place.broker, f"{place.name}-joined", partitions=2)
    producer = Producer({"bootstrap.servers": place.broker.bootstrap})
    producer.produce(place.counts, "row of a", "a", timestamp=int(time.time() * 1000) - 60_000)
    assert producer.flush(60) == 0
    place.send(("a", "one"), ("b", "two"))
    place.run(app)
    assert read_pairs(place.broker.bootstrap, f"{place.name}-joined") == [("a", "ONE row of a")]


def test_results_of_a_stream_are_rows_of_a_query_and_its_state_continues(place: Place) -> None:
    app = App(place.name, value="string")
    counts = app.stream(place.lines).group_by_key().count(name="counts").to_stream()
    before = app.describe()
    place.send(("a", "one"), ("b", "two"))
    first = place.rows_of(counts)
    place.send(("a", "three"))
    second = place.rows_of(counts)
    assert sorted((key, value) for key, value, *_ in first) == [("a", "1"), ("b", "1")]
    assert [(key, value, headers) for key, value, _, headers in second] == [("a", "2", [])]
    assert all(abs(time.time() * 1000 - timestamp) < 600_000 for _, _, timestamp, _ in first + second)
    assert app.describe() == before


def test_a_query_with_another_checkpoint_is_refused(place: Place, tmp_path: Path) -> None:
    app = App(place.name, value="string")
    counts = app.stream(place.lines).group_by_key().count(name="counts").to_stream()
    place.send(("a", "one"))
    with pytest.raises(Exception, match=f"start it with the option checkpointLocation={place.checkpoint}"):
        place.rows_of(counts, tmp_path / "other")


def test_a_batch_that_was_not_read_is_said_to_be_the_cause(place: Place) -> None:
    app = App(place.name, value="string")
    counts = app.stream(place.lines).group_by_key().count(name="counts").to_stream()
    place.send(("a", "one"))
    frame = counts.df(place.spark, place.checkpoint, place.broker.bootstrap, partitions=2)
    unread = frame.writeStream.foreachBatch(lambda batch, _: None).trigger(availableNow=True)
    unread.option("checkpointLocation", str(place.checkpoint)).start().awaitTermination()
    place.send(("a", "two"))
    with pytest.raises(Exception, match="must read each of its batches to the end"):
        place.rows_of(counts)


def test_a_row_that_fails_is_named(place: Place) -> None:
    app = App(place.name, value="string")
    app.from_df("long-lines", place.long_lines).map_values(lambda key, value: int(value)).to(place.counts)
    place.send(("a", "one"))
    with pytest.raises(
        Exception, match=r"DataFrame 'long-lines' with key 'a' and value 'ONE'.*row 0 of task \d"
    ):
        place.run(app)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda spark: None, "returned NoneType, not a DataFrame"),
        (lambda spark: spark.range(1), "is not a streaming one"),
        (
            lambda spark: rates(spark),
            "column 'value' is bigint, but must be string or binary",
        ),
        (
            lambda spark: rates(spark).selectExpr("'x' as value", "value as color"),
            "column 'color' is no part of a record; a record has key, value, timestamp, headers",
        ),
    ],
)
def test_a_dataframe_that_cannot_be_read_is_refused(place: Place, make: Any, message: str) -> None:
    app = App(place.name, value="string")
    app.from_df("wrong", make).to(place.counts)
    with pytest.raises(TopologyError, match=f"'wrong'.* {message}"):
        place.run(app)
