"""Several streams and tables of one topic: each record goes to each, in the order in which they were made."""

from __future__ import annotations

from typing import Any

import pytest

from felice.streams import App, DeadLetters, TestDriver, TopologyError


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def test_each_has_formats_of_its_own() -> None:
    app = App("again")
    app.stream("in", value="json").map_values(lambda key, value: value["n"]).to("numbers")
    app.stream("in", value="string", on_bad_record="skip").map_values(lambda key, text: len(text)).to("sizes")
    app.table("in", value="bytes", name="rows", on_error=DeadLetters("dead"))
    assert app.topology.topics() == ["in"] and app.topology.subscription() == ("subscribe", "in")
    assert app.describe().count("(topic in)") == 3
    driver = TestDriver(app, 2)
    driver.send("in", "k", {"n": 7})
    assert [one.value for topic in ("numbers", "sizes") for one in driver.read(topic)] == [7, 7]
    assert driver.table("rows") == {"k": b'{"n":7}'}


@pytest.mark.parametrize(("table_first", "expected"), [(True, ["xx", "yy"]), (False, ["x-", "yx"])])
def test_a_join_of_a_stream_with_the_table_of_its_topic_sees_the_rows_of_those_made_before(
    table_first: bool, expected: list[str]
) -> None:
    app = App("again", value="string")
    table = app.table("in") if table_first else None
    stream = app.stream("in")
    stream.left_join(table or app.table("in"), lambda own, row: own + (row or "-")).to("out")
    driver = TestDriver(app)
    with driver.batch():
        driver.send("in", "k", "x", 5)
        driver.send("in", "k", "y", 5)
    assert [one.value for one in driver.read("out")] == expected


def test_all_results_of_a_record_come_before_the_next_record() -> None:
    """As if one source led to both: Kafka Streams makes one of two streams of a topic."""
    app = App("again", value="string")
    first = app.stream("in").map_values(lambda key, value: f"{value}1")
    first.merge(app.stream("in").map_values(lambda key, value: f"{value}2")).to("out")
    driver = TestDriver(app)
    with driver.batch():
        for value, time in (("a", 9), ("b", 3)):
            driver.send("in", "k", value, time)
    assert [one.value for one in driver.read("out")] == ["a1", "a2", "b1", "b2"]


def test_each_may_choose_another_time() -> None:
    app = App("again")
    app.stream("in", ts="made").to("made")
    app.stream("in").to("read")
    app.stream("in", ts="sent").to("sent")
    driver = TestDriver(app)
    driver.send("in", "k", {"made": 3, "sent": 8}, 5)
    assert [one.timestamp for topic in ("made", "read", "sent") for one in driver.read(topic)] == [3, 5, 8]


def test_a_global_table_and_a_stream_of_one_topic() -> None:
    app = App("again", value="string")
    rows = app.global_table("in", name="rows")
    stream = app.stream("in")
    stream.join(rows, lambda own, row: row, on=lambda key, value: value).to("out")
    driver = TestDriver(app, 3)
    driver.send("in", "a", "b")
    driver.send("in", "b", "a")
    assert [(one.key, one.value) for one in driver.read("out")] == [("b", "b")]


def test_what_cannot_be_read_again_is_refused() -> None:
    app = App("again")
    app.stream("in").repartition(name="x")
    app.from_df("frame", lambda spark: None)
    for topic in ("again-x-repartition", "frame"):
        with pytest.raises(TopologyError, match=f"{topic}' is read twice"):
            app.table(topic)
    with pytest.raises(TopologyError, match="'in' is read from 5 and from 'earliest'"):
        app.stream("in", start=5)
