"""Apps in the TestDriver: what Kafka Streams' test driver cannot be asked, or not without Java."""

from __future__ import annotations

import re
from typing import Any

import pytest

from felice.pipelines.streams.formats import JSON, Format
from felice.pipelines.streams.window_stores import SessionStore, WindowStore
from felice.streams import (
    App,
    DeadLetters,
    JoinWindows,
    Record,
    StreamsError,
    TestDriver,
    TopologyError,
    Window,
    Windowed,
    mins,
)


def changes(records: list[Record]) -> list[tuple[Any, Any]]:
    return [(record.key, record.value) for record in records]


def test_words_are_counted() -> None:
    app = App("words", value="string")
    words = app.stream("lines").flat_map_values(lambda key, line: line.lower().split())
    words.group_by(lambda key, word: word).count(name="counts").to("counts")
    driver = TestDriver(app)
    driver.send("lines", None, "a b A", 5)
    assert changes(driver.read("counts")) == [("a", 1), ("b", 1), ("a", 2)]
    assert driver.read("counts") == []
    assert driver.table("counts") == {"a": 2, "b": 1}


def test_an_aggregator_that_changes_its_argument_does_not_change_the_old_value() -> None:
    app = App("basket")

    def append(key: str, item: Any, basket: list[Any]) -> list[Any]:
        basket.append(item)
        return basket

    baskets = app.stream("items").group_by_key().aggregate(list, append)
    sizes = baskets.group_by(lambda key, basket: (str(len(basket)), basket))
    sizes.count(name="sizes")
    driver = TestDriver(app)
    for item in range(3):
        driver.send("items", "k", item)
    assert driver.table("sizes") == {"1": 0, "2": 0, "3": 1}


def test_a_field_can_be_named_in_place_of_a_function() -> None:
    app = App("by-item")
    app.stream("sales").group_by("item").count(name="sold")
    driver = TestDriver(app)
    driver.send("sales", None, {"item": "pen"})
    driver.send("sales", None, {"other": 1})
    driver.send("sales", None, None)
    assert driver.table("sold") == {"pen": 1}


def test_a_windowed_result_is_written_under_key_and_window() -> None:
    app = App("per-minute")
    app.stream("clicks").group_by_key().tumbling(mins(1)).count(name="clicks").to("out")
    driver = TestDriver(app)
    driver.send("clicks", "k", 1, 61_000)
    window = Window(60_000, 120_000)
    assert driver.read("out") == [Record(Windowed("k", window), 1, 61_000)]
    assert driver.table("clicks") == {Windowed("k", window): 1}


def test_windows_that_stream_time_leaves_behind_in_one_step_are_sent() -> None:
    """Kafka Streams forgets them, unless the store's retention is longer than the step."""
    app = App("final")
    app.stream("in").group_by_key().tumbling(10).emit("final").count().to("out")
    app2 = app.describe()
    driver = TestDriver(app)
    driver.send("in", "k", 1, 5)
    driver.send("in", "k", 1, 100_000_000)
    assert changes(driver.read("out")) == [(Windowed("k", Window(0, 10)), 1)]
    assert app.describe() == app2


def test_state_of_windows_and_sessions_is_bounded_by_retention() -> None:
    app = App("bounded")
    keyed = app.stream("in").group_by_key()
    keyed.tumbling(10, grace_ms=5).count(name="windows")
    keyed.session(5, grace_ms=5).count(name="sessions")
    driver = TestDriver(app)
    for timestamp in range(0, 10_000, 3):
        driver.send("in", "k", 1, timestamp)
        driver.send("in", "other", 1, timestamp + 1_000 * (timestamp % 2))
    assert len(driver.table("windows")) <= 6
    assert len(driver.table("sessions")) <= 6


@pytest.mark.parametrize("newest, value", [(19, "ab"), (20, "b")])
def test_a_session_is_not_found_any_more_once_its_retention_has_passed(newest: int, value: str) -> None:
    """Kafka's stores do not return a session that ended a retention before the newest one."""
    app = App("sessions", value="string")
    keyed = app.stream("in").group_by_key().session(8, grace_ms=12)
    keyed.aggregate(
        str, lambda key, one, so_far: so_far + one, lambda key, one, other: one + other, name="sessions"
    )
    driver = TestDriver(app)
    for key, one, timestamp in (("k", "a", 0), ("other", "x", newest), ("k", "b", 0)):
        driver.send("in", key, one, timestamp)
    assert driver.table("sessions")[Windowed("k", Window(0, 0))] == value


