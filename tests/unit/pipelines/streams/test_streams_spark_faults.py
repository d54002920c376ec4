"""Records that a Spark worker cannot read, process or write: an error names them, or they are set aside or counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.client.blocking import BlockingConfig
from felice.pipelines.streams.on_spark import application
from felice.pipelines.streams.task import StreamsError
from felice.streams import App, DeadLetters, TestDriver, TopicLimits
from streams.spark_workers import Spark


def test_errors_of_functions_are_answered_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("lenient", value="string")
    dead = DeadLetters("dead")
    timed = app.stream("timed", ts=lambda key, value: int(value), on_error=dead)
    timed.group_by_key().count(name="counts").to("out")
    app.table("numbers", on_error=dead).map_values(lambda key, value: str(1 / int(value)), name="m").to("out")
    rows = [
        ("timed", "k", "5", 1),
        ("timed", "k", "no time", 2),
        ("timed", "k", "6", 3),
        ("numbers", "n", "0", 4),
        ("numbers", "n", "2", 5),
    ]
    spark = Spark(tmp_path, monkeypatch, app)
    assert sorted(spark.batch(0, spark.source(rows))) == [
        ("dead", b"k", b"no time", 2),
        ("dead", b"n", b"0", 4),
        ("out", b"k", b"1", 5),
        ("out", b"k", b"2", 6),
        ("out", b"n", b"0.5", 5),
    ]


def failing(key: str, value: object, so_far: object) -> object:
    raise KeyError(value)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("by key", "at lines-0, offset 1"),
        ("by word", "made of lines-0, offset 1"),
        ("after a count", r"sent by partition \d of sub-topology \d"),
    ],
)
def test_a_failure_names_the_record_and_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    app = App("work", value="string")
    lines = app.stream("lines")
    if name == "by key":
        lines.group_by_key().aggregate(list, failing).to("out")
    if name == "by word":
        lines.group_by(lambda key, line: line[:2]).aggregate(list, failing).to("out")
    if name == "after a count":
        counts = lines.group_by_key().count().to_stream()
        counts.group_by(lambda key, count: str(count)).aggregate(list, failing).to("out")
    spark = Spark(tmp_path, monkeypatch, app)
    value = "1" if name == "after a count" else "'x1'"
    with pytest.raises(
        StreamsError, match=rf"value {value} cannot be processed: KeyError: {value} \({where}\)"
    ):
        spark.batch(0, spark.source([("lines", "k", "x1", 5)]))


def test_a_failure_in_a_group_names_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the state is that of the batch before."""
    app = App("work", value="string")

    def join(so_far: str, line: str) -> str:
        return so_far + (str(failing("k", line, "")) if line == "bad" else line.upper())

    app.stream("lines").group_by_key().reduce(join).to("out")
    spark = Spark(tmp_path, monkeypatch, app)
    lines = [("lines", "k", "x", 5)] * 20
    assert spark.batch(0, spark.source(lines))[-1][2] == b"x" + b"X" * 19
    with pytest.raises(
        StreamsError, match=r"value 'bad' cannot be processed: KeyError: 'bad' \(at lines-0, offset 33"
    ):
        spark.batch(1, spark.source([*lines[:12], ("lines", "k", "bad", 5), *lines]))
    assert spark.batch(1, spark.source(lines))[-1][2] == b"x" + b"X" * 39


def test_a_group_sets_aside_what_it_cannot_read_or_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("work", value="json")
    lines = app.stream("lines", on_bad_record=DeadLetters("unread"))
    latest = lines.group_by_key().reduce(lambda so_far, value: value).to_stream()
    latest.to("out", value="int", on_bad_record=DeadLetters("unwritten"))
    users = app.stream("users", on_bad_record="skip")
    users.group_by_key().reduce(lambda so_far, value: value).to_stream().to("copy")
    spark = Spark(tmp_path, monkeypatch, app)
    values = ["1", "{", '"text"', "2", *"3456789"]
    rows = [(topic, "k", value, 5) for topic in ("lines", "users") for value in values]
    results: dict[str, list[bytes]] = {}
    for topic, _, value, _ in spark.batch(0, spark.source(rows)):
        results.setdefault(topic, []).append(value)
    numbers = [int(value) for value in values if value.isdigit()]
    assert results == {
        "out": [number.to_bytes(4, "big") for number in numbers],
        "unread": [b"{"],
        "unwritten": [b"'text'"],
        "copy": [value.encode() for value in values if value != "{"],
    }


