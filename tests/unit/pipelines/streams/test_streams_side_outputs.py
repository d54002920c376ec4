"""Records that functions send to a topic beside their results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import StreamsError, Task
from felice.streams import (
    App,
    Context,
    DeadLetters,
    Processor,
    Record,
    TestDriver,
    TopologyError,
)


def logging_app(**options: Any) -> App:
    """Numbers below 10 pass; of others, the log gets a record."""
    app = App("logs", value="long")
    log = app.side_output("log", value="string")

    def small(key: str, value: int) -> bool:
        if value >= 10:
            log(key, f"{value} is large", headers=[("why", b"large")])
        return value < 10

    app.stream("in", **options).filter(small).to("out")
    return app


def test_a_side_output_has_the_time_of_the_record_and_no_place_in_the_graph() -> None:
    app = logging_app()
    assert app.describe() == "\n".join(
        [
            "Sub-topology 0",
            "  source-0 (topic in) -> filter-1",
            "  filter-1 -> sink-2",
            "  sink-2 (topic out)",
        ]
    )
    driver = TestDriver(app)
    for time, value in enumerate((5, 12, 7)):
        driver.send("in", "k", value, time)
    assert [one.value for one in driver.read("out")] == [5, 7]
    assert driver.read("log") == [Record("k", "12 is large", 1, (("why", b"large"),))]


def test_side_outputs_of_a_group_stand_between_the_results() -> None:
    """Also where a row of steps fills the columns of topics and times at its end."""
    app = logging_app()
    values = [value.to_bytes(8) for value in (20, 1, 30, 40, 2)]
    task = Task(app.topology, app.topology.parts()[0])
    sent = task.process_group("in", Group([b"k"] * 5, values, list(range(5)), [()] * 5))
    assert sent.topics == ["log", "out", "log", "log", "out"]
    assert (sent.timestamps, sent.numbers) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    assert sent.values == [b"20 is large", values[1], b"30 is large", b"40 is large", values[4]]
    assert sent.headers == [(("why", b"large"),) if topic == "log" else () for topic in sent.topics]


def test_a_group_whose_records_send_one_result_each_numbers_all_that_it_sends() -> None:
    app = App("logs", value="string")
    log = app.side_output("log")
    app.stream("in").peek(lambda key, value: log(key, value) if value == "x" else None).to("out")
    task = Task(app.topology, app.topology.parts()[0])
    sent = task.process_group("in", Group([b"k"] * 3, [b"y", b"x", b"y"], [4, 5, 6], [()] * 3))
    assert list(zip(sent.topics, sent.values, sent.timestamps, sent.numbers, strict=True)) == [
        ("out", b"y", 4, 0),
        ("log", b"x", 5, 1),
        ("out", b"x", 5, 1),
        ("out", b"y", 6, 2),
    ]


def test_a_group_that_sends_nothing_else_numbers_its_side_outputs() -> None:
    app = logging_app()
    task = Task(app.topology, app.topology.parts()[0])
    sent = task.process_group("in", Group([b"k"] * 2, [(30).to_bytes(8)] * 2, [4, 5], [()] * 2))
    assert (sent.topics, sent.numbers) == (["log", "log"], [0, 1])


def test_late_letters_of_a_group_keep_their_parts() -> None:
    app = App("late", value="string")
    windows = app.stream("in").group_by_key().tumbling(10, on_late=DeadLetters("letters"))
    windows.count(name="found").to_stream().key_by(lambda key, value: key.key).to("out")
    parts = app.topology.parts()
    task = Task(app.topology, parts[0])
    sent = task.process_group("in", Group([b"a"] * 4, [b"x"] * 4, [5, 100, 7, 101], [()] * 4))
    assert list(zip(sent.topics, sent.keys, sent.values, sent.timestamps, strict=True)) == [
        ("out", b"a", b"1", 5),
        ("out", b"a", b"1", 100),
        ("letters", b"a", b"x", 7),
        ("out", b"a", b"2", 101),
    ]
    assert [bool(one) for one in sent.headers] == [False, False, True, False]


class Reporting(Processor):
    """Reports records and timers. A timer has no record whose time the report could take."""

    def __init__(self, report: Any, times: tuple[int, ...]) -> None:
        self._report, self._times = report, times

    def init(self, context: Context) -> None:
        context.schedule(10, self._on_time)

    def process(self, record: Record) -> Iterable[Record]:
        self._report("record", record.value)
        return [record]

    def _on_time(self, time: int) -> None:
        self._report("timer", str(time), *self._times)


def test_a_timer_must_give_a_time() -> None:
    for times, found in (((3,), [("record", 0), ("timer", 3)]), ((), None)):
        app = App("reports", value="string")
        report = app.side_output("report")
        app.stream("in").process(lambda report=report, times=times: Reporting(report, times)).to("out")
        driver = TestDriver(app)
        if found is None:
            with pytest.raises(StreamsError, match="'report' got no timestamp"):
                driver.send("in", "k", "v", 0)
        else:
            driver.send("in", "k", "v", 0)
            assert [(one.key, one.timestamp) for one in driver.read("report")] == found


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("k", 7), "7 cannot be written as string"),
        (("k", "v", -1), "got the timestamp -1"),
        (("k", "v", True), "got the timestamp true|got the timestamp True"),
        (("k", "v", 1, ((7, b""),)), "header's name 7 is not text"),
    ],
)
def test_what_a_side_output_cannot_send_is_an_error_of_the_record(given: tuple[Any, ...], error: str) -> None:
    for on_error in ("fail", "skip"):
        app = App("wrong", value="string")
        log = app.side_output("log")
        app.stream("in", on_error=on_error).peek(lambda key, value, log=log: log(*given)).to("out")
        driver = TestDriver(app)
        if on_error == "fail":
            with pytest.raises(StreamsError, match=error):
                driver.send("in", "k", "v")
        else:
            driver.send("in", "k", "v")
            assert (driver.skipped, driver.read("log")) == (1, [])


def test_a_side_output_is_refused_where_no_record_is_processed() -> None:
    app = logging_app()
    log = app.side_output("more")
    with pytest.raises(TopologyError, match="no record is processed in this thread"):
        log("k", 1)
    TestDriver(app).send("in", "k", 1)
    with pytest.raises(TopologyError, match="no record is processed in this thread"):
        log("k", 1)


def test_a_driver_inside_a_function_keeps_the_side_outputs_apart() -> None:
    app = App("outer", value="string")
    log = app.side_output("log")

    def nested(key: str, value: str) -> str:
        driver = TestDriver(logging_app())
        driver.send("in", "k", 12)
        log(key, driver.read("log")[0].value)
        return value

    app.stream("in").map_values(nested).to("out")
    driver = TestDriver(app)
    driver.send("in", "k", "v")
    assert [one.value for one in driver.read("log")] == ["12 is large"]
