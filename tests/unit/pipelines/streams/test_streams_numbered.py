"""Numbers that grow with each record of a task."""

from __future__ import annotations

from typing import Any

from felice.pipelines.streams.record import Group
from felice.pipelines.streams.stores import LAST_NUMBER
from felice.pipelines.streams.task import Task
from felice.streams import App, TestDriver, Window, Windowed


def numbers_app() -> App:
    app = App("numbers", value="string")
    app.stream("in").numbered(lambda key, value, number: f"{value}{number}", name="numbers").to("out")
    return app


def test_numbers_go_on_after_a_restart_and_a_batch_writes_one_row() -> None:
    app = numbers_app()
    assert "numbered-1 [stores numbers]" in app.describe()
    part = app.topology.parts()[0]
    task = Task(app.topology, part)
    group = Group([b"a", b"b", b"a"], [b"x"] * 3, [9, 8, 7], [()] * 3)
    assert task.process_group("in", group).values == [b"x0", b"x1", b"x2"]
    changes = task.stores["numbers"].take_changes()
    assert changes == [(LAST_NUMBER, 2)]
    later = Task(app.topology, part)
    later.stores["numbers"].load(changes)
    assert later.process_group("in", group).values == [b"x3", b"x4", b"x5"]


def newest(one: Any, other: Any) -> Any:
    return max(one, other, key=lambda numbered: numbered[0])


def test_an_aggregate_knows_the_newest_value_when_sessions_merge() -> None:
    """The later of two sessions came first, so its value is the older one; the record that joins both has none."""
    app = App("latest", value="json")
    clicks = app.stream("in").key_by("user").numbered(lambda key, value, number: [number, value["page"]])
    sessions = clicks.group_by_key().session(10, grace_ms=100)
    sessions.aggregate(
        lambda: [-1, None],
        lambda key, value, so_far: newest(value, so_far) if value[1] else so_far,
        lambda key, one, other: newest(one, other),
        name="s",
    )
    assert app.describe().count("repartition") == 2  # Written and read once.
    driver = TestDriver(app)
    for page, time in (("old", 20), ("new", 4), (None, 12)):
        driver.send("in", None, {"user": "ann", "page": page}, time)
    assert driver.table("s") == {Windowed("ann", Window(4, 20)): [1, "new"]}
