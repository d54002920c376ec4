"""The windows of a timestamp, and rows by time, against their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.streams.record import Window
from felice.pipelines.streams.window_stores import NO_TIME, ByTime
from felice.pipelines.streams.windows import TimeWindows
from felice.streams import App, TestDriver, cogroup, hours

TIMES = st.integers(0, 30)


@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(0, 200), max_size=20))
def test_a_record_is_in_each_window_that_contains_its_timestamp(
    one: int, other: int, timestamps: list[int]
) -> None:
    size_ms, advance_ms = max(one, other), min(one, other)
    find = TimeWindows(size_ms, advance_ms).finder()
    for timestamp in timestamps:
        starts = range(0, timestamp + 1, advance_ms)
        containing = [Window(start, start + size_ms) for start in starts if timestamp < start + size_ms]
        assert list(find(timestamp)) == containing


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), TIMES, st.sampled_from("abc")),
            st.tuples(st.just("discard"), TIMES, st.sampled_from("abc")),
            st.tuples(st.just("take"), TIMES, st.just("")),
        )
    )
)
def test_rows_by_time_are_those_that_were_added_and_not_taken(steps: list[tuple[str, int, str]]) -> None:
    rows, expected = ByTime(), dict[int, set[str]]()
    for action, time, key in steps:
        if action == "add":
            rows.add(time, key)
            expected.setdefault(time, set()).add(key)
        elif action == "discard":
            rows.discard(time, key)
            expected.get(time, set()).discard(key)
        else:
            taken = {one: expected.pop(one) for one in sorted(expected) if one < time}
            assert dict(rows.take_before(time)) == taken
        assert list(rows) == sorted(expected)
        assert rows.oldest == min(expected, default=NO_TIME)
        assert rows.times(5, 20) == [one for one in sorted(expected) if 5 <= one < 20]
        assert all(rows.at(one) == sorted(keys) for one, keys in expected.items())


def test_a_late_row_of_one_cogrouped_stream_is_removed_by_the_time_of_the_other() -> None:
    """Each stream has its own clock, so a window may be open for one of them whose retention has passed."""
    app = App("cogrouped")
    first, second = (app.stream(topic).group_by_key() for topic in ("first", "second"))
    sums = [(one, lambda key, value, sum_: sum_ + value) for one in (first, second)]
    cogroup(sums, lambda: 0, windows=TimeWindows(10, 10), name="counts")
    driver = TestDriver(app)
    driver.send("first", "k", 1, 5)
    driver.send("second", "k", 1, 100)
    for timestamp in (6, 7, 8):
        driver.send("first", "k", 1, timestamp)
        assert list(driver.table("counts").values()) == [1]


@given(st.data())
def test_windows_with_an_offset_are_those_without_one_that_begin_later(data: st.DataObject) -> None:
    size_ms = data.draw(st.integers(1, 60))
    advance_ms = data.draw(st.integers(1, size_ms))
    offset_ms = data.draw(st.integers(0, advance_ms - 1))
    timestamp = data.draw(st.integers(0, 200))
    found = TimeWindows(size_ms, advance_ms, offset_ms=offset_ms).finder()(timestamp)
    assert found and all(start <= timestamp < end for start, end in found)
    later = timestamp + 1000 * size_ms * advance_ms
    plain = TimeWindows(size_ms, advance_ms).finder()(later - offset_ms)
    moved = TimeWindows(size_ms, advance_ms, offset_ms=offset_ms).finder()(later)
    assert moved == tuple(Window(start + offset_ms, end + offset_ms) for start, end in plain)


def test_an_offset_is_shorter_than_the_advance() -> None:
    for offset_ms in (-1, 10):
        with pytest.raises(ValueError, match="offset is .* from 0 to 9"):
            TimeWindows(20, 10, offset_ms=offset_ms)


def test_days_of_another_hour() -> None:
    app = App("days", value="string")
    days = app.stream("a").group_by_key().tumbling(hours(24), offset_ms=hours(23))
    days.count(name="days").to_stream().key_by(lambda key, count: str(key.window.start // hours(1))).to("out")
    driver = TestDriver(app)
    for hour in (1, 22, 23, 46, 47):
        driver.send("a", "k", "x", timestamp=hours(hour))
    assert [(one.key, one.value) for one in driver.read("out")] == [
        ("-1", 1),
        ("-1", 2),
        ("23", 1),
        ("23", 2),
        ("47", 1),
    ]
