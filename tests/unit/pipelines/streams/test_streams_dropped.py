"""Records that an operator leaves out are counted by operator, and late ones can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from felice.pipelines.streams.task import StreamsError
from felice.streams import (
    App,
    DeadLetters,
    JoinWindows,
    Stream,
    TestDriver,
    TimeWindows,
    cogroup,
)

Late = list[tuple[Any, Any, int]]


def tumbling(orders: Stream, on_late: Any) -> None:
    orders.group_by_key().tumbling(10, on_late=on_late).count(name="found")


def hopping_final(orders: Stream, on_late: Any) -> None:
    windows = orders.group_by_key().hopping(10, every_ms=5, on_late=on_late)
    windows.emit("final").count(name="found")


def sliding(orders: Stream, on_late: Any) -> None:
    orders.group_by_key().sliding(10, on_late=on_late).count(name="found")


def sliding_final(orders: Stream, on_late: Any) -> None:
    orders.group_by_key().sliding(10, on_late=on_late).emit("final").count(name="found")


def session(orders: Stream, on_late: Any) -> None:
    orders.group_by_key().session(10, on_late=on_late).count(name="found")


def session_final(orders: Stream, on_late: Any) -> None:
    orders.group_by_key().session(10, on_late=on_late).emit("final").count(name="found")


def cogrouped(orders: Stream, on_late: Any) -> None:
    inputs = [(orders.group_by_key(), lambda key, value, so_far: so_far + 1)]
    cogroup(inputs, lambda: 0, windows=TimeWindows(10, 10), on_late=on_late, name="found", value="json")


WINDOWS: list[Callable[[Stream, Any], None]] = [
    tumbling,
    hopping_final,
    sliding,
    sliding_final,
    session,
    session_final,
    cogrouped,
]


def driver_of(piece: Callable[[Stream, Any], None], on_late: Any, **options: Any) -> TestDriver:
    app = App("shop", value="string")
    piece(app.stream("in", **options), on_late)
    driver = TestDriver(app)
    for key, value, time in (("a", "x", 5), ("a", "y", 100), ("b", "late", 7), ("a", "z", 101)):
        driver.send("in", key, value, time, (("h", b"1"),))
    return driver


@pytest.mark.parametrize("piece", WINDOWS, ids=lambda piece: piece.__name__)
def test_a_late_record_is_counted_and_told(piece: Callable[[Stream, Any], None]) -> None:
    found: Late = []
    driver = driver_of(piece, lambda *late: found.append(late))
    assert driver.dropped == {("found", "late"): 1}
    assert found == [("b", "late", 7)]
    driver = driver_of(piece, DeadLetters("letters"))
    [letter] = driver.read("letters")
    assert (letter.key, letter.value, letter.timestamp) == (b"b", b"late", 7)
    assert dict(letter.headers) == {"h": b"1", "felice.error": b"too late for found", "felice.topic": b"in"}
    assert driver_of(piece, None).dropped == {("found", "late"): 1}


def test_a_function_for_late_records_that_fails_is_an_error_of_the_record() -> None:
    with pytest.raises(StreamsError, match="ZeroDivisionError"):
        driver_of(tumbling, lambda *late: 1 // 0)
    driver = driver_of(tumbling, lambda *late: 1 // 0, on_error="skip")
    assert (driver.skipped, driver.dropped) == (1, {("found", "late"): 1})


def null_aggregate(app: App) -> None:
    app.stream("in").group_by_key().count(name="found")


def null_window(app: App) -> None:
    app.stream("in").group_by_key().tumbling(10).count(name="found")


def null_table(app: App) -> None:
    app.table("in", name="found")


def null_versioned(app: App) -> None:
    app.table("in", name="found", history_ms=10)


NULLS = [null_aggregate, null_window, null_table, null_versioned]


@pytest.mark.parametrize("piece", NULLS, ids=lambda piece: piece.__name__)
def test_records_without_key_are_counted(piece: Callable[[App], None]) -> None:
    app = App("shop", value="string")
    piece(app)
    driver = TestDriver(app)
    driver.send("in", None, "x", 1)
    driver.send("in", "a", "x", 1)
    assert driver.dropped == {("found", "null"): 1}


def test_records_that_a_join_or_a_repartition_cannot_use_are_counted() -> None:
    app = App("shop", value="string")
    orders, other = app.stream("in"), app.stream("other")
    orders.join(app.table("users"), lambda one, two: one).to("out")
    orders.join(other, lambda one, two: one, within=JoinWindows(1, 1)).to("out")
    orders.key_by(lambda key, value: value).group_by_key().count(name="found")
    driver = TestDriver(app)
    driver.send("in", "k", None, 1)
    counted = {what.rpartition("-")[0]: count for (what, reason), count in driver.dropped.items()}
    assert counted == {"table-1": 1, "join-streams-1": 1, "keyed": 1}
    app = App("shop", value="string")
    prices = app.table("prices", history_ms=10, name="prices")
    app.stream("in").join(prices, lambda one, two: one, grace_ms=5).to("out")
    driver = TestDriver(app)
    driver.send("in", None, "x", 1)
    driver.send("prices", "a", "x", 100)
    driver.send("prices", "a", "x", 10)
    assert driver.dropped == {("hold-back-1", "null"): 1, ("prices", "late"): 1}


def test_records_of_another_branch_and_filtered_ones_are_not_counted() -> None:
    app = App("shop", value="string")
    orders = app.stream("in")
    orders.branch({"a": lambda key, value: value == "a"}, default="rest")["a"].filter(lambda k, v: False).to(
        "out"
    )
    driver = TestDriver(app)
    driver.send("in", "k", "a")
    driver.send("in", "k", "b")
    assert driver.dropped == {}


def test_an_error_names_the_line_of_the_program() -> None:
    app = App("shop", value="string")
    app.stream("in").map_values(lambda key, value: 1 // 0).to("out")
    with pytest.raises(StreamsError, match=r"in step map-values-1 \(test_streams_dropped\.py:\d+\)$"):
        TestDriver(app).send("in", "k", "a")


def test_a_late_change_of_a_batch_is_told_with_its_time() -> None:
    found: Late = []
    app = App("shop", value="string")
    counts = app.stream("in").group_by_key().count(name="counts").emit("batch").to_stream()
    counts.group_by_key().tumbling(10, on_late=lambda *late: found.append(late)).count(name="found")
    driver = TestDriver(app)
    driver.send("in", "a", "x", 100)
    driver.send("in", "b", "x", 5)
    assert found == [("b", 1, 5)] and driver.dropped == {("found", "late"): 1}
