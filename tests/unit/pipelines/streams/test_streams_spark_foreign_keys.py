"""Joins by a foreign key in batches: they end in the same tables as in the test driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from felice.streams import App, Table, TestDriver
from streams.spark_workers import PLACES, Spark

SEEDS = int(os.environ.get("FELICE_FOREIGN_SEEDS", "10"))
"""10 seeds find the faults that this test was written for; `FELICE_FOREIGN_SEEDS=200` takes some minutes."""


def plus(one: str | None, other: str | None) -> str:
    return f"{one}+{other}"


def referred(key: str, value: str) -> str | None:
    return None if value == "9" else f"k{int(value) % 4}"


def _left_join_of_join(app: App) -> Table:
    joined = app.table("a").join(app.table("b"), plus, on=referred)
    return joined.left_join(app.table("c"), plus, on=lambda key, value: f"k{value[-1]}")


def _left_join_with_itself(app: App) -> Table:
    table = app.table("a")
    return table.left_join(table, plus, on=referred)


def _joins_with_one_table(app: App) -> Table:
    other = app.table("b")
    joined = app.table("a").join(other, plus, on=referred)
    return joined.left_join(other, plus, on=lambda key, value: f"k{value[0]}")


FOREIGN: dict[str, Callable[[App], Table]] = {
    "inner": lambda app: app.table("a").join(app.table("b"), plus, on=referred),
    "left": lambda app: app.table("a").left_join(app.table("b"), plus, on=referred),
    "chain": _left_join_of_join,
    "with itself": _left_join_with_itself,
    "twice with one table": _joins_with_one_table,
}


def rows_of_tables(dice: Random, count: int) -> list[tuple[str, str, str | None, int]]:
    """A quarter of them late, some of them deletions."""
    rows, now = [], 1_000
    for _ in range(count):
        now += dice.choice((0, 5, 20, 100))
        late = dice.choice((0, 0, 0, 60))
        value = None if dice.random() < 0.25 else str(dice.randrange(10))
        rows.append((dice.choice("aabc"), f"k{dice.randrange(5)}", value, now - late))
    return rows


@pytest.mark.parametrize("places", [1, PLACES])
@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_key_joins_end_in_the_table_that_record_by_record_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, places: int
) -> None:
    for seed in range(SEEDS):
        app = App("foreign", value="string")
        FOREIGN[name](app).to_stream().to("out")
        dice = Random(f"{name} {seed}")
        driver, spark = TestDriver(app), Spark(tmp_path / str(seed), monkeypatch, app, places)
        rows, table = rows_of_tables(dice, 60), dict[bytes, bytes]()
        # The tables that do not take part in a topology have no topic in it.
        topics = {formats.topic for part in app.topology.parts() for formats in part.sources}
        rows = [row for row in rows if row[0] in topics]
        for row in rows:
            driver.send(*row)
        for number, start in enumerate(range(0, len(rows), 12)):
            source = spark.source(rows[start : start + 12])
            for _, key, value, _ in spark.batch(number, source):
                table[key] = value
        expected = {one.key.encode(): one.value and one.value.encode() for one in driver.read("out")}
        assert {key: value for key, value in table.items() if value is not None} == {
            key: value for key, value in expected.items() if value is not None
        }, f"seed {seed}: {rows}"
