"""Event times, topics chosen for each record, and the operators that let only changes pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from felice.pipelines.streams.on_spark.application import Application
from felice.pipelines.streams.on_spark.runner import check
from felice.pipelines.streams.task import TopicRecord
from felice.pipelines.streams.topology import TopologyError
from felice.streams import App, JoinWindows, Record, Stream, StreamsError, TestDriver


def values(records: list[Record]) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in records]


def test_the_time_of_an_event_is_that_of_its_field() -> None:
    app = App("timed")
    app.stream("clicks", ts="at").to("out")
    driver = TestDriver(app)
    driver.send("clicks", "k", {"at": 5_000}, timestamp=99)
    assert [record.timestamp for record in driver.read("out")] == [5_000]


def test_a_task_takes_records_in_the_order_of_their_event_times() -> None:
    app = App("order")
    timed = app.stream("in", ts=lambda key, value: value["at"])
    formats = Application(app.topology, None)
    timed.to("out")
    record = TopicRecord("in", b"k", b'{"at":7}', 1)
    assert Application(app.topology, None).timed(record, "in-0", 3).timestamp == 7
    assert formats.timed(record._replace(value=b"no JSON"), "in-0", 3).timestamp == 1


@pytest.mark.parametrize(
    "value, reason",
    [({}, "found None"), ({"at": -1}, "found -1"), ({"at": 1.5}, "found 1.5"), (3, "AttributeError")],
)
def test_a_record_without_an_event_time_is_named(value: Any, reason: str) -> None:
    app = App("timed")
    app.stream("clicks", ts="at").to("out")
    with pytest.raises(
        StreamsError, match=f"topic 'clicks' with key 'k' and value .* has no event time: {reason}"
    ):
        TestDriver(app).send("clicks", "k", value)


def test_the_error_of_an_event_time_says_where_the_record_is() -> None:
    app = App("timed")
    app.stream("in", ts="at").to("out")
    with pytest.raises(StreamsError, match=r"\(at in-0, offset 3\)$"):
        Application(app.topology, None).timed(TopicRecord("in", b"k", b"{}", 1), "in-0", 3)


def test_each_record_goes_to_the_topic_that_the_function_returns() -> None:
    app = App("fan-out")
    app.stream("events").to(lambda key, event: f"ev-{event['kind']}")
    driver = TestDriver(app)
    driver.send("events", "a", {"kind": "x"})
    driver.send("events", "b", {"kind": "y"})
    assert values(driver.read("ev-x")) == [("a", {"kind": "x"})]
    assert values(driver.read("ev-y")) == [("b", {"kind": "y"})]


def test_a_topic_that_is_no_name_is_an_error() -> None:
    app = App("fan-out")
    app.stream("events").to(lambda key, event: event.get("kind"))
    with pytest.raises(StreamsError, match="the topic of the record is None"):
        TestDriver(app).send("events", "a", {})


def test_a_value_that_equals_the_last_of_its_key_is_dropped() -> None:
    app = App("changes")
    app.stream("in").dedupe_changes("pct", name="last").to("out")
    driver = TestDriver(app)
    for key, value in (
        ("a", {"pct": 1, "n": 1}),
        ("a", {"pct": 1, "n": 2}),
        ("b", {"pct": 1}),
        ("a", {"pct": 2}),
    ):
        driver.send("in", key, value)
    driver.send("in", "a", {"pct": 1})
    driver.send("in", None, {"pct": 9})
    assert values(driver.read("out")) == [
        ("a", {"pct": 1, "n": 1}),
        ("b", {"pct": 1}),
        ("a", {"pct": 2}),
        ("a", {"pct": 1}),
    ]


def test_a_deletion_is_a_change_once() -> None:
    app = App("changes")
    app.stream("in").dedupe_changes().to("out")
    driver = TestDriver(app)
    for value in (None, None, 1, 1, None):
        driver.send("in", "a", value)
    assert values(driver.read("out")) == [("a", None), ("a", 1), ("a", None)]


def test_values_are_compared_where_all_records_of_their_key_arrive() -> None:
    app = App("changes")
    app.stream("in").key_by("item").dedupe_changes("n").to("out")
    driver = TestDriver(app, partitions=3)
    for sender in "abcdef":
        driver.send("in", sender, {"item": "pen", "n": 1})
    assert len(driver.read("out")) == 1


def test_an_edge_is_sent_when_a_row_begins_to_match() -> None:
    app = App("edges")
    app.table("stock").edges(lambda item, row: row["on_hand"] < 3).to("low")
    driver = TestDriver(app)
    for on_hand in (5, 2, 1, 4, 2):
        driver.send("stock", "pen", {"on_hand": on_hand})
    driver.send("stock", "pen", None)
    driver.send("stock", "pen", {"on_hand": 0})
    assert [record.value["on_hand"] for record in driver.read("low")] == [2, 2, 0]


def test_lone_records_are_sent_as_kafka_streams_searches_for_them() -> None:
    """At equal times the right side's come first, and each record is a step of the search."""
    app = App("lone", key="string", value="string")
    within = JoinWindows(before_ms=400, after_ms=400, grace_ms=500)
    app.stream("a").outer_join(app.stream("b"), lambda one, other: f"{one}+{other}", within=within).to("out")
    driver = TestDriver(app)
    for topic, key, value, timestamp in (
        ("b", "k2", "95", 180),
        ("a", "k1", "55", 0),
        ("b", "k0", "98", 500),
        ("a", "k3", "14", 500),
        ("b", "k2", "69", 865),
        ("b", "k1", "71", 905),
        ("a", "k0", "44", 1467),
    ):
        driver.send(topic, key, value, timestamp)
    assert [(one.key, one.value, one.timestamp) for one in driver.read("out")] == [("k1", "55+None", 0)]


