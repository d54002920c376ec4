"""The work of a Spark worker, without Spark: addresses, order, and state that follows batches."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import cloudpickle

from felice.client.blocking import BlockingConfig
from felice.pipelines.streams.formats import BYTES
from felice.pipelines.streams.fusing import Sent
from felice.pipelines.streams.on_spark import application, stage
from felice.pipelines.streams.on_spark.held_task import HeldTask
from felice.pipelines.streams.on_spark.packs import PACKS, READ, SKIPPED, unpacked
from felice.pipelines.streams.on_spark.rows import HEADERS, OUT, SCHEMA
from felice.pipelines.streams.on_spark.stage import (
    TICK,
    Plan,
    _order,
    packed_source,
    packed_ticks,
    run_part,
)
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import StreamsError, Task, TopicRecord
from felice.pipelines.streams.topology import TopicFormats
from felice.streams import (
    App,
    Context,
    DeadLetters,
    KeyValues,
    Processor,
    Record,
    Table,
    TestDriver,
    TopicLimits,
)
from streams.spark_batches import SOURCE, source_batch

PLACES = 3
SEEDS = int(os.environ.get("FELICE_FOREIGN_SEEDS", "10"))
"""10 meet the faults that were there; `FELICE_FOREIGN_SEEDS=200` takes some minutes."""


def app_of() -> App:
    app = App("work", value="string")
    app.stream("lines").flat_map_values(lambda key, line: line.split()).to("words")
    users = app.table("users")
    users.group_by(lambda key, user: (user[0], user)).count(name="regions").to("regions")
    return app


class Spark:
    """The batches of one query, with a worker that may forget what it knows."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        app: App | None = None,
        places: int = PLACES,
    ) -> None:
        pickled = cloudpickle.dumps((app or app_of()).topology)  # type: ignore[no-untyped-call]
        self.plan = Plan(pickled, places, tuple(str(directory / str(number)) for number in range(10)))
        self.monkeypatch = monkeypatch
        self.offsets: defaultdict[str, int] = defaultdict(int)
        self.skipped = self.read = 0

    def batch(self, number: int, source: pa.RecordBatch) -> list[tuple[str, bytes, bytes]]:
        packs = self.addressed(source)
        for part in self.plan.application().parts:
            if part.is_placed:
                packs = pa.concat_tables(
                    [self._task(part.number, place, number, packs) for place in range(self.plan.places)]
                )
        self.skipped += sum(of_part(packs, SKIPPED)["count"].to_pylist())
        self.read += sum(of_part(packs, READ)["count"].to_pylist())
        results = unpacked(of_part(packs, OUT))
        return list(
            zip(*(results[name].to_pylist() for name in ("topic", "key", "value", "timestamp")), strict=True)
        )

    def addressed(self, source: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches(packed_source([source], self.plan), PACKS)

    def _task(self, part: int, place: int, number: int, packs: pa.Table) -> pa.Table:
        context = SimpleNamespace(partitionId=lambda: place, getLocalProperty=lambda name: str(number))
        self.monkeypatch.setattr(stage, "TaskContext", SimpleNamespace(get=lambda: context))
        here = packs.filter(pa.compute.equal(packs["place"], place))
        return pa.Table.from_batches(run_part(here.to_batches(), self.plan, part), PACKS)

    def source(self, rows: Sequence[tuple[str, str, str | None, int]]) -> pa.RecordBatch:
        found = []
        for topic, key, value, timestamp in rows:
            self.offsets[topic] += 1
            written = None if value is None else value.encode()
            one = (key.encode(), written, topic, 0, self.offsets[topic], timestamp * 1000, None)
            found.append(one)
        return source_batch(found)


def of_part(packs: pa.Table, part: int) -> pa.Table:
    return packs.filter(pa.compute.equal(packs["part"], part))


def without_counts(packs: pa.Table) -> pa.Table:
    return packs.filter(pa.compute.is_valid(packs["packed"]))


def some_rows(dice: Random, now: int) -> list[tuple[str, str, str, int]]:
    return [
        (
            dice.choice(("users", "lines")),
            f"k{dice.randrange(6)}",
            dice.choice(("x1", "x2 b", "y c d")),
            now + number,
        )
        for number in range(30)
    ]


def plus(one: str | None, other: str | None) -> str:
    return f"{one}+{other}"


def referred(key: str, value: str) -> str | None:
    return None if value == "9" else f"k{int(value) % 4}"


def _left_join_of_join(app: App) -> Table:
    joined = app.table("a").join(app.table("b"), plus, on=referred)
    return joined.left_join(app.table("c"), plus, on=lambda key, value: f"k{value[-1]}")


def _left_join_with_itself(app: App) -> Table:
    table = app.table("a")
    return table.left_join(table, plus, on=referred)


def _joins_with_one_table(app: App) -> Table:
    other = app.table("b")
    joined = app.table("a").join(other, plus, on=referred)
    return joined.left_join(other, plus, on=lambda key, value: f"k{value[0]}")


FOREIGN: dict[str, Callable[[App], Table]] = {
    "inner": lambda app: app.table("a").join(app.table("b"), plus, on=referred),
    "left": lambda app: app.table("a").left_join(app.table("b"), plus, on=referred),
    "chain": _left_join_of_join,
    "with itself": _left_join_with_itself,
    "twice with one table": _joins_with_one_table,
}


def rows_of_tables(dice: Random, count: int) -> list[tuple[str, str, str | None, int]]:
    """A quarter of them late, some of them deletions."""
    rows, now = [], 1_000
    for _ in range(count):
        now += dice.choice((0, 5, 20, 100))
        late = dice.choice((0, 0, 0, 60))
        value = None if dice.random() < 0.25 else str(dice.randrange(10))
        rows.append((dice.choice("aabc"), f"k{dice.randrange(5)}", value, now - late))
    return rows


@pytest.mark.parametrize("places", [1, PLACES])
@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_key_joins_end_in_the_table_that_record_by_record_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, places: int
) -> None:
    for seed in range(SEEDS):
        app = App("foreign", value="string")
        FOREIGN[name](app).to_stream().to("out")
        dice = Random(f"{name} {seed}")
        driver, spark = TestDriver(app), Spark(tmp_path / str(seed), monkeypatch, app, places)
        rows, table = rows_of_tables(dice, 60), dict[bytes, bytes]()
        # The tables that do not take part in a topology have no topic in it.
        topics = {formats.topic for part in app.topology.parts() for formats in part.sources}
        rows = [row for row in rows if row[0] in topics]
        for row in rows:
            driver.send(*row)
        for number, start in enumerate(range(0, len(rows), 12)):
            source = spark.source(rows[start : start + 12])
            for _, key, value, _ in spark.batch(number, source):
                table[key] = value
        expected = {one.key.encode(): one.value and one.value.encode() for one in driver.read("out")}
        assert {key: value for key, value in table.items() if value is not None} == {
            key: value for key, value in expected.items() if value is not None
        }, f"seed {seed}: {rows}"


