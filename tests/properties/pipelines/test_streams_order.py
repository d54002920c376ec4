"""Records out of order, but within the grace period, give the results of ordered records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.streams import (
    App,
    JoinWindows,
    Record,
    SessionWindows,
    SlidingWindows,
    Stream,
    Table,
    TestDriver,
    TimeWindows,
    cogroup,
)

Row = tuple[str, str, str, int]
GRACE_MS = 20
BEGIN_MS = 1_000
WITHIN = JoinWindows(5, 10, GRACE_MS)


def empty() -> str:
    return ""


def add(key: str, value: str, so_far: str) -> str:
    """The values in no order."""
    return "".join(sorted(so_far + value))


def merge(key: str, one: str, other: str) -> str:
    return "".join(sorted(one + other))


def pair(one: str | None, other: str | None) -> str:
    return f"{one}|{other}"


def cogrouped(app: App, windows: Any, merger: Any = None) -> Table:
    grouped = [(app.stream(topic).group_by_key(), add) for topic in "ab"]
    return cogroup(grouped, empty, windows=windows, merger=merger, name="table")


def windowed(app: App, make: Callable[[Any], Any], emit: str, *of: Any) -> Table:
    windows = make(app.stream("a").merge(app.stream("b")).group_by_key()).emit(emit)
    table: Table = windows.aggregate(empty, add, *of, name="table")
    return table


KINDS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "tumbling": (lambda grouped: grouped.tumbling(30, grace_ms=GRACE_MS), ()),
    "hopping": (lambda grouped: grouped.hopping(30, every_ms=10, grace_ms=GRACE_MS), ()),
    "sliding": (lambda grouped: grouped.sliding(12, grace_ms=GRACE_MS), ()),
    "session": (lambda grouped: grouped.session(9, grace_ms=GRACE_MS), (merge,)),
}
TABLES: dict[str, Callable[[App], Table]] = {
    **{
        name: lambda app, of=of, make=make: windowed(app, make, "update", *of)
        for name, (make, of) in KINDS.items()
    },
    "cogrouped hopping": lambda app: cogrouped(app, TimeWindows(30, 10, GRACE_MS)),
    "cogrouped sliding": lambda app: cogrouped(app, SlidingWindows(12, GRACE_MS)),
    "cogrouped sessions": lambda app: cogrouped(app, SessionWindows(9, GRACE_MS), merge),
}
RESULTS: dict[str, Callable[[App], Stream]] = {
    **{
        f"{name}, final": lambda app, of=of, make=make: windowed(app, make, "final", *of).to_stream()
        for name, (make, of) in KINDS.items()
    },
    **{
        how: lambda app, how=how: getattr(app.stream("a"), how)(app.stream("b"), pair, within=WITHIN)
        for how in ("join", "left_join", "outer_join")
    },
}


def ordered_rows(dice: Random) -> list[Row]:
    now, rows = BEGIN_MS, []
    for number in range(40):
        now += dice.choice((0, 1, 3, 8, 25))
        rows.append((dice.choice("ab"), dice.choice(("k1", "k2")), chr(ord("A") + number), now))
    return rows


def late(dice: Random, rows: list[Row]) -> list[Row]:
    """The rows in another order: each comes when stream time is at most `GRACE_MS` after its timestamp."""
    return [row for _, row in sorted((row[3] + dice.uniform(0, GRACE_MS), row) for row in rows)]


def run(build: Callable[[App], Stream | Table], rows: list[Row]) -> list[Record]:
    app = App("ordered", value="string")
    build(app).to("out")
    driver = TestDriver(app)
    # The last records close all windows.
    for topic, key, value, timestamp in [*rows, *((topic, "end", "e", 10_000) for topic in "aab")]:
        driver.send(topic, key, value, timestamp)
    return [record for record in driver.read("out") if not is_of_end(record)]


def is_of_end(record: Record) -> bool:
    return "end" in (record.key, getattr(record.key, "key", None))


def last_values(records: list[Record]) -> dict[Any, Any]:
    return {record.key: record.value for record in records}


def present(table: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in table.items() if value is not None}


@pytest.mark.parametrize("name", TABLES)
@given(st.integers(0, 1 << 32))
@settings(max_examples=30, deadline=None)
def test_tables_of_late_records_are_those_of_ordered_ones(name: str, seed: int) -> None:
    dice = Random(seed)
    rows = ordered_rows(dice)
    ordered = present(last_values(run(TABLES[name], rows)))
    assert ordered
    assert present(last_values(run(TABLES[name], late(dice, rows)))) == ordered


@pytest.mark.parametrize("name", RESULTS)
@given(st.integers(0, 1 << 32))
@settings(max_examples=30, deadline=None)
def test_results_of_late_records_are_those_of_ordered_ones(name: str, seed: int) -> None:
    dice = Random(seed)
    rows = ordered_rows(dice)

    def results(given: list[Row]) -> Counter[tuple[Any, Any, int]]:
        return Counter((record.key, record.value, record.timestamp) for record in run(RESULTS[name], given))

    ordered, found = results(rows), results(late(dice, rows))
    assert ordered
    assert not ordered - found
    # As in Kafka Streams, a record that comes after the end of its window has a result without a partner at once,
    # although a partner may still come within the grace period.
    early = name in ("left_join", "outer_join")
    assert all(early and "None" in value for _, value, _ in found - ordered)