@pytest.mark.parametrize("size", [1, 30])
def test_records_that_are_dropped_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """In sub-topologies with and without state, one by one and in groups, and also where a group runs again."""

    def build() -> App:
        app = App("lenient", value="json")
        unread = app.stream("unread", on_bad_record="skip")
        unread.to("copy")
        unread.group_by_key().reduce(lambda so_far, value: value).to("last")
        app.stream("failing", on_error="skip").map_values(lambda key, value: 1 / value).to("copy2")
        grouped = app.stream("grouped").group_by_key().reduce(lambda so_far, value: value).to_stream()
        grouped.to("numbers", value="int", on_bad_record="skip")
        return app

    spark, driver = Spark(tmp_path, monkeypatch, build()), TestDriver(build())
    rows = [
        (topic, "k", value, 5) for topic in ("unread", "failing", "grouped") for value in ("1", "0")
    ] * size
    rows += [("unread", "k", "{", 5), ("grouped", "k", '"x"', 5)] * size
    for number in range(2):
        spark.batch(number, spark.source(rows))
        for topic, key, value, timestamp in rows:
            driver.send_bytes(topic, key.encode(), value.encode(), timestamp)
        assert spark.skipped == driver.skipped == 3 * size * (number + 1)
        assert spark.read == len(rows) * (number + 1)


@pytest.mark.parametrize("size", [1, 30])
def test_records_that_a_broker_would_refuse_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """One by one and in groups, before a shuffle and behind it, by limits that the worker asks for."""
    app = App("small", value="string")
    app.stream("plain").to("out", on_bad_record=DeadLetters("dead"))
    app.stream("placed").group_by_key().reduce(lambda so_far, value: value).to("last", on_bad_record="skip")
    limits = {"out": TopicLimits(max_message_bytes=150), "last": TopicLimits(max_message_bytes=150)}
    monkeypatch.setattr(application, "topic_limits", lambda client, topic: limits.get(topic, TopicLimits()))
    spark = Spark(tmp_path, monkeypatch, app)
    spark.plan = replace(spark.plan, client=BlockingConfig("broker:1"))
    rows = [(topic, "k", value, 5) for topic in ("plain", "placed") for value in ("x", "y" * 150)] * size
    found = Counter((topic, value[:1]) for topic, _, value, _ in spark.batch(0, spark.source(rows)))
    assert found == {("out", b"x"): size, ("dead", b"y"): size, ("last", b"x"): size}
    assert spark.skipped == size


def test_a_record_that_fails_in_a_group_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("failing", value="string")
    app.stream("lines").map_values(lambda key, value: int(value), value="long").to("out")
    spark = Spark(tmp_path, monkeypatch, app)
    source = spark.source([("lines", "k", "x" if number == 70 else "1", number) for number in range(100)])
    with pytest.raises(StreamsError, match="'x'.*at lines-0, offset 71"):
        spark.addressed(source)


def test_stop_iteration_stops_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of its record, not the end of the records."""
    app = App("work", value="string")

    def first_x(key: str, line: str) -> tuple[str, str]:
        return key, next(one for one in line if one == "x")

    app.stream("lines").map(first_x).to("out")
    app.stream("others").group_by_key().count().to_stream().map(lambda key, count: first_x(key, "y")).to("o")
    spark = Spark(tmp_path, monkeypatch, app)
    lines = [("lines", "k", "y" if number == 4 else "x", 5) for number in range(12)]
    with pytest.raises(StreamsError, match=r"processed: StopIteration \(at lines-0, offset 5\) in step flat"):
        spark.batch(0, spark.source(lines))
    with pytest.raises(
        StreamsError, match=r"processed: StopIteration \(at others-0, offset 1\) in step flat"
    ):
        spark.batch(0, spark.source([("others", "k", "x", 5)] * 12))
