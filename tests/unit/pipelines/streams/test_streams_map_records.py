"""Functions of streams that see whole records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from felice.streams import App, Record, StreamsError, TestDriver, TopologyError

GIVEN = Record("k", "v", 7, (("h", b"1"),))


def results_of(function: Callable[[Record], Any], **options: Any) -> list[Record]:
    app = App("records", value="string")
    app.stream("in").map_records(function, **options).to("out")
    driver = TestDriver(app)
    driver.send("in", *GIVEN)
    return driver.read("out")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda one: one, [GIVEN]),
        (lambda one: None, []),
        (lambda one: Record(f"{one.key}2", one.headers[0][0], one.timestamp + 1), [Record("k2", "h", 8)]),
        (
            lambda one: one._replace(headers=[("x", bytearray(b"2"))]),
            [GIVEN._replace(headers=(("x", b"2"),))],
        ),
        (lambda one: one._replace(headers=[]), [GIVEN._replace(headers=())]),
        (lambda one: one._replace(timestamp=0), [GIVEN._replace(timestamp=0)]),
    ],
)
def test_a_function_sees_and_sets_all_of_a_record(
    function: Callable[[Record], Any], expected: list[Record]
) -> None:
    assert results_of(function) == expected
    app = App("records", value="string")
    app.stream("in").flat_map_records(lambda one: [function(one), GIVEN] if function(one) else None).to("out")
    driver = TestDriver(app)
    driver.send("in", *GIVEN)
    assert driver.read("out") == [*expected, GIVEN][: 2 * len(expected)]


@pytest.mark.parametrize("time", [-1, None, 1 << 60, "7", 7.0, True])
def test_a_result_without_a_valid_time_is_dropped_and_counted(time: Any) -> None:
    app = App("records", value="string")
    stream = app.stream("in")
    stream.map_records(lambda one: one._replace(timestamp=time)).to("one")
    stream.flat_map_records(lambda one: [one._replace(timestamp=time), one]).to("many")
    driver = TestDriver(app)
    driver.send("in", *GIVEN)
    assert driver.read("one") == [] and driver.read("many") == [GIVEN]
    assert driver.dropped == {("map-records-1", "time"): 1, ("flat-map-records-3", "time"): 1}


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (
            lambda one: ("k", "v", 7, ()),
            r"function of map_records returned \('k', 'v', 7, \(\)\); it must return",
        ),
        (lambda one: one._replace(headers=((1, b""),)), "a record with the headers"),
        (lambda one: one._replace(headers=7), "not iterable"),
        (lambda one: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_what_is_no_record_is_an_error_of_the_record(function: Callable[[Record], Any], error: str) -> None:
    with pytest.raises(StreamsError, match=error) as found:
        results_of(function)
    assert "in step map-records-1" in str(found.value)


def test_a_function_that_keeps_keys_needs_no_repartition_and_may_not_change_them() -> None:
    app = App("records", value="string")
    stream = app.stream("in")
    kept = stream.map_records(lambda one: one, keeps_key=True)
    changed = stream.flat_map_records(lambda one: [one])
    assert (kept.is_rekeyed, changed.is_rekeyed) == (False, True)
    kept.group_by_key().count(name="kept")
    changed.group_by_key().count(name="changed")
    assert app.describe().count("changed-repartition") == 2 and "kept-repartition" not in app.describe()
    assert results_of(lambda one: one._replace(key="".join(["k"])), keeps_key=True) == [GIVEN]
    with pytest.raises(StreamsError, match="the key 'k' became 'j', although keeps_key is true"):
        results_of(lambda one: one._replace(key="j"), keeps_key=True)
    with pytest.raises(TopologyError, match="leave key out"):
        stream.map_records(lambda one: one, keeps_key=True, key="json")
