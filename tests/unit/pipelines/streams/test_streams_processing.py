"""Processors, their stores and timers, global tables and repartitions in the TestDriver."""

from __future__ import annotations

from typing import Any

import pytest

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.stores import KeyValueStore
from felice.pipelines.streams.window_stores import WindowStore
from felice.records.kernels import murmur2
from felice.streams import (
    App,
    Context,
    DeadLetters,
    KeyValues,
    Processor,
    Record,
    StreamsError,
    TestDriver,
    Timestamped,
    TopologyError,
    Window,
    WindowValues,
)


class Ticks(Processor):
    """Sends the times at which its timers are called."""

    def init(self, context: Context) -> None:
        context.schedule(10, lambda time: [Record("stream", time, time)])
        context.schedule(10, lambda time: [Record("wall", time, time)], clock="wall")

    def process(self, record: Record) -> None:
        return None


def times(records: list[Record]) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in records]


def test_timers_are_called_once_for_the_times_that_were_missed() -> None:
    app = App("ticks")
    app.stream("in").process(Ticks).to("out")
    driver = TestDriver(app)
    for timestamp in (3, 9, 10, 12, 47, 49, 50):
        driver.send("in", "k", 1, timestamp)
    assert times(driver.read("out")) == [("stream", 3), ("stream", 10), ("stream", 47), ("stream", 50)]
    for by_ms in (9, 1, 35, 4, 1):
        driver.advance_wall_clock(by_ms)
    assert times(driver.read("out")) == [("wall", 10), ("wall", 45), ("wall", 50)]


class Latest(Processor):
    """Keeps the last values of each key in windows of ten, and sends what a window had before."""

    def init(self, context: Context) -> None:
        self.windows = context.store("windows")

    def process(self, record: Record) -> list[Record]:
        start = record.timestamp // 10 * 10
        before = self.windows.fetch(record.key, start)
        self.windows.put(record.key, start, record.value, record.timestamp)
        self.windows.expire(record.timestamp)
        return [record._replace(value=before and before.value)]


def test_a_processor_has_stores_of_windows() -> None:
    app = App("latest")
    app.stream("in").process_values(Latest, stores=[WindowValues("windows", 10, 20)]).to("out")
    driver = TestDriver(app)
    for value, timestamp in ((1, 3), (2, 9), (3, 11), (4, 8), (5, 40)):
        driver.send("in", "k", value, timestamp)
    assert [record.value for record in driver.read("out")] == [None, 1, None, 2, None]
    assert list(driver.table("windows").values()) == [5]


class OneKey(Processor):
    """Puts each value into the window from 0, under its first letter."""

    def init(self, context: Context) -> None:
        self.windows = context.store("windows")

    def process(self, record: Record) -> None:
        self.windows.put(record.value[0], 0, record.value, record.timestamp)


def test_a_window_that_several_partitions_have_comes_once() -> None:
    app = App("one-key", value="string")
    app.stream("in").process(OneKey, stores=[WindowValues("windows", 10, 20)])
    driver = TestDriver(app, 4)
    for key in "abcdefgh":
        for letter in "xy":
            driver.send("in", key, letter + key, 5)
    of_first = min("abcdefgh", key=lambda key: (murmur2(key.encode()) % 4, -ord(key)))
    view = driver.store("windows")
    assert [value for _, value in sorted(view.items())] == [f"x{of_first}", f"y{of_first}"]
    assert view.windows("x", 0, 100) == [(Window(0, 10), f"x{of_first}")] and len(view) == 2


class Renames(Processor):
    def process(self, record: Record) -> list[Record]:
        return [record._replace(key="other")]


def test_process_values_keeps_keys_and_process_may_change_them() -> None:
    app = App("renames")
    source = app.stream("in")
    source.process(Renames).group_by_key().count(name="n")
    driver = TestDriver(app, partitions=3)
    for key in "abc":
        driver.send("in", key, 1)
    assert driver.table("n") == {"other": 3}
    keeping = App("keeps")
    keeping.stream("in").process_values(Renames).to("out")
    with pytest.raises(StreamsError, match="process_values changed the key 'k' to 'other'; use process"):
        TestDriver(keeping).send("in", "k", 1)


