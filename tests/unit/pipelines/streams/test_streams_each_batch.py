"""One change for each key and batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from felice.pipelines.streams.task import StreamsError
from felice.streams import App, Context, DeadLetters, Processor, Record, Table, TestDriver, TopologyError


def counting(**options: Any) -> App:
    app = App("shop", value="string", **options)
    counts = app.stream("in").group_by_key().count(name="counts")
    if not options:
        counts = counts.emit("batch")
    counts.to("out")
    # The old value is that from before the batch, so the groups are right.
    counts.group_by(lambda key, count: (str(count), key)).count(name="of-counts").to("of-counts")
    return app


def written(driver: TestDriver, topic: str) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp) for record in driver.read(topic)]


@pytest.mark.parametrize("app", [counting(), counting(emit="batch")], ids=["table", "app"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_batch_sends_the_last_change_of_each_key(app: App, partitions: int) -> None:
    driver = TestDriver(app, partitions)
    with driver.batch():
        for number, key in enumerate("aabab"):
            driver.send("in", key, "x", number)
    assert sorted(written(driver, "out")) == [("a", 3, 3), ("b", 2, 4)]
    assert driver.table("of-counts") == {"3": 1, "2": 1}
    with driver.batch():
        driver.send("in", "b", "x", 5)
    assert written(driver, "out") == [("b", 3, 5)]
    assert driver.table("of-counts") == {"3": 2, "2": 0}
    driver.send("in", "a", "x", 6)
    driver.send("in", "a", "x", 7)
    assert written(driver, "out") == [("a", 4, 6), ("a", 5, 7)], "each send is a batch"


def test_changes_come_in_the_order_of_the_last_ones_with_their_headers() -> None:
    driver = TestDriver(counting())
    with driver.batch():
        for key, header in (("b", b"1"), ("a", b"2"), ("b", b"3")):
            driver.send("in", key, "x", 9, (("n", header),))
    assert [(one.key, one.headers) for one in driver.read("out")] == [
        ("a", (("n", b"2"),)),
        ("b", (("n", b"3"),)),
    ]


@pytest.mark.parametrize("with_store", [False, True])
def test_tables_of_topics_and_windows_too(with_store: bool) -> None:
    app = App("shop", value="string", emit="batch")
    app.table("users", name="users" if with_store else None).to("users-out")
    app.stream("in").group_by_key().tumbling(10).count().to("windows")
    driver = TestDriver(app)
    with driver.batch():
        for value in ("anna", "otto", None):
            driver.send("users", "u", value)
        for time in (1, 2, 11):
            driver.send("in", "k", "x", time)
    assert written(driver, "users-out") == [("u", None, 0)]
    assert [(one.key.window.start, one.value) for one in driver.read("windows")] == [(0, 2), (10, 1)]


def test_lookups_see_each_change_at_once() -> None:
    app = App("shop", value="string")
    users = app.table("users").emit("batch")
    app.stream("in").left_join(users, lambda one, other: f"{one}+{other}").to("out")
    users.map_values(lambda key, value: value.upper()).to("upper")
    driver = TestDriver(app)
    with driver.batch():
        driver.send("users", "u", "anna", 1)
        driver.send("in", "u", "x", 2)
        driver.send("users", "u", "otto", 3)
        driver.send("in", "u", "y", 4)
    assert [value for _, value, _ in written(driver, "out")] == ["x+anna", "y+otto"]
    assert written(driver, "upper") == [("u", "OTTO", 3)]


def failing(policy: Any) -> Callable[[], Table]:
    app = App("shop", value="string")
    table = app.stream("in", on_error=policy).group_by_key().reduce(lambda a, b: a + b).emit("batch")
    table.to_stream().map_values(lambda key, value: 1 // (value != "bad") and value).to("out")
    return TestDriver(app)  # type: ignore[return-value]


@pytest.mark.parametrize("policy", ["fail", "skip", DeadLetters("letters")])
def test_an_error_at_the_end_of_a_batch(policy: Any) -> None:
    driver: Any = failing(policy)
    if policy != "skip":
        with pytest.raises(
            StreamsError, match="a change of key 'k' to .*at the end of a batch.*ZeroDivision.*map-values"
        ):
            driver.send("in", "k", "bad")
        return
    with driver.batch():
        driver.send("in", "k", "bad")
        driver.send("in", "l", "good")
    assert (written(driver, "out"), driver.skipped) == ([("l", "good", 0)], 1)


def test_what_is_no_way_to_emit_is_refused() -> None:
    with pytest.raises(TopologyError, match="emit is 'never'; it must be 'update' or 'batch'"):
        App("shop", emit="never")
    table = App("shop").table("users", history_ms=10)
    with pytest.raises(TopologyError, match="a versioned table sends each change"):
        table.emit("batch")
    assert isinstance(App("shop", emit="batch").table("users", history_ms=10), Table)


def test_tables_of_tables_end_their_batch_in_turn() -> None:
    app = App("shop", value="string", emit="batch")
    first = app.stream("in").group_by_key().count(name="first")
    first.map_values(lambda key, count: count * 10, value="json", name="tens").emit("batch").to("out")
    driver = TestDriver(app)
    with driver.batch():
        for _ in range(3):
            driver.send("in", "k", "x")
    assert written(driver, "out") == [("k", 30, 0)]


def test_a_row_that_comes_and_goes_in_one_batch_is_not_sent_if_its_old_value_is_known() -> None:
    app = App("shop", value="string")
    users = app.table("users", name="users").emit("batch")
    users.group_by(lambda key, value: (value, value)).count(name="of").to("of")
    users.to("out")
    driver = TestDriver(app)
    with driver.batch():
        driver.send("users", "u", "a")
        driver.send("users", "u", None)
    assert written(driver, "out") == [] and written(driver, "of") == []


def test_what_timers_change_in_a_batch_is_sent() -> None:
    class Ticks(Processor):
        def init(self, context: Context) -> None:
            context.schedule(10, lambda time: [Record("k", str(time), time)], clock="wall")

        def process(self, record: Record) -> list[Record]:
            return []

    app = App("shop", value="string")
    ticks = app.stream("in").process_values(Ticks)
    ticks.to_table(name="ticks").emit("batch").to("out")
    driver = TestDriver(app)
    driver.advance_wall_clock(10)
    assert written(driver, "out") == [("k", "10", 10)]


def test_a_batch_that_fails_before_its_end_leaves_nothing() -> None:
    driver = TestDriver(counting())
    with pytest.raises(KeyError), driver.batch():
        driver.send("in", "a", "x")
        raise KeyError
    driver.send("in", "b", "x")
    assert written(driver, "out") == [("b", 1, 0)]
