"""Functions that raise, change what they are given, or return it again have the same effects in groups of any size.

They also have these effects if the task is replaced by one that loads its state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.pipelines.streams.record import Group, Record
from felice.pipelines.streams.task import StreamsError, Task, TopicRecord
from felice.streams import (
    App,
    DeadLetters,
    JoinWindows,
    KeyValues,
    Processor,
    SlidingWindows,
    TestDriver,
    cogroup,
)

ERRORS = (
    StopIteration,
    GeneratorExit,
    RuntimeError,
    KeyError,
    StopAsyncIteration,
    SystemExit,
    RecursionError,
)
Misbehaviour = Callable[..., Any]


def raising(error: type[BaseException]) -> Misbehaviour:
    def function(*given: Any) -> Any:
        for one in given:
            if isinstance(one, dict):
                if one["n"] % 5 == 3:
                    raise error("bad")
                return one
        return {"n": 0}

    return function


def changing(*given: Any) -> Any:
    """Changes each dict that it gets, and returns the last one."""
    made: Any = {"n": 0}
    for one in given:
        if isinstance(one, dict):
            one["n"] = one.get("n", 0) + 10
            one.setdefault("seen", []).append(len(one))
            made = one
    return made


def returning_later_changed() -> Misbehaviour:
    """Returns one object each time, and changes it before."""
    kept: dict[str, Any] = {"n": 0}

    def function(*given: Any) -> Any:
        numbers = [one["n"] for one in given if isinstance(one, dict)]
        kept["n"] = max(numbers, default=0)
        return kept

    return function


def wrong_type(*given: Any) -> Any:
    numbers = [one["n"] for one in given if isinstance(one, dict)]
    return ... if numbers and numbers[-1] % 5 == 3 else {"n": 1}


MISBEHAVIOURS: dict[str, Callable[[], Misbehaviour]] = {
    **{f"raises {error.__name__}": lambda error=error: raising(error) for error in ERRORS},
    "changes": lambda: changing,
    "the same object": returning_later_changed,
    "wrong type": lambda: wrong_type,
}


class Calls(Processor):
    """Keeps what the function returned, and returns it twice, by a generator that may fail in between."""

    def __init__(self, function: Misbehaviour) -> None:
        self._function = function

    def init(self, context: Any) -> None:
        self._store = context.store("kept")
        context.schedule(7, lambda time: [Record("time", {"n": time}, time)])

    def process(self, record: Record) -> Any:
        yield record
        found = self._function(record.key, record.value)
        self._store.put(record.key, found, record.timestamp)
        yield record._replace(value=found)


def table_of_groups(app: App, f: Misbehaviour) -> Any:
    grouped = app.table("a", on_error=ON_ERROR[0]).group_by(lambda key, value: (f"g{value['n'] % 2}", value))
    return grouped.aggregate(lambda: {"n": 0}, lambda k, v, agg: f(v, agg), lambda k, v, agg: f(v, agg))


ON_ERROR: list[Any] = ["fail"]


def stream(app: App, topic: str = "a") -> Any:
    return app.stream(topic, on_error=ON_ERROR[0])


def table(app: App, topic: str = "b") -> Any:
    return app.table(topic, on_error=ON_ERROR[0])


def add(f: Misbehaviour) -> Callable[[Any, Any, Any], Any]:
    return lambda key, value, so_far: f(value, so_far)


def empty() -> dict[str, int]:
    return {"n": 0}


def twice(f: Misbehaviour) -> Callable[[Any, Any], Any]:
    def generate(key: Any, value: Any) -> Any:
        yield value
        yield f(key, value)

    return generate


WITHIN = JoinWindows(10, 10, 5)
OPERATORS: dict[str, Callable[[App, Misbehaviour], Any]] = {
    "filter": lambda app, f: stream(app).filter(lambda k, v: f(k, v)["n"] % 2),
    "map_values": lambda app, f: stream(app).map_values(f),
    "map": lambda app, f: stream(app).map(lambda k, v: (k, f(k, v))),
    "map to no pair": lambda app, f: stream(app).map(lambda k, v: f(k, v)),
    "flat_map": lambda app, f: stream(app).flat_map(lambda k, v: ((k, one) for one in (f(k, v), f(k, v)))),
    "flat_map_values": lambda app, f: stream(app).flat_map_values(twice(f)),
    "one value, then changed": lambda app, f: (
        stream(app).flat_map(lambda k, v: [("x", v), ("y", v)]).map_values(f)
    ),
    "map_records": lambda app, f: stream(app).map_records(
        lambda one: one._replace(
            timestamp=one.timestamp - 9, value=f(one.key, one.value), headers=[("h", b"x")]
        )
    ),
    "flat_map_records": lambda app, f: stream(app).flat_map_records(
        lambda one: (one._replace(timestamp=time, value=f(one.key, one.value)) for time in (5, None, 7)),
        keeps_key=True,
    ),
    "key_by": lambda app, f: stream(app).key_by(lambda k, v: f(k, v), key="json"),
    "peek": lambda app, f: stream(app).peek(f).map_values(lambda k, v: v),
    "branch": lambda app, f: (
        stream(app).branch({"x": lambda k, v: f(k, v)["n"] % 2}, default="y")["y"].map_values(f)
    ),
    "merge": lambda app, f: stream(app).map_values(f).merge(stream(app, "b").map_values(f)),
    "topic": lambda app, f: stream(app).to(lambda k, v: f"out-{f(k, v)['n'] % 2}"),
    "two outputs": lambda app, f: _two(stream(app), f),
    "aggregate": lambda app, f: stream(app).group_by_key().aggregate(empty, add(f)),
    "initializer": lambda app, f: stream(app).group_by_key().aggregate(lambda: f({"n": 4}), add(changing)),
    "reduce": lambda app, f: stream(app).group_by_key().reduce(f),
    "group_by": lambda app, f: stream(app).group_by(lambda k, v: f(k, v)["n"] % 3, key="json").count(),
    "cogroup": lambda app, f: cogroup(
        [(stream(app, one).group_by_key(), add(f)) for one in "ab"], empty, windows=SlidingWindows(12, 20)
    ),
    "hopping": lambda app, f: (
        stream(app).group_by_key().hopping(30, every_ms=10, grace_ms=20).aggregate(empty, add(f))
    ),
    "tumbling, final": lambda app, f: (
        stream(app).group_by_key().tumbling(30, grace_ms=0).emit("final").aggregate(empty, add(f))
    ),
    "sliding": lambda app, f: stream(app).group_by_key().sliding(12, grace_ms=20).aggregate(empty, add(f)),
    "session": lambda app, f: (
        stream(app).group_by_key().session(9, grace_ms=20).aggregate(empty, add(f), lambda k, a, b: f(a, b))
    ),
    "suppress": lambda app, f: stream(app).group_by_key().aggregate(empty, add(f)).suppress(10),
    "table aggregate": table_of_groups,
    "table map": lambda app, f: table(app).map_values(f).filter(lambda k, v: f(k, v)["n"] % 2),
    "edges": lambda app, f: table(app).edges(lambda k, v: f(k, v)["n"] % 2),
    "table join": lambda app, f: table(app).join(table(app, "a"), f),
    "foreign key": lambda app, f: table(app).join(table(app, "a"), f, on=lambda k, v: f"k{v['n'] % 3}"),
    "stream and table": lambda app, f: stream(app).left_join(table(app), f),
    "global table": lambda app, f: stream(app).join(app.global_table("b"), f, on=lambda k, v: k),
    "join": lambda app, f: stream(app).outer_join(stream(app, "b"), f, within=WITHIN),
    "join at once": lambda app, f: stream(app).outer_join(
        stream(app, "b"), f, within=JoinWindows(10, 10, 5, waits=False)
    ),
    "dedupe_changes": lambda app, f: stream(app).dedupe_changes(lambda k, v: f(k, v)["n"] % 2),
    "dedupe": lambda app, f: stream(app).dedupe(lambda k, v: f"{f(k, v)['n'] % 4}", within_ms=9),
    "processor": lambda app, f: stream(app).process(lambda: Calls(f), stores=[KeyValues("kept")]),
}


def _two(source: Any, f: Misbehaviour) -> Any:
    source.map_values(f).to("other")
    return source.map_values(lambda k, v: v)


def app_of(operator: str, misbehaviour: str, on_error: Any) -> App:
    ON_ERROR[0] = on_error
    app = App("odd")
    made = OPERATORS[operator](app, MISBEHAVIOURS[misbehaviour]())
    if made is not None:
        made.to("out", key="json" if operator in ("key_by", "group_by", "map to no pair") else None)
    return app


def rows_of(dice: Random) -> list[tuple[str, Record]]:
    found, now = [], 0
    for _ in range(40):
        now += dice.choice((0, 1, 4, 9))
        value = json.dumps({"n": dice.randrange(8)}).encode()
        late = max(0, now - dice.choice((0, 0, 15)))
        found.append((dice.choice("aaab"), Record(f"k{dice.randrange(3)}".encode(), value, late)))
    return found


Outcome = tuple[list[TopicRecord], str | None, int]


def run(app: App, rows: list[tuple[str, Record]], sizes: Random | None, saves: bool = False) -> Outcome:
    """What the tasks send, until an error; the error and the skipped records. With `sizes`, in groups."""
    sent: list[TopicRecord] = []
    skipped = 0
    waiting = rows
    for part in app.topology.parts():
        task, later = Task(app.topology, part), list[tuple[str, Record]]()
        mine = {one.topic for one in part.sources}
        left = [row for row in waiting if row[0] in mine]
        saved: dict[str, list[Any]] = {}
        while left:
            topic, size = left[0][0], 1 if sizes is None else sizes.randrange(1, 20)
            run_of_topic = 1
            while run_of_topic < min(size, len(left)) and left[run_of_topic][0] == topic:
                run_of_topic += 1
            group = Group.of(record for _, record in left[:run_of_topic])
            try:
                made = list(map(TopicRecord, *task.process_group(topic, group).columns()))
            except StreamsError as error:
                at = len([row for row in waiting if row[0] in mine]) - len(left) + error.number
                return sent, f"{at} {error}", skipped + task.skipped
            sent += made
            later += [(one.topic, Record(*one[1:])) for one in made]
            left = left[run_of_topic:]
            if saves:
                skipped += task.skipped
                for name, store in task.stores.items():
                    saved.setdefault(name, []).extend(store.take_changes())
                task = Task(app.topology, part)
                for name, store in task.stores.items():
                    store.load(saved[name])
        skipped += task.skipped
        waiting = waiting + later
    return sent, None, skipped


@pytest.mark.parametrize("operator", OPERATORS)
@given(
    st.integers(0, 1 << 32), st.sampled_from(sorted(MISBEHAVIOURS)), st.sampled_from(["fail", "skip", "dead"])
)
@settings(max_examples=12, deadline=None)
def test_groups_of_any_size_have_the_effects_of_single_records(
    operator: str, seed: int, misbehaviour: str, on_error: str
) -> None:
    policy: Any = DeadLetters("dead") if on_error == "dead" else on_error
    rows = rows_of(Random(seed))
    alone, error, skipped = run(app_of(operator, misbehaviour, policy), rows, None)
    together = run(app_of(operator, misbehaviour, policy), rows, Random(seed))
    assert together[1:] == (error, skipped)
    if error is None:
        assert together[0] == alone
    replaced = run(app_of(operator, misbehaviour, policy), rows, None, saves=True)
    assert replaced == (alone, error, skipped)
    assert on_error != "fail" or skipped == 0
    if error is not None:
        assert "in step " in error or "timer" in error


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_raised_with_its_record_and_step(error: type[BaseException]) -> None:
    app = App("odd")
    app.stream("a").map_values(raising(error)).to("out")
    driver = TestDriver(app)
    for number in range(3):
        driver.send("a", "k", {"n": number})
    told = rf"'n': 3.*cannot be processed: {error.__name__}: .*\(at a-0, offset 3\) in step map-values-1"
    with pytest.raises(StreamsError, match=told):
        driver.send("a", "k", {"n": 3})


def test_a_predicate_of_a_branch_is_called_once_for_a_record() -> None:
    app = App("odd")
    branches = app.stream("a", on_error="skip").branch({"x": raising(KeyError), "y": changing}, default="z")
    for name, branch in branches.items():
        branch.to(name)
    driver = TestDriver(app)
    driver.send("a", "k", {"n": 3})
    driver.send("a", "k", {"n": 0})
    assert driver.skipped == 1
    assert [record.value for record in driver.read("x")] == [{"n": 0}]


def test_a_long_row_of_steps_is_a_topology_like_others() -> None:
    app = App("long", value="int")
    stream = app.stream("a")
    for _ in range(300):
        stream = stream.flat_map_values(lambda key, value: [value + 1]).filter(lambda key, value: True)
    stream.to("out")
    driver = TestDriver(app)
    driver.send("a", "k", 1)
    assert [record.value for record in driver.read("out")] == [301]


def windows_of(rows: list[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    app = App("sliding")

    def append(key: str, value: int, so_far: list[int]) -> list[int]:
        so_far.append(value)
        return so_far

    app.stream("a").group_by_key().sliding(10, grace_ms=50).aggregate(list, append, name="windows")
    driver = TestDriver(app)
    for value, timestamp in rows:
        driver.send("a", "k", value, timestamp)
    return {tuple(key.window): value for key, value in driver.table("windows").items()}  # type: ignore[misc]


def test_sliding_windows_have_their_own_lists() -> None:
    assert windows_of([(0, 22), (1, 14)])[15, 25] == [0]


@given(st.lists(st.integers(0, 40), max_size=12))
@settings(max_examples=200, deadline=None)
def test_sliding_windows_hold_the_records_of_their_time(times: list[int]) -> None:
    rows = list(enumerate(times))
    for (start, end), values in windows_of(rows).items():
        assert sorted(values) == [value for value, time in rows if start <= time <= end]


def test_each_partner_and_each_window_gets_the_value_as_it_came() -> None:
    def update(own: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        own.update(other)
        return own

    app = App("join")
    app.stream("a").join(app.stream("b"), update, within=JoinWindows(10, 10, 5)).to("out")
    hopping = app.stream("c").group_by_key().hopping(30, every_ms=10, grace_ms=20)
    hopping.aggregate(empty, lambda key, value, so_far: changing(value), name="windows")
    driver = TestDriver(app)
    driver.send("b", "k", {"x": 1}, 100)
    driver.send("b", "k", {"y": 2}, 101)
    driver.send("a", "k", {"n": 0}, 102)
    assert [record.value for record in driver.read("out")] == [{"n": 0, "x": 1}, {"n": 0, "y": 2}]
    driver.send("c", "k", {"n": 0}, 100)
    assert [value["n"] for value in driver.table("windows").values()] == [10, 10, 10]