def test_a_row_of_operators_may_be_longer_than_python_nests_blocks() -> None:
    app = App("long")
    stream = app.stream("in")
    for _ in range(40):
        stream = stream.process_values(Passes)
    stream.to("out")
    driver = TestDriver(app)
    driver.send("in", "k", 1, 5)
    assert driver.read("out") == [Record("k", 1, 5)]


class Passes(Processor):
    def process(self, record: Record) -> list[Record]:
        return [record]


class Scheduling(Processor):
    def __init__(self, interval_ms: int, clock: str) -> None:
        self.interval_ms, self.clock = interval_ms, clock

    def init(self, context: Context) -> None:
        context.schedule(self.interval_ms, self.fail, clock=self.clock)

    def process(self, record: Record) -> None:
        return None

    def fail(self, time: int) -> None:
        raise KeyError("x")


def test_mistakes_of_processors_are_told() -> None:
    app = App("wrong")
    stream = app.stream("in")
    with pytest.raises(TopologyError, match="there is no store 'n'; there are none"):
        stream.process(Ticks, stores=["n"])
    stream.process(Latest, stores=[KeyValues("mine")])
    with pytest.raises(TopologyError, match="the processor has no store 'windows'; it has mine"):
        TestDriver(app)
    for interval_ms, clock, told in ((0, "wall", "interval is 0 ms"), (5, "event", "clock is 'event'")):
        other = App("wrong")
        other.stream("in").process(lambda given=(interval_ms, clock): Scheduling(*given))
        with pytest.raises(TopologyError, match=told):
            TestDriver(other)
    failing = App("failing")
    failing.stream("in").process(lambda: Scheduling(5, "stream"))
    with pytest.raises(StreamsError, match="a timer of the stream clock fails at 7: KeyError: 'x'"):
        TestDriver(failing).send("in", "k", 1, 7)


def test_a_global_table_is_in_every_partition_and_in_every_part_that_uses_it() -> None:
    app = App("global")
    rates = app.global_table("rates", name="rates")
    orders = app.stream("orders")
    joined = orders.join(rates, lambda order, rate: order["n"] * rate, on="currency", value="int")
    sums = joined.group_by(lambda key, value: "all").reduce(lambda one, other: one + other).to_stream()
    sums.left_join(rates, lambda total, rate: [total, rate], on=lambda key, total: "eur").to("out")
    driver = TestDriver(app, partitions=4)
    driver.send("rates", "eur", 2)
    driver.send("rates", "usd", 3)
    for number, currency in enumerate(("eur", "usd", "eur", "gbp")):
        driver.send("orders", f"o{number}", {"currency": currency, "n": 10})
    assert [record.value for record in driver.read("out")] == [[20, 2], [50, 2], [70, 2]]
    assert driver.table("rates") == {"eur": 2, "usd": 3}
    assert len(driver.store("rates")) == 2
    driver.send("rates", "eur", None)
    driver.send("orders", "o9", {"currency": "usd", "n": 1})
    assert [record.value for record in driver.read("out")] == [[73, None]]


def test_mistakes_with_global_tables_are_told() -> None:
    app = App("global")
    with pytest.raises(TopologyError, match="a global table has no dead letters"):
        app.global_table("a", on_bad_record=DeadLetters("dead"))
    stream, table = app.stream("in"), app.table("t")
    with pytest.raises(TopologyError, match="`on` is for global tables"):
        stream.join(table, lambda left, right: left, on="x")


def test_a_repartition_places_records_by_their_keys() -> None:
    app = App("placed", value="string")
    app.stream("in").key_by(lambda key, value: value).repartition(name="by-value").to("out")
    assert "placed-by-value-repartition" in app.describe()
    driver = TestDriver(app, partitions=2)
    driver.send("in", "k", "v", 4)
    assert driver.read("out") == [Record("v", "v", 4)]


def test_mistakes_with_versioned_tables_are_told() -> None:
    app = App("versioned")
    stream, plain, short = app.stream("in"), app.table("t"), app.table("u", history_ms=5)
    for table, told in ((plain, "the table has none"), (short, "the table has 5 ms")):
        with pytest.raises(TopologyError, match=told):
            stream.join(table, lambda left, right: left, grace_ms=10)
    with pytest.raises(TopologyError, match="`grace_ms` is for versioned tables"):
        stream.join(app.global_table("g"), lambda left, right: left, grace_ms=10)
    with pytest.raises(TopologyError, match="the history of a table is 0 ms"):
        app.table("v", history_ms=0)