def test_a_stream_of_several_topics() -> None:
    app = App("several", value="string")
    app.stream(["a", "b"], ts=lambda key, value: len(value)).group_by_key().count(name="counts").to("out")
    driver = TestDriver(app)
    for topic in ("a", "b", "b"):
        driver.send(topic, "k", topic, timestamp=99)
    assert driver.table("counts") == {"k": 3}
    assert driver.read("out")[0].timestamp == 1
    with pytest.raises(TopologyError, match="the list has none"):
        app.stream([])
    with pytest.raises(TopologyError, match="of c, c would have the records of one of them twice"):
        app.stream(["c", "c"])


def test_a_function_is_called_with_each_record_and_nothing_follows() -> None:
    seen: list[tuple[str, str]] = []
    app = App("effects", value="string")
    with pytest.raises(TopologyError, match="effects does nothing with its records"):
        check(app)
    app.stream("a").foreach(lambda key, value: seen.append((key, value)))
    check(app)
    driver = TestDriver(app)
    driver.send("a", "k", "v")
    assert seen == [("k", "v")]


def test_an_app_may_keep_a_table_alone() -> None:
    app = App("kept", value="string")
    app.stream("a").group_by_key().count(name="counts")
    check(app)


def test_a_table_is_not_joined_with_a_global_table() -> None:
    app = App("global", value="string")
    with pytest.raises(TopologyError, match=r"table\.to_stream\(\)\.join"):
        app.table("a").join(app.global_table("g"), lambda one, other: one)  # type: ignore[arg-type]


def _words(app: App) -> Stream:
    return app.stream("lines").flat_map_values(lambda key, line: line.split())


SEVERAL: dict[str, tuple[Callable[[App], Stream], list[tuple[str, str, int]]]] = {
    "keys": (
        lambda app: _words(app).key_by(lambda key, word: f"{key}-{word}"),
        [("k-a", "a", 27), ("k-b", "b", 27), ("k-d", "d", 23), ("k-e", "e", 23)],
    ),
    "windows": (
        lambda app: (
            _words(app)
            .group_by_key()
            .tumbling(10)
            .aggregate(lambda: "", lambda key, word, so_far: so_far + word, name="windows")
            .to_stream()
            .key_by(lambda key, value: f"{key.key}@{key.window.start}")
        ),
        [("k@20", "a", 27), ("k@20", "ab", 27), ("k@20", "abd", 27), ("k@20", "abde", 27)],
    ),
    "sliding": (
        lambda app: (
            _words(app)
            .group_by_key()
            .sliding(2, grace_ms=50)
            .aggregate(lambda: "", lambda key, word, so_far: so_far + word, name="windows")
            .to_stream()
            .key_by(lambda key, value: f"{key.key}@{key.window.start}")
        ),
        [("k@25", "a", 27), ("k@25", "ab", 27), ("k@21", "d", 23), ("k@21", "de", 23)],
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_each_of_several_values_begins_with_the_key_and_time_of_its_record(name: str) -> None:
    """What follows in the same function may change the key, the time or the headers of the first of them."""
    build, expected = SEVERAL[name]
    app = App("several", value="string")
    build(app).to("out")
    driver = TestDriver(app)
    driver.send("lines", "k", "a b", 27, (("h", b"1"),))
    driver.send("lines", "k", "d e", 23, (("h", b"2"),))
    found = driver.read("out")
    assert [(one.key, one.value, one.timestamp) for one in found] == expected
    assert [dict(one.headers)["h"] for one in found] == [b"1", b"1", b"2", b"2"]