def test_a_session_that_grows_is_taken_from_the_group_of_its_old_value() -> None:
    app = App("sessions", value="string")
    sessions = app.stream("in").group_by_key().session(8).reduce(lambda one, other: one + other)
    by_length = sessions.group_by(lambda session, value: (str(len(value)), value))
    by_length.aggregate(
        list,
        lambda key, value, so_far: [*so_far, value],
        lambda key, value, so_far: [one for one in so_far if one != value],
        value="json",
        name="by-length",
    )
    driver = TestDriver(app)
    for value, timestamp in (("a", 0), ("b", 5)):
        driver.send("in", "k", value, timestamp)
    assert driver.table("by-length") == {"1": [], "2": ["ab"]}


def test_an_outer_join_sends_no_deletion_of_a_row_that_never_was() -> None:
    app = App("tables", value="string")
    app.table("t").outer_join(app.table("u"), lambda one, other: f"{one}|{other}").to("out")
    driver = TestDriver(app)
    driver.send("t", "k", None)
    assert driver.read("out") == []
    driver.send("t", "k", "a")
    driver.send("t", "k", None)
    assert changes(driver.read("out")) == [("k", "a|None"), ("k", None)]


def test_a_store_notes_no_expiry_before_rows_expire() -> None:
    """Else each batch without an expiry would write it."""
    store = SessionStore("sessions", JSON, JSON, retention_ms=20)
    store.put("k", Window(0, 5), 1)
    store.expire(25)
    assert store.take_changes() == [(("k", 0, 5), 1)]
    store.expire(26)
    assert store.take_changes() == [(None, 6)]