def test_a_store_gives_ranges_and_prefixes_in_the_order_of_bytes() -> None:
    store = KeyValueStore("s", FORMATS["string"], FORMATS["json"])
    for number, key in enumerate(["b", "a", "ba", "c", "é"]):
        assert store.put_if_absent(key, number, number) is None
    assert store.put_if_absent("a", 9) == Timestamped(1, 1)
    assert [key for key, _ in store.items()] == ["a", "b", "ba", "c", "é"]
    assert [key for key, _ in store.items(reverse=True)] == ["é", "c", "ba", "b", "a"]
    assert [key for key, _ in store.range("b", "c")] == ["b", "ba", "c"]
    assert [key for key, _ in store.range(None, "b", reverse=True)] == ["b", "a"]
    assert [key for key, _ in store.range("c", None)] == ["c", "é"]
    assert [key for key, _ in store.prefix(b"b")] == ["b", "ba"]
    assert store.delete("b") == Timestamped(0, 0) and store.delete("b") is None and store.get("b") is None


def test_a_window_store_gives_the_windows_of_a_key_by_time() -> None:
    store = WindowStore("s", FORMATS["string"], FORMATS["json"], 10, 100)
    for start in (0, 10, 30):
        store.put("k", start, start, start)
    store.put("other", 10, 1, 10)
    assert [(window, row.value) for window, row in store.windows("k", 0, 10)] == [
        ((0, 10), 0),
        ((10, 20), 10),
    ]
    assert [window.start for window, _ in store.windows("k", 5, 30, reverse=True)] == [30, 10]


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
def test_closed_windows_stay_as_long_as_their_retention(kind: str) -> None:
    def driver_of(retention_ms: int) -> TestDriver:
        app = App("shop", value="string")
        windows = getattr(app.stream("in").group_by_key(), kind)(10, retention_ms=retention_ms)
        windows.emit("final").count(name="windows").to("out")
        driver = TestDriver(app)
        for time in (5, 100, 200, 1200):
            driver.send("in", "k", "x", time)
        return driver

    short, long = driver_of(0), driver_of(1_150)
    assert len(short.table("windows")) < len(long.table("windows")) <= 4 * 2
    assert [(one.key, one.value) for one in short.read("out")] == [
        (one.key, one.value) for one in long.read("out")
    ]
    with pytest.raises(TopologyError, match="retention_ms is 5, but these windows are needed for"):
        driver_of(5)


class Tells(Processor):
    """Sends where each record was read, and when it was processed."""

    def init(self, context: Context) -> None:
        self.context = context
        assert context.record_metadata is None
        with pytest.raises(TopologyError, match="wall_clock_ms has no value in the processor's init"):
            _ = context.wall_clock_ms
        context.schedule(1000, self.on_timer, clock="wall")

    def process(self, record: Record) -> list[Record]:
        found = self.context.record_metadata
        return [record._replace(value=[None if found is None else list(found), self.context.wall_clock_ms])]

    def on_timer(self, time: int) -> list[Record]:
        assert self.context.record_metadata is None
        return [Record("timer", self.context.wall_clock_ms, time)]


def test_a_processor_asks_for_the_place_of_its_record_and_the_time() -> None:
    app = App("asks", key="string", value="json")
    stream = app.stream(["in", "other"])
    stream.process(Tells).to("out")
    stream.group_by(lambda key, value: value, key="json").count().to_stream().process(Tells).to("counts")
    driver = TestDriver(app, partitions=2)
    driver.advance_wall_clock(300)
    for topic, key in (("in", "a"), ("in", "d"), ("in", "a"), ("other", "a")):
        driver.send(topic, key, "x", 5)
    assert (murmur2(b"a") % 2, murmur2(b"d") % 2) == (0, 1)
    assert [one.value for one in driver.read("out")] == [
        [["in", 0, 0], 300],
        [["in", 1, 0], 300],
        [["in", 0, 1], 300],
        [["other", 0, 0], 300],
    ]
    assert {one.value[0] for one in driver.read("counts")} == {None}
    driver.advance_wall_clock(1000)
    assert {one.value for one in driver.read("out")} == {1300}


def test_print_writes_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    app = App("prints", key="string", value="int")
    app.stream("in").map_values(lambda key, value: value * 2).print("doubled")
    TestDriver(app).send("in", "a", 4)
    assert capsys.readouterr().out == "[doubled]: a, 8\n"