@pytest.mark.parametrize("forgets", [False, True])
def test_batches_give_what_the_test_driver_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Also where a batch runs again, after it was done or after its task failed in the middle."""
    spark, dice, driver = Spark(tmp_path, monkeypatch), Random(5), TestDriver(app_of())
    for number in range(25):
        rows = some_rows(dice, number * 100)
        source = spark.source(rows)
        results = spark.batch(number, source)
        if dice.random() < 0.5:
            assert sorted(spark.batch(number, source)) == sorted(results)
        for row in rows:
            driver.send(*row)
        expected = [
            (topic, record.key.encode(), str(record.value).encode(), record.timestamp)
            for topic in ("words", "regions")
            for record in driver.read(topic)
        ]
        assert sorted(results) == sorted(expected)
        if forgets:
            stage._held_task.cache_clear()


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


def test_a_stream_joins_a_versioned_table_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> App:
        app = App("history", value="string")
        prices = app.table("prices", history_ms=1_000)
        app.stream("clicks").left_join(prices, lambda click, price: f"{click}@{price}").to("priced")
        return app

    spark, dice, driver = Spark(tmp_path, monkeypatch, build()), Random(6), TestDriver(build())
    results = []
    for number in range(12):
        rows = [
            (dice.choice(("prices", "clicks")), "k", str(dice.random()), number * 50 + one)
            for one in range(9)
        ]
        # Clicks of the past: the table has changed since.
        rows += [("clicks", "k", "late", max(0, number * 50 - dice.randrange(200)))]
        results += spark.batch(number, spark.source(rows))
        stage._held_task.cache_clear()
        for row in sorted(rows, key=lambda row: (row is rows[-1], row[3])):
            driver.send(*row)
    expected = [(record.value.encode(), record.timestamp) for record in driver.read("priced")]
    assert sorted(result[2:] for result in results) == sorted(expected)
    assert len({value for value, _ in expected if value.startswith(b"late")}) > 3


def test_a_worker_that_missed_batches_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker did them, and one batch that this worker had done ran again there."""
    spark, dice = Spark(tmp_path, monkeypatch), Random(6)
    sources = [spark.source(some_rows(dice, number * 100)) for number in range(8)]
    spark.batch(0, sources[0])
    spark.batch(1, sources[1])
    mine = stage._held_task
    others = stage.lru_cache(maxsize=64)(mine.__wrapped__)
    monkeypatch.setattr(stage, "_held_task", others)
    told = [spark.batch(number, sources[number]) for number in range(1, 8)]
    monkeypatch.setattr(stage, "_held_task", mine)
    assert spark.batch(7, sources[7]) == told[-1]


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


