"""Stores on disk give the results of stores in memory, also when their process ends and another one continues."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("rocksdict")

from felice.pipelines.streams.formats import BYTES, FORMATS
from felice.pipelines.streams.join_stores import RecentRecords
from felice.pipelines.streams.on_spark import large_state
from felice.pipelines.streams.on_spark.handover import hold
from felice.pipelines.streams.on_spark.large_state import LargeState
from felice.pipelines.streams.on_spark.state import Version
from felice.pipelines.streams.stores import KeyValueStore, Store, in_order
from felice.pipelines.streams.task import Task, TopicRecord
from felice.pipelines.streams.window_stores import WindowStore
from felice.streams import App
from streams.comparison import random_rows, topics_of
from streams.tasks_in_memory import written
from streams.topologies import TOPOLOGIES


@pytest.fixture(autouse=True)
def few_rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_state, "MOST_CHANGED", 3)
    monkeypatch.setattr(large_state, "MOST_HELD", 4)


def opened(directory: Path) -> LargeState:
    return LargeState(hold(directory, b"", lambda request: False))


class Process:
    """The tasks of an App whose stores are on disk, with those of the same App in memory beside them."""

    def __init__(self, name: str, directory: Path) -> None:
        self._app = App("large", key="string", value="string")
        TOPOLOGIES[name](self._app)
        self._parts, self._directory = self._app.topology.parts(), directory
        self.expected = [Task(self._app.topology, part) for part in self._parts]
        self.tasks: list[Task] = []
        self.large: list[LargeState] = []
        self._copies = [self._app.topology.made_stores(part) for part in self._parts]
        """Stores that get what changes on disk."""
        self.batch = 0
        self.begin()

    def begin(self) -> None:
        """Begin with what is on disk."""
        self.large = [opened(self._directory / str(part.number)) for part in self._parts]
        self.tasks = []
        for large, part in zip(self.large, self._parts, strict=True):
            stores = self._app.topology.made_stores(part)
            assert large.has(stores) or self.batch == 0
            large.keep(stores)
            self.tasks.append(Task(self._app.topology, part, stores=stores))

    def end_batch(self, *, ends: bool) -> None:
        """End a batch; maybe the process ends, too."""
        self.batch += 1
        for large, task, expected, copies in zip(
            self.large, self.tasks, self.expected, self._copies, strict=True
        ):
            for name, store in task.stores.items():
                copies[name].load(store.take_changes())
                assert rows_of(copies[name]) == rows_of(expected.stores[name]), name
            version = Version(self.batch, 1)
            if ends:
                large.write(version, task.stores)
                large.close()
            else:
                large.reach(version, task.stores)
        if ends:
            self.begin()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for large in self.large:
            large.close()

    def same_rows(self) -> None:
        """Check all rows."""
        for task, expected in zip(self.tasks, self.expected, strict=True):
            for name, store in task.stores.items():
                assert len(store.rows) == len(expected.stores[name].rows), name
                assert rows_of(store) == rows_of(expected.stores[name]), name


def rows_of(store: Store) -> Any:
    """The rows. Records that were loaded may have other numbers, in the same order."""
    if isinstance(store, RecentRecords):
        return [(key[:2], row) for key, row in sorted(store.rows.items())]
    return dict(store.rows.items())


def run(tasks: list[Task], row: Any) -> list[TopicRecord]:
    return written(lambda record: tasks, row)


@pytest.mark.parametrize("name", TOPOLOGIES)
@given(st.integers(0, 1 << 32), st.dictionaries(st.integers(0, 40), st.booleans(), max_size=6))
@settings(max_examples=3, deadline=None)
def test_results_and_changes_are_those_of_stores_in_memory(
    name: str, seed: int, ends: dict[int, bool]
) -> None:
    with TemporaryDirectory() as directory:
        process = Process(name, Path(directory))
        with process:
            for number, row in enumerate(random_rows(Random(seed), topics_of(name), 40)):
                if number in ends:
                    process.end_batch(ends=ends[number])
                assert run(process.tasks, row) == run(process.expected, row)
            process.same_rows()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_rows_that_are_read_twice_give_the_same_results(name: str) -> None:
    """A base in pieces is read with deltas that have the same rows."""
    app = App("twice", key="string", value="string")
    TOPOLOGIES[name](app)
    parts, rows = app.topology.parts(), random_rows(Random(7), topics_of(name), 60)
    tasks = [Task(app.topology, part) for part in parts]
    for row in rows[:40]:
        run(tasks, row)
    again = [Task(app.topology, part) for part in parts]
    for task, copy in zip(tasks, again, strict=True):
        for store_name, store in task.stores.items():
            for _ in range(2):
                copy.stores[store_name].load(store.rows.items())
    for row in rows[40:]:
        assert run(again, row) == run(tasks, row)


LONG = FORMATS["long"]
KEYS = st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"a\0", b"a"])


@given(
    st.lists(st.tuples(st.sampled_from(["put", "delete", "write"]), KEYS)),
    KEYS,
    st.none() | KEYS,
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_ranges_are_those_of_rows_in_memory(
    steps: list[tuple[str, bytes]], first: bytes, end: bytes | None, reverse: bool
) -> None:
    in_memory, on_disk = (KeyValueStore("rows", BYTES, LONG) for _ in range(2))
    others = [KeyValueStore(name, BYTES, LONG) for name in ("before", "zz")]
    with TemporaryDirectory() as directory:
        large = opened(Path(directory))
        stores: dict[str, Store] = {one.name: one for one in (on_disk, *others)}
        large.keep(stores)
        for other in others:  # Their keys must not be seen.
            other.put(b"", 1)
            other.put(b"\xff", 1)
        for number, (step, key) in enumerate(steps):
            if step == "write":
                large.write(Version(number, 1), stores)
            for store in (in_memory, on_disk):
                if step != "write":
                    store.put(key, number if step == "put" else None, number)
        assert len(on_disk.rows) == len(in_memory.rows)
        assert list(in_order(on_disk.rows, first, end, reverse=reverse)) == list(
            in_order(in_memory.rows, first, end, reverse=reverse)
        )
        assert list(on_disk.prefix(first)) == list(in_memory.prefix(first))
        assert list(on_disk.range(first, end)) == list(in_memory.range(first, end))
        large.close()


def test_rows_that_are_looked_up_during_an_iteration_are_in_it(tmp_path: Path) -> None:
    store, large = KeyValueStore("rows", BYTES, LONG), opened(tmp_path)
    large.keep({"rows": store})
    for number in range(6):
        store.put(bytes([number]), number)
    large.write(Version(0, 1), {"rows": store})
    assert store.rows.sizes == (0, 0), "all rows are on disk alone"  # type: ignore[attr-defined]
    rows = store.items()
    first = next(rows)
    assert store.get(bytes([3])) is not None
    store.delete(bytes([4]))
    assert [key for key, _ in [first, *rows]] == [b"\0", b"\1", b"\2", b"\3", b"\5"]
    large.close()


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "put", "delete", "expire", "write"]), KEYS, st.integers(0, 60))
    ),
    st.integers(0, 60),
    st.integers(0, 60),
)
@settings(max_examples=60, deadline=None)
def test_windows_are_those_of_rows_in_memory(
    steps: list[tuple[str, bytes, int]], first: int, last: int
) -> None:
    in_memory, on_disk = (WindowStore("rows", BYTES, LONG, 10, 20) for _ in range(2))
    with TemporaryDirectory() as directory:
        large = opened(Path(directory))
        stores: dict[str, Store] = {"rows": on_disk}
        large.keep(stores)
        floor = 0
        for number, (step, key, time) in enumerate(steps):
            if step == "write":
                large.write(Version(number, 1), stores)
            floor = max(floor, time - 20 + 1) if step == "expire" else floor
            for store in (in_memory, on_disk):
                if step == "expire":
                    store.expire(time)
                elif step != "write" and time >= floor:
                    store.put(key, time, number if step == "put" else None, number)
        assert len(on_disk.rows) == len(in_memory.rows)
        assert list(on_disk.items()) == list(in_memory.items())
        for key in {key for _, key, _ in steps}:
            assert list(on_disk.windows(key, first, last)) == list(in_memory.windows(key, first, last))
            assert on_disk.fetch(key, first) == in_memory.fetch(key, first)
        large.close()
