"""What an application may not do is an error; what Kafka Streams allows works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from felice.pipelines.streams.record import LATEST_MS
from felice.pipelines.streams.task import StreamsError
from felice.streams import (
    App,
    Context,
    DeadLetters,
    KeyValues,
    Processor,
    Record,
    TestDriver,
    WindowValues,
)
from felice.streams import TopologyError as RefusedTopologyError


class PutsWindows(Processor):
    def init(self, context: Context) -> None:
        self.windows = context.store("windows")

    def process(self, record: Record) -> None:
        self.windows.put(record.key, record.timestamp, record.value, record.timestamp)


def starts_kept(times: list[int]) -> list[int]:
    app = App("windows")
    app.stream("in").process(PutsWindows, stores=[WindowValues("windows", 10, 100)])
    driver = TestDriver(app)
    for time in times:
        driver.send("in", "k", time, time)
    return [key.window.start for key in driver.table("windows")]


def test_windows_of_a_processor_are_forgotten_after_their_retention() -> None:
    assert starts_kept([number * 1000 for number in range(50)]) == [49_000]
    assert starts_kept([0, 99]) == [0, 99]
    assert starts_kept([0, 100]) == [100]
    assert starts_kept([100, 0, 1]) == [1, 100]


@pytest.mark.parametrize(("size", "retention"), [(10, -1), (0, 10), (-5, 10), (10, 9)])
def test_windows_of_a_processor_have_a_size_and_a_retention(size: int, retention: int) -> None:
    app = App("windows")
    with pytest.raises(RefusedTopologyError, match=r"WindowValues\('windows'\)"):
        app.stream("in").process(PutsWindows, stores=[WindowValues("windows", size, retention)])


class ClearsWhileListing(Processor):
    def init(self, context: Context) -> None:
        self.rows = context.store("rows")
        context.schedule(100, self.clear)

    def process(self, record: Record) -> None:
        self.rows.put(record.key, record.value, record.timestamp)

    def clear(self, time: int) -> list[Record]:
        seen = []
        for key, row in self.rows.items():
            seen.append(Record(key, row.value, time))
            for other in "abc":
                self.rows.put(other, None)
            self.rows.put("z", 0)
        return seen


def test_rows_may_be_deleted_while_they_are_listed() -> None:
    app = App("lists")
    app.stream("in").process(ClearsWhileListing, stores=[KeyValues("rows")]).to("out")
    driver = TestDriver(app)
    for number, key in enumerate("abc"):
        driver.send("in", key, number, 1)
    driver.send("in", "d", 3, 100)
    # The timer is due at the first record, too. At the second time it removes "c" while it is at "b".
    assert [record.key for record in driver.read("out")] == ["a", "b", "d", "z"]
    assert driver.table("rows").keys() == {"d", "z"}


OPERATORS: list[Callable[[Any], Any]] = [
    lambda stream: stream,
    lambda stream: stream.group_by_key().count(),
    lambda stream: stream.group_by_key().tumbling(10).count(),
]


@pytest.mark.parametrize("build", OPERATORS)
@pytest.mark.parametrize("time", [-1, -(1 << 40), LATEST_MS + 1, 1 << 62])
def test_records_with_times_out_of_range_are_bad_records(build: Callable[[Any], Any], time: int) -> None:
    policies: dict[str, dict[str, Any]] = {
        "fail": {},
        "skip": {"on_bad_record": "skip"},
        "skip error": {"on_error": "skip"},
        "dead": {"on_bad_record": DeadLetters("dead")},
    }
    for name, policy in policies.items():
        app = App("times")
        build(app.stream("in", **policy)).to("out")
        driver = TestDriver(app)
        if name == "fail":
            with pytest.raises(StreamsError, match=f"has the timestamp {time}"):
                driver.send("in", "k", 1, time)
            continue
        driver.send("in", "k", 1, time)
        assert driver.read("out") == []
        assert driver.skipped == (name != "dead")
        if name == "dead":
            assert [record.key for record in driver.read("dead")] == [b"k"]


@pytest.mark.parametrize("time", [-5, 1.5, 10**19, True, None])
def test_a_processor_returns_times_in_range(time: Any) -> None:
    class Retimes(Processor):
        def process(self, record: Record) -> list[Record]:
            return [record._replace(timestamp=time)]

    for on_error in ("fail", "skip"):
        app = App("times")
        app.stream("in", on_error=on_error).process(Retimes).to("out")
        driver = TestDriver(app)
        if on_error == "fail":
            with pytest.raises(StreamsError, match="processor returned a record with the timestamp"):
                driver.send("in", "k", 1)
        else:
            driver.send("in", "k", 1)
            assert driver.skipped == 1
            assert driver.read("out") == []


def test_event_times_out_of_range_are_errors_of_their_records() -> None:
    app = App("times")
    app.stream("in", ts=lambda key, value: value, on_error="skip").to("out")
    driver = TestDriver(app)
    for value in (5, 10**19, -1, 2.5):
        driver.send("in", "k", value)
    assert driver.skipped == 3
    assert [record.timestamp for record in driver.read("out")] == [5]


@pytest.mark.parametrize("headers", [[("a", b"1")], [["a", bytearray(b"1")]], (("a", b"1"),)])
def test_headers_of_a_processor_are_those_that_it_returned(headers: Any) -> None:
    class AddsHeaders(Processor):
        def process(self, record: Record) -> list[Record]:
            return [record._replace(headers=headers)]

    app = App("headers")
    app.stream("in").process(AddsHeaders).to("out")
    driver = TestDriver(app)
    driver.send("in", "k", 1)
    assert driver.read("out")[0].headers == (("a", b"1"),)


@pytest.mark.parametrize("result", [7, ("k", 1), None])
def test_a_processor_returns_records(result: Any) -> None:
    class Odd(Processor):
        def process(self, record: Record) -> Any:
            return [result]

    app = App("odd")
    app.stream("in").process(Odd).to("out")
    with pytest.raises(StreamsError, match="it must return records"):
        TestDriver(app).send("in", "k", 1)


class SchedulesLate(Processor):
    def init(self, context: Context) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.schedule(10, lambda time: [])


def test_timers_are_scheduled_in_init_only() -> None:
    app = App("late")
    app.stream("in").process(SchedulesLate)
    with pytest.raises(StreamsError, match="schedule is possible only in the processor's init"):
        TestDriver(app).send("in", "k", 1)


def test_the_default_of_a_branch_has_a_name_of_its_own() -> None:
    with pytest.raises(RefusedTopologyError, match="'x' is the name"):
        App("branches").stream("in").branch({"x": lambda key, value: True}, default="x")


def test_a_versioned_table_cannot_be_suppressed() -> None:
    table = App("versions").table("in", history_ms=100)
    for one in (table, table.map_values(lambda key, value: value)):
        with pytest.raises(RefusedTopologyError, match="versioned"):
            one.suppress(10)