def test_a_group_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("work", value="string")
    app.stream("lines").group_by_key().reduce(lambda so_far, line: so_far + line).to("out")
    spark = Spark(tmp_path, monkeypatch, app)
    monkeypatch.setattr(stage, "MOST_GROUP", 10)
    sizes = []

    def process_group(task: Task, topic: str, group: Group) -> Sent:
        sizes.append(len(group.keys))
        return group_of(task, topic, group)

    group_of = Task.process_group
    monkeypatch.setattr(Task, "process_group", process_group)
    results = spark.batch(0, spark.source([("lines", "k", "x", 5)] * 29))
    assert [value for _, _, value, _ in results] == [b"x" * size for size in range(1, 30)]
    assert sizes == [10, 10, 9]


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


def rows_at(*rows: tuple[str, str, int, int]) -> pa.Table:
    found = [
        {"topic": topic, "origin": origin, "seq": seq, "timestamp": timestamp}
        for topic, origin, seq, timestamp in rows
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def read(topic: str, *, is_global: bool = False) -> TopicFormats:
    return TopicFormats(topic, BYTES, BYTES, is_global=is_global)


class Times(Processor):
    """Sends the times at which its timer of the wall clock is called."""

    def init(self, context: Context) -> None:
        context.schedule(10, lambda time: [Record("wall", str(time), time)], clock="wall")

    def process(self, record: Record) -> None:
        return None


def test_the_last_tick_of_a_batch_goes_to_every_task_with_timers() -> None:
    app = App("clocked", value="string")
    app.stream("counted").group_by_key().count().to("counts")
    app.stream("timed").process(Times, stores=[KeyValues("kept")]).to("times")
    app.stream("passed").to("copy")
    plan = Plan(cloudpickle.dumps(app.topology), PLACES, ())  # type: ignore[no-untyped-call]
    (timed,) = plan.application().reads["timed"]
    ticks = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])
    batches = [
        pa.RecordBatch.from_pylist([{"timestamp": at, "value": number} for at, number in rows], ticks)
        for rows in ([(2_000_999, 7), (3_000_999, 8), (1_000_999, 6)], [], [(4_000_000, 9)])
    ]
    made = unpacked(pa.Table.from_batches(packed_ticks(batches, plan), PACKS))
    told = zip(*(made[name].to_pylist() for name in ("part", "place", "seq", "timestamp")), strict=True)
    assert list(told) == [
        (timed, place, *last) for last in ((8, 3_000), (9, 4_000)) for place in range(PLACES)
    ]
    assert {*made["topic"].to_pylist(), *made["origin"].to_pylist()} == {TICK}


def test_global_tables_go_first_and_the_wall_clock_last() -> None:
    rows = [
        (TICK, TICK, 4, 2),
        ("a", "a-0", 0, 5),
        ("g", "g-0", 0, 9),
        ("a", "a-0", 1, 3),
        ("g", "g-1", 0, 1),
    ]
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "topic": columns[0],
            "origin": columns[1],
            "seq": pa.array(columns[2]),
            "timestamp": pa.array(columns[3]),
        }
    )
    order = _order(table, [read("g", is_global=True), read("a")]).tolist()
    assert [rows[at][1:3] for at in order] == [("g-1", 0), ("g-0", 0), ("a-0", 0), ("a-0", 1), (TICK, 4)]