def test_closing_looks_only_at_the_windows_and_sessions_that_close(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def starts(store: WindowStore, *span: int) -> list[int]:
        found = starts_of(store, *span)
        looked_at.extend(found)
        return found

    def unpack(format_: Format, packed: Any) -> Any:
        looked_at.append(packed)
        return packed

    starts_of = WindowStore.starts
    monkeypatch.setattr(WindowStore, "starts", starts)
    monkeypatch.setattr(type(JSON), "unpack", unpack)
    app = App("open")
    for topic, windows in {
        "a": app.stream("a").group_by_key().sliding(10_000).emit("final"),
        "b": app.stream("b").group_by_key().session(10_000).emit("final"),
    }.items():
        windows.count().to(f"{topic}-closed")
    driver = TestDriver(app)
    for topic in "ab":
        looked_at.clear()
        for number in range(300):
            driver.send(topic, f"k{number}", "x", 20_000 + number)
        driver.send(topic, "k", "x", 50_000)
        assert len(driver.read(f"{topic}-closed")) == 300
        assert len(looked_at) < 2_000


@pytest.mark.parametrize("bad", [b"{", b"\xff"])
def test_a_record_that_cannot_be_read_stops_the_app_unless_told_otherwise(bad: bytes) -> None:
    app = App("strict")
    app.stream("in").to("out")
    with pytest.raises(StreamsError, match="a record of topic 'in' cannot be read"):
        TestDriver(app).send_bytes("in", b"k", bad)


def test_a_record_that_cannot_be_read_is_skipped_or_set_aside() -> None:
    app = App("lenient")
    app.stream("skipping", on_bad_record="skip").to("out")
    app.stream("keeping", on_bad_record=DeadLetters("dead")).to("out2")
    driver = TestDriver(app)
    driver.send_bytes("skipping", b"k", b"{", 1)
    driver.send("skipping", "k", 1, 2)
    driver.send_bytes("keeping", b"k", b"{", 3, (("h", b"x"),))
    assert driver.read("out") == [Record("k", 1, 2)]
    assert driver.read("dead") == [Record(b"k", b"{", 3, (("h", b"x"),))]
    assert driver.read("out2") == []


def test_a_record_that_cannot_be_written_is_skipped_or_set_aside() -> None:
    app = App("lenient")
    source = app.stream("in")
    source.to("numbers", value="long", on_bad_record="skip")
    source.to("kept", value="long", on_bad_record=DeadLetters("dead"))
    driver = TestDriver(app)
    driver.send("in", "k", "text", 1, (("h", b"x"),))
    driver.send("in", "k", 7, 2)
    assert changes(driver.read("numbers")) == changes(driver.read("kept")) == [("k", 7)]
    (letter,) = driver.read("dead")
    assert letter[:3] == (b"k", b"'text'", 1)
    assert dict(letter.headers) == {
        "h": b"x",
        "felice.error": b"'text' cannot be written as long: required argument is not an integer",
        "felice.topic": b"kept",
    }
    strict = App("strict")
    strict.stream("in").to("numbers", value="long")
    with pytest.raises(StreamsError, match="'text' cannot be written as long"):
        TestDriver(strict).send("in", "k", "text")


def test_an_error_of_a_function_names_the_record() -> None:
    app = App("faulty")
    app.stream("in").map_values(lambda key, value: value["x"]).to("out")
    with pytest.raises(
        StreamsError, match="topic 'in' with key 'k' and value {} cannot be processed: KeyError: 'x'"
    ):
        TestDriver(app).send("in", "k", {})


def halves(key: object, value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value // 2


def test_a_record_for_which_a_function_fails_is_dropped_by_that_operator_only() -> None:
    app = App("lenient", key="string")
    numbers = app.stream("in", on_error="skip")
    numbers.map_values(halves).to("halves")
    numbers.to("all")
    driver = TestDriver(app)
    for value in (4, 3, 6):
        driver.send("in", "k", value)
    assert changes(driver.read("halves")) == [("k", 2), ("k", 3)]
    assert changes(driver.read("all")) == [("k", 4), ("k", 3), ("k", 6)]
    assert driver.skipped == 1


def test_a_record_for_which_functions_fail_is_set_aside_once() -> None:
    app = App("keeping")
    numbers = app.stream("in", on_error=DeadLetters("dead"))
    numbers.map_values(halves).to("halves")
    numbers.filter(lambda key, value: halves(key, value) > 0).to("positive")
    driver = TestDriver(app)
    driver.send("in", "k", 3, 7, (("h", b"x"),))
    driver.send("in", "k", 4, 8)
    (letter,) = driver.read("dead")
    assert letter[:3] == (b"k", b"3", 7)
    about = {"h": b"x", "felice.error": b"ValueError: 3 is odd", "felice.topic": b"in"}
    assert dict(letter.headers) == about
    assert changes(driver.read("halves")) == [("k", 2)]
    assert changes(driver.read("positive")) == [("k", 4)]


def test_a_record_is_set_aside_with_an_error_that_is_no_unicode() -> None:
    def failing(key: str, value: str) -> None:
        raise ValueError(f"unknown name {value}")

    app = App("keeping")
    app.stream("in", on_error=DeadLetters("dead")).map_values(failing).to("out")
    driver = TestDriver(app)
    driver.send_bytes("in", b"k", b'"\\ud800"')
    (letter,) = driver.read("dead")
    assert dict(letter.headers)["felice.error"] == b"ValueError: unknown name \\ud800"


def test_a_session_stays_when_its_aggregator_fails() -> None:
    def total(key: str, value: int, so_far: list[int]) -> list[int]:
        return [*so_far, halves(key, value)]

    app = App("lenient")
    grouped = app.stream("in", on_error="skip").group_by_key().session(10)
    grouped.aggregate(list, total, lambda key, one, other: one + other, name="sessions")
    driver = TestDriver(app)
    for value, timestamp in ((2, 0), (3, 5), (4, 10)):
        driver.send("in", "k", value, timestamp)
    assert driver.table("sessions") == {Windowed("k", Window(0, 10)): [1, 2]}
    assert driver.skipped == 1


def test_the_answer_to_errors_holds_behind_a_repartition_of_one_source() -> None:
    def total(key: str, value: int, so_far: int) -> int:
        return so_far + halves(key, value)

    app = App("far")
    app.stream("in", on_error="skip").group_by("name").aggregate(
        lambda: 0, lambda key, value, so_far: total(key, value["n"], so_far), name="totals"
    )
    driver = TestDriver(app)
    for number in (4, 3, 6):
        driver.send("in", None, {"name": "a", "n": number})
    assert driver.table("totals") == {"a": 5}
    assert driver.skipped == 1

    mixed = App("mixed")
    merged = mixed.stream("in", on_error="skip").merge(mixed.stream("strict"))
    merged.group_by("name").aggregate(lambda: 0, lambda key, value, so_far: total(key, value["n"], so_far))
    with pytest.raises(StreamsError, match="ValueError: 3 is odd"):
        TestDriver(mixed).send("in", None, {"name": "a", "n": 3})


def test_what_cannot_be_written_to_a_repartition_is_answered_as_an_error_of_a_function() -> None:
    def build(answer: str | DeadLetters) -> TestDriver:
        app = App("far")
        renamed = app.stream("in", on_error=answer).map(lambda key, value: (value["name"], {value["n"]}))
        renamed.group_by_key().count(name="counts").to("out")
        return TestDriver(app)

    driver = build("skip")
    driver.send("in", None, {"name": "a", "n": 1})
    assert driver.skipped == 1 and driver.table("counts") == {}
    driver = build(DeadLetters("dead"))
    driver.send("in", None, {"name": "a", "n": 1})
    (letter,) = driver.read("dead")
    assert letter.value == b'{"name":"a","n":1}'
    assert dict(letter.headers)["felice.error"].startswith(b"FormatError: {1} cannot be written as json")
    with pytest.raises(StreamsError, match=r"FormatError: \{1\} cannot be written as json"):
        build("fail").send("in", None, {"name": "a", "n": 1})


def deep(key: object, value: object) -> object:
    for _ in range(100_000):
        value = [value]
    return value


class Unshown(Exception):
    def __str__(self) -> str:
        return repr(deep("", ""))


def unshown(key: object, value: object) -> object:
    raise Unshown


def test_a_value_that_cannot_be_shown_does_not_hide_the_error() -> None:
    app = App("deep")
    app.stream("written").map_values(deep).to("out")
    app.stream("bad").map_values(deep).to("out2", on_bad_record=DeadLetters("dead"))
    app.stream("failing").map_values(unshown).to("out3")
    app.stream("timed", ts=deep).to("out4")
    driver = TestDriver(app)
    not_shown = "<list that cannot be shown: RecursionError>"
    with pytest.raises(StreamsError, match=f"{not_shown} cannot be written as json"):
        driver.send("written", "k", 1)
    driver.send("bad", "k", 1)
    assert driver.read("dead")[0].value == not_shown.encode()
    with pytest.raises(StreamsError, match="value 1 cannot be processed: Unshown .its text cannot be shown"):
        driver.send("failing", "k", 1)
    with pytest.raises(StreamsError, match=f"found {not_shown}, expected milliseconds"):
        driver.send("timed", "k", 1)


def test_an_answer_to_errors_of_functions_is_none_to_other_errors() -> None:
    app = App("lenient")
    app.stream("in", on_error="skip").to("longs", value="long")
    with pytest.raises(StreamsError, match="'text' cannot be written as long"):
        TestDriver(app).send("in", "k", "text")
    two = App("two")
    two.stream("lenient", on_error="skip").merge(two.stream("strict")).map_values(halves).to("out")
    driver = TestDriver(two)
    driver.send("lenient", "k", 3)
    with pytest.raises(StreamsError, match="topic 'strict' with key 'k' and value 3 .*ValueError: 3 is odd"):
        driver.send("strict", "k", 3)


def test_a_record_without_event_time_is_answered_by_its_source() -> None:
    app = App("timed")
    app.stream("in", ts="at", on_error=DeadLetters("dead")).to("out")
    driver = TestDriver(app)
    driver.send("in", "k", {"at": 5})
    driver.send("in", "k", {"at": -1})
    driver.send("in", "k", {})
    assert [record.timestamp for record in driver.read("out")] == [5]
    assert [record.value for record in driver.read("dead")] == [b'{"at":-1}', b"{}"]


def test_headers_go_with_their_record() -> None:
    app = App("headers")
    app.stream("in").map_values(lambda key, value: value).group_by(lambda key, value: "k").count().to("out")
    driver = TestDriver(app)
    driver.send("in", None, 1, 0, (("h", b"x"),))
    assert driver.read("out")[0].headers == (("h", b"x"),)


def test_an_app_describes_its_parts() -> None:
    app = App("words", value="string")
    app.stream("lines").group_by(lambda key, value: value).count(name="counts").to("counts")
    assert app.describe().splitlines() == [
        "Sub-topology 0",
        "  source-0 (topic lines) -> key-by-1",
        "  key-by-1 -> keyed-2",
        "  keyed-2 -> sink-3",
        "  sink-3 (topic words-counts-repartition)",
        "Sub-topology 1",
        "  source-4 (topic words-counts-repartition) -> aggregate-5",
        "  aggregate-5 [stores counts] -> to-stream-6",
        "  to-stream-6 -> sink-7",
        "  sink-7 (topic counts)",
    ]


def test_an_app_is_drawn() -> None:
    app = App('dra"wn', value="string")
    app.stream("lines").group_by(lambda key, value: value).count(name="counts").to("counts")
    lines = app.dot().splitlines()
    assert lines[0] == "digraph {" and lines[-1] == "}"
    for line in (
        '    label="sub-topology 1";',
        '    "lines" -> "0 source-0";',
        '    "0 sink-3" -> "dra\\"wn-counts-repartition";',
        '    "1 aggregate-5" -> "1 store counts" [dir=none, style=dotted];',
        '    "1 store counts" [label="counts", shape=cylinder];',
        '  "counts" [label="counts", shape=ellipse];',
    ):
        assert line in lines
    assert sum(line.count("{") - line.count("}") for line in lines) == 0


def test_mistakes_are_told_when_the_app_is_built() -> None:
    app = App("wrong")
    numbers = app.stream("numbers", key="long")
    app.stream(re.compile("n.*"))
    with pytest.raises(TopologyError, match="'/n.\\*/' is read twice"):
        app.stream(re.compile("n.*"))
    with pytest.raises(
        TopologyError, match="'numbers' is read from 'latest' and from 'earliest'; all Streams"
    ):
        app.stream("numbers", start="latest")
    with pytest.raises(TopologyError, match="keys of format long, the other string"):
        numbers.join(app.table("words"), lambda left, right: left)
    app.stream("in").group_by_key().count(name="n")
    with pytest.raises(TopologyError, match="the store name 'n' is used twice"):
        app.table("other", name="n")
    with pytest.raises(ValueError, match="leave gaps"):
        app.stream("x").group_by_key().hopping(10, every_ms=20)
    with pytest.raises(ValueError, match="emit is 'late'"):
        app.stream("y").group_by_key().tumbling(10).emit("late")
    with pytest.raises(TopologyError, match="on_bad_record is 'ignore'"):
        app.stream("z", on_bad_record="ignore")
    with pytest.raises(TopologyError, match="on_error is 'ignore'"):
        app.stream("z", on_error="ignore")
    with pytest.raises(TopologyError, match="on_bad_record is 'ignore'"):
        numbers.to("out", on_bad_record="ignore")


def test_a_driver_refuses_topics_and_tables_that_the_app_does_not_have() -> None:
    app = App("small")
    app.stream("in").group_by("x").count(name="n")
    driver = TestDriver(app)
    for topic in ("other", "small-n-repartition"):
        with pytest.raises(TopologyError, match=f"small reads no topic '{topic}'"):
            driver.send(topic, "k", {})
        with pytest.raises(TopologyError, match=f"small reads no topic '{topic}'"):
            driver.send_bytes(topic, b"k", b"{}")
    with pytest.raises(TopologyError, match="no store 'm'"):
        driver.table("m")


def test_a_driver_refuses_to_read_a_topic_that_the_app_never_writes() -> None:
    app = App("checked")
    source = app.stream("in", on_bad_record=DeadLetters("letters"))
    source.to("out")
    driver = TestDriver(app)
    assert driver.read("out") == driver.read("letters") == []
    with pytest.raises(TopologyError, match="checked writes no topic 'typo'"):
        driver.read("typo")
    source.to(lambda key, value: str(value))
    assert TestDriver(app).read("any") == []


def test_what_a_suppressed_table_cannot_do_is_told() -> None:
    app = App("held")
    table = app.table("in")
    with pytest.raises(TopologyError, match="the table has no windows"):
        table.suppress_until_closed()
    with pytest.raises(TopologyError, match="a suppressed table cannot be looked up"):
        app.stream("s").join(table.suppress(10), lambda left, right: left)


def test_streams_are_joined_within_a_window_and_tables_without() -> None:
    app = App("joins")
    one, other, table = app.stream("a"), app.stream("b"), app.table("t")
    for wrong in (lambda: one.join(other, max), lambda: one.join(table, max, within=JoinWindows(1, 1))):
        with pytest.raises(TopologyError, match="a stream is joined `within` a window, a table without one"):
            wrong()


def test_state_of_joins_and_sliding_windows_is_bounded() -> None:
    app = App("bounded")
    one, other = app.stream("a"), app.stream("b")
    one.outer_join(other, lambda left, right: [left, right], within=JoinWindows(5, 5, 10)).to("out")
    one.group_by_key().sliding(10, grace_ms=10).count(name="sliding")
    driver = TestDriver(app)
    for timestamp in range(0, 5_000, 3):
        driver.send("a" if timestamp % 2 else "b", "k", timestamp, timestamp)
    kept = {
        name: len(store.rows)
        for tasks in driver._tasks
        for task in tasks
        for name, store in task.stores.items()
    }
    assert len(kept) == 5
    assert max(kept.values()) <= 30
