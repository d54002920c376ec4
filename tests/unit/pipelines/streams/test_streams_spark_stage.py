"""The work of a Spark worker, without Spark: addresses, groups of records, and state that follows batches."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from felice.pipelines.streams.fusing import Sent
from felice.pipelines.streams.on_spark import stage
from felice.pipelines.streams.on_spark.packs import unpacked
from felice.pipelines.streams.on_spark.rows import HEADERS, OUT
from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import Task
from felice.streams import App, Context, DeadLetters, KeyValues, Processor, Record, TestDriver
from streams.spark_batches import SOURCE
from streams.spark_workers import PLACES, Spark, of_part


def app_of() -> App:
    app = App("work", value="string")
    app.stream("lines").flat_map_values(lambda key, line: line.split()).to("words")
    users = app.table("users")
    users.group_by(lambda key, user: (user[0], user)).count(name="regions").to("regions")
    return app


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


@pytest.mark.parametrize("forgets", [False, True])
def test_batches_give_what_the_test_driver_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Also where a batch runs again, after it was done or after its task failed in the middle."""
    spark, dice, driver = Spark(tmp_path, monkeypatch, app_of()), Random(5), TestDriver(app_of())
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
    spark, dice = Spark(tmp_path, monkeypatch, app_of()), Random(6)
    sources = [spark.source(some_rows(dice, number * 100)) for number in range(8)]
    spark.batch(0, sources[0])
    spark.batch(1, sources[1])
    mine = stage._held_task
    others = stage.lru_cache(maxsize=64)(mine.__wrapped__)
    monkeypatch.setattr(stage, "_held_task", others)
    told = [spark.batch(number, sources[number]) for number in range(1, 8)]
    monkeypatch.setattr(stage, "_held_task", mine)
    assert spark.batch(7, sources[7]) == told[-1]


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
        done = spark.run_task(app.topology.parts()[0].number, place, 0, packs)
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
            packs = pa.concat_tables(
                [spark.run_task(part.number, place, 0, packs) for place in range(PLACES)]
            )
    results = unpacked(of_part(packs, OUT))
    found = {
        topic: [one["headers"] for one in results.to_pylist() if one["topic"] == topic]
        for topic in ("copy", "joined")
    }
    assert found == {"copy": given[:size], "joined": given[size:]}


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
