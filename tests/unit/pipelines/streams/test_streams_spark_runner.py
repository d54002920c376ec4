"""How an App becomes a query: which workers hold state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import runner
from felice.pipelines.streams.on_spark.packs import READ, SKIPPED
from felice.pipelines.streams.on_spark.progress import METRICS
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.on_spark.runner import FOR_STATE, _stages, register_once
from felice.streams import App


class Frame:
    """A DataFrame that notes in which environment functions are defined for it."""

    def __init__(self) -> None:
        self.environment = {"PYTHONHASHSEED": "0"}
        self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(environment=self.environment))
        self.found: list[bool] = []
        self.told: list[tuple[object, ...]] = []

    def mapInArrow(self, function: object, schema: str) -> Frame:
        self.found.append(FOR_STATE in self.environment)
        return self

    def repartitionById(self, count: int, column: str) -> Frame:
        self.told.append(("shuffle", count, column))
        return self

    def observe(self, name: str, *counts: object) -> Frame:
        self.told.append((name, *counts))
        return self

    def where(self, condition: str) -> Frame:
        self.told.append((condition,))
        return self

    def select(self, *columns: str) -> Frame:
        self.told.append(columns)
        return self


def test_only_parts_with_state_run_in_workers_for_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "functions", SimpleNamespace(expr=str))
    app = App("two", value="string")
    counts = app.stream("in").group_by_key().count().to_stream()
    counts.group_by(lambda key, count: str(count)).count().to("out")
    frame: Any = Frame()
    plan: Any = SimpleNamespace(places=2, application=lambda: SimpleNamespace(drops=list))
    _stages(app.topology, frame, plan)
    assert frame.found == [True, True]
    assert FOR_STATE not in frame.environment


def test_packs_that_count_are_summed_behind_the_last_part_and_kept_from_the_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "functions", SimpleNamespace(expr=str))
    app = App("one", value="string")
    app.stream("in").group_by_key().count().to("out")
    frame: Any = Frame()
    plan: Any = SimpleNamespace(places=2, application=lambda: SimpleNamespace(drops=list))
    _stages(app.topology, frame, plan)
    sums = (f"sum(if(part = {READ}, count, 0)) as read", f"sum(if(part = {SKIPPED}, count, 0)) as skipped")
    assert frame.told == [
        ("shuffle", 2, "place"),
        (METRICS, *sums),
        (f"part = {OUT}",),
        ("topic", "packed"),
    ]


def test_a_session_gets_the_data_source_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session: ...

    registered: list[object] = []
    monkeypatch.setattr(runner, "register_source", lambda spark, kind: registered.append(spark))
    one, other = Session(), Session()
    for spark in (one, one, other, one):
        register_once(spark)  # type: ignore[arg-type]
    assert registered == [one, other]
