"""State that is saved and loaded gives the same results; so do more partitions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.streams.task import Task, TopicRecord
from felice.streams import App, TestDriver
from peers.streams_oracle import Row
from streams.comparison import random_rows, topics_of
from streams.tasks_in_memory import written
from streams.topologies import TOPOLOGIES


def app_of(name: str) -> App:
    app = App("saved", key="string", value="string")
    TOPOLOGIES[name](app)
    return app


def run(name: str, rows: list[Row], saves: set[int]) -> list[TopicRecord]:
    """Each part's tasks in turn; before the rows in `saves`, every task is replaced by one that loads its state."""
    app = app_of(name)
    parts = app.topology.parts()
    tasks = [Task(app.topology, part) for part in parts]
    saved: list[dict[str, list[Any]]] = [{} for _ in parts]
    out = []
    for number, row in enumerate(rows):
        if number in saves:
            for place, part in enumerate(parts):
                for store in tasks[place].stores.values():
                    saved[place].setdefault(store.name, []).extend(store.take_changes())
                tasks[place] = Task(app.topology, part)
                for store in tasks[place].stores.values():
                    store.load(saved[place][store.name])
        out += written(lambda record: tasks, row)
    return out


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(st.integers(0, 1 << 32), st.sets(st.integers(0, 40)))
@settings(max_examples=8, deadline=None)
def test_results_are_the_same_when_state_is_saved_and_loaded(name: str, seed: int, saves: set[int]) -> None:
    rows = random_rows(Random(seed), topics_of(name), 40)
    assert run(name, rows, saves) == run(name, rows, set())


# Not windows and joins of streams: each partition has its own stream time, so other records are late.
WITHOUT_TIME = [
    name
    for name in TOPOLOGIES
    if name.startswith(("count", "table", "join_t", "outer_join_t", "outer_of", "aggregate"))
]


@pytest.mark.parametrize("partitions", [2, 8])
@pytest.mark.parametrize("name", WITHOUT_TIME)
def test_tables_are_the_same_with_more_partitions(name: str, partitions: int) -> None:
    for seed in range(5):
        rows = random_rows(Random(seed), topics_of(name), 60)
        results = []
        for count in (1, partitions):
            driver = TestDriver(app_of(name), count)
            for row in rows:
                driver.send(*row)
            results.append({record.key: record.value for record in driver.read("out")})
        assert results[0] == results[1]