def test_a_partition_keeps_its_order_and_the_oldest_head_goes_first() -> None:
    table = rows_at(
        ("a", "a-0", 2, 30),
        ("a", "a-0", 1, 50),
        ("a", "a-1", 1, 40),
        ("t", "t-0", 1, 50),
        ("t", "t-0", 2, 10),
        ("a", "a-1", 2, 60),
    )
    order = _order(table, [read("t"), read("a")]).tolist()
    taken = [(table["origin"][at].as_py(), table["seq"][at].as_py()) for at in order]
    assert taken == [("a-1", 1), ("t-0", 1), ("t-0", 2), ("a-0", 1), ("a-0", 2), ("a-1", 2)]


def test_the_order_is_that_of_choosing_the_partition_with_the_oldest_head() -> None:
    dice = Random(3)
    for _ in range(200):
        queues = {
            f"a-{number}": [dice.randrange(20) for _ in range(dice.randrange(6))] for number in range(3)
        }
        rows = [
            ("a", origin, seq, time) for origin, times in queues.items() for seq, time in enumerate(times)
        ]
        dice.shuffle(rows)
        expected, heads = [], dict.fromkeys(queues, 0)
        while any(heads[origin] < len(times) for origin, times in queues.items()):
            origin = min(
                (one for one in queues if heads[one] < len(queues[one])),
                key=lambda one: (queues[one][heads[one]], one),
            )
            expected.append((origin, heads[origin]))
            heads[origin] += 1
        table = rows_at(*rows)
        taken = [(rows[at][1], rows[at][2]) for at in _order(table, [read("a")]).tolist()]
        assert taken == expected


def held_task(directory: Path) -> HeldTask:
    app = App("held", value="string")
    app.stream("in").group_by_key().count(name="n").to("out")
    pickled = cloudpickle.dumps(app.topology)  # type: ignore[no-untyped-call]
    application = Plan(pickled, 1, ()).application()
    return HeldTask(
        lambda: application.topology.made_stores(application.parts[0]),
        lambda stores: application.task(0, stores),
        StateFiles(directory),
    )


def count(held: HeldTask, version: int, keys: str) -> dict[object, object]:
    task = held.at(version)
    for key in keys:
        task.process(TopicRecord("in", key.encode(), b"1", 5))
    return {key.decode(): value for key, (value, _) in task.stores["n"].rows.items()}


def test_a_batch_that_failed_in_the_middle_leaves_nothing_in_the_worker(tmp_path: Path) -> None:
    held = held_task(tmp_path)
    assert count(held, -1, "ab") == {"a": 1, "b": 1}  # and is not saved
    assert count(held, -1, "a") == {"a": 1}
    held.save(0)
    assert count(held, 0, "aa") == {"a": 3}
    assert count(held, 0, "a") == {"a": 2}


def test_a_worker_drops_what_another_worker_computed_again(tmp_path: Path) -> None:
    mine = held_task(tmp_path)
    other = held_task(tmp_path)
    count(mine, -1, "aaa")
    mine.save(0)
    count(other, -1, "b")
    other.save(0)
    assert count(mine, 0, "b") == {"b": 2}


def stateless_app() -> App:
    app = App("stateless", value="string")
    words = app.stream("lines").flat_map_values(lambda key, line: line.split())
    words.filter(lambda key, word: word != "y").group_by(lambda key, word: word).count(name="counts").to(
        "out"
    )
    app.stream("others").flat_map(lambda key, line: [(word, line) for word in line.split()]).to("pairs")
    branches = app.stream("users").branch({"b": lambda key, value: "b" in value}, default="rest")
    branches["b"].peek(lambda key, value: None).to("b")
    branches["rest"].key_by(lambda key, value: value).to("rest")
    return app


def test_stateless_parts_give_in_groups_what_they_give_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, dice = Spark(tmp_path, monkeypatch, stateless_app()), Random(7)
    rows = [(topic, *row[1:]) for topic in ("lines", "others", "users") for row in some_rows(dice, 50) * 5]
    source = spark.source(rows)
    grouped = unpacked(without_counts(spark.addressed(source))).to_pylist()
    monkeypatch.setattr(stage, "MOST_GROUP", 1)
    each = unpacked(without_counts(spark.addressed(source))).to_pylist()
    assert len(each) > len(rows)
    assert sorted(grouped, key=repr) == sorted(each, key=repr)


@pytest.mark.parametrize("later", [1, 2])
def test_results_of_one_key_from_several_tasks_are_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """They are put in order by the last of the parts that follow."""
    app = App("crossed", value="string")
    once = app.stream("lines").key_by(lambda key, line: line).repartition(name="by-line")
    once.map_values(lambda line, value: value).key_by(lambda line, value: value[0]).to("crossed")
    users = app.stream("users").group_by_key().count().to_stream()
    if later == 2:
        users = users.group_by(lambda key, number: key[0]).count().to_stream()
    users.to("regions")
    spark = Spark(tmp_path, monkeypatch, app)
    (crossing,) = spark.plan.application().reads["crossed-by-line-repartition"]
    assert sum(part.is_placed for part in spark.plan.application().parts[crossing + 1 :]) == later
    lines = [("lines", "k", f"x{number % 7}", number) for number in range(60)]
    results = spark.batch(0, spark.source(lines))
    assert [value.decode() for _, _, value, _ in results] == [value for _, _, value, _ in lines]


def test_results_of_the_last_part_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of different keys: a window that reads the topic would drop late records."""
    app = App("ordered", value="string")
    counts = app.stream("in").group_by_key().count(name="counts")
    counts.to_stream().map(lambda key, number: (f"{key}{number}", str(number))).to("out")
    spark = Spark(tmp_path, monkeypatch, app)
    given = spark.source([("in", "ab"[at % 2], "v", at) for at in range(50)])
    for place in range(PLACES):
        packs = spark.addressed(given)
        done = spark._task(app.topology.parts()[0].number, place, 0, packs)
        times = unpacked(of_part(done, OUT))["timestamp"].to_pylist()
        assert times == sorted(times)


@pytest.mark.parametrize("size", [1, 30])
def test_headers_reach_the_results_one_by_one_and_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    app = App("with-headers", value="string")
    app.stream("passed").map_values(lambda key, value: value).to("copy")
    app.stream("placed").repartition(name="by-key").left_join(
        app.table("users"), lambda value, user: value
    ).to("joined")
    spark = Spark(tmp_path, monkeypatch, app)
    source = spark.source([(topic, "k", "v", 5) for topic in ("passed", "placed") for _ in range(size)])
    given = [[{"key": "h", "value": b"%d" % number}] for number in range(2 * size)]
    source = source.set_column(SOURCE.get_field_index("headers"), "headers", pa.array(given, HEADERS))
    packs = spark.addressed(source)
    for part in spark.plan.application().parts:
        if part.is_placed:
            packs = pa.concat_tables([spark._task(part.number, place, 0, packs) for place in range(PLACES)])
    results = unpacked(of_part(packs, OUT))
    found = {
        topic: [one["headers"] for one in results.to_pylist() if one["topic"] == topic]
        for topic in ("copy", "joined")
    }
    assert found == {"copy": given[:size], "joined": given[size:]}


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


def test_records_have_the_bytes_of_the_moment_at_which_they_were_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(key: str, value: dict[str, str]) -> dict[str, str]:
        value["item"] = key
        return value

    app = App("work")
    once = app.stream("lines").flat_map(lambda key, value: [("a", value), ("b", value)])
    once.map_values(named).to("out")
    spark = Spark(tmp_path, monkeypatch, app)
    results = spark.batch(0, spark.source([("lines", "k", "{}", 5)] * 12))
    assert [value for _, _, value, _ in results] == [b'{"item":"a"}', b'{"item":"b"}'] * 12


class Tells(Processor):
    def init(self, context: Context) -> None:
        self.context = context

    def process(self, record: Record) -> list[Record]:
        found = self.context.record_metadata
        return [record._replace(value=None if found is None else list(found))]


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("ts", [None, lambda key, value: 7])
def test_a_processor_sees_where_its_record_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_state: bool, ts: Any
) -> None:
    app = App("tells", key="string", value="json")
    stream = app.stream("in", ts=ts)
    if has_state:
        stream.process(Tells, stores=[KeyValues("rows")]).to("out")
    else:
        stream.process(Tells).to("out")
    stream.key_by(lambda key, value: value).process(Tells, stores=[KeyValues("more")]).to("moved")
    spark = Spark(tmp_path, monkeypatch, app)
    rows = [("in", key, f'"{key}"', 5) for key in "abca"]
    found = spark.batch(0, spark.source(rows))
    assert sorted(value for topic, _, value, _ in found if topic == "out") == [
        f'["in",0,{offset}]'.encode() for offset in (1, 2, 3, 4)
    ]
    assert {value for topic, _, value, _ in found if topic == "moved"} == {None}


def with_side_outputs() -> App:
    app = App("logs", value="string")
    log = app.side_output("log")

    def logged(key: str, value: str) -> str:
        if value > "x":
            log(key, value)
        return value

    app.stream("lines").map_values(logged).to("out")
    users = app.stream("users").group_by_key().tumbling(40, on_late=DeadLetters("late"))
    users.aggregate(
        str, lambda key, value, so_far: logged(key, so_far + value), name="all"
    ).to_stream().key_by(lambda key, value: key.key).to("all")
    return app


@pytest.mark.parametrize("most", [1, 10_000])
def test_side_outputs_and_late_letters_go_out_with_their_batch(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MOST_GROUP", most)
    spark, driver = Spark(tmp_path, monkeypatch, with_side_outputs(), 1), TestDriver(with_side_outputs())
    dice = Random(3)
    rows = some_rows(dice, 100) + some_rows(dice, 0) + some_rows(dice, 200)
    for row in rows:
        driver.send(*row)
    found = spark.batch(0, spark.source(rows))
    for topic, read in (("out", str), ("all", str), ("log", str), ("late", bytes.decode)):
        expected = sorted((read(one.key), read(one.value), one.timestamp) for one in driver.read(topic))
        assert expected
        assert expected == sorted(
            (key.decode(), value.decode(), time) for name, key, value, time in found if name == topic
        )


def read_again(has_state: bool, ts: Any) -> App:
    """A topic by three inputs: two of one sub-topology, with different times, and one of another."""
    app = App("again", value="string")
    first = app.stream("users", ts=ts).map_values(lambda key, value: f"{value}1")
    both = first.merge(app.stream("users").map_values(lambda key, value: f"{value}2"))
    if has_state:
        both.group_by_key().aggregate(str, lambda key, value, so_far: so_far + value, name="all").to("out")
    else:
        both.to("out")
    both.key_by(lambda key, value: value[0]).group_by_key().aggregate(
        str, lambda key, value, so_far: so_far + value, name="keyed"
    ).to("keyed")
    app.table("users", name="rows").to_stream().to("rows")
    app.stream("lines").to("lines-again")
    return app


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("ts", [None, lambda key, value: 100 - len(value)])
@pytest.mark.parametrize("most", [3, 10_000])
def test_each_record_of_a_topic_goes_to_all_its_inputs_in_their_order(
    most: int, ts: Any, has_state: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MOST_GROUP", most)
    app = read_again(has_state, ts)
    driver, spark = TestDriver(app), Spark(tmp_path, monkeypatch, app, 1)
    for number in range(3):
        rows = some_rows(Random(number), number * 100)
        with driver.batch():
            for row in rows:
                driver.send(*row)
        found = spark.batch(number, spark.source(rows))
        for topic in ("out", "keyed", "rows", "lines-again"):
            assert [(one.key.encode(), one.value.encode(), one.timestamp) for one in driver.read(topic)] == [
                one[1:] for one in found if one[0] == topic
            ]


class Origins(Processor):
    """Appends the topic that a record was read from."""

    def init(self, context: Context) -> None:
        self.context = context

    def process(self, record: Record) -> list[Record]:
        metadata = self.context.record_metadata
        return [record._replace(value=f"{record.value}@{None if metadata is None else metadata.topic}")]


def of_orders(has_state: bool, ts: Any) -> App:
    app = App("orders", key="string", value="string")
    orders = app.stream(re.compile(r"orders-\w+"), ts=ts)
    if has_state:
        orders.group_by_key().count(name="counts").to_stream().to("counts", value="json")
    orders.process(Origins, stores=[KeyValues("seen")] if has_state else []).to("copied-orders")
    app.stream("orders-special").to("special")
    return app


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("ts", [None, lambda key, value: int(value)])
def test_topics_that_match_a_pattern_are_read_and_results_keep_their_topics(
    has_state: bool, ts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        ("orders-eu", "a", "1", 7),
        ("orders-us", "b", "2", 6),
        ("orders-special", "c", "3", 5),
        ("orders-us", "a", "4", 9),
    ]
    driver = TestDriver(of_orders(has_state, ts), 3)
    for row in rows:
        driver.send(*row)
    spark = Spark(tmp_path, monkeypatch, of_orders(has_state, ts))
    found = spark.batch(0, spark.source(rows))
    topics = ["copied-orders", "special", *(["counts"] if has_state else [])]
    assert {topic for topic, *_ in found} == set(topics)
    for topic in topics:
        expected = sorted((one.key, str(one.value), one.timestamp) for one in driver.read(topic))
        assert expected == sorted(
            (key.decode(), value.decode(), time) for name, key, value, time in found if name == topic
        )
