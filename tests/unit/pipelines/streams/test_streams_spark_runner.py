"""How an App becomes a query: which workers hold state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark.runner import FOR_STATE, _results
from felice.streams import App


class Frame:
    """A DataFrame that notes in which environment functions are defined for it."""

    def __init__(self) -> None:
        self.environment = {"PYTHONHASHSEED": "0"}
        self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(environment=self.environment))
        self.found: list[bool] = []

    def mapInArrow(self, function: object, schema: str) -> Frame:
        self.found.append(FOR_STATE in self.environment)
        return self

    def repartitionById(self, *_: object) -> Frame:
        return self

    def where(self, condition: str) -> Frame:
        return self

    def selectExpr(self, *columns: str) -> Frame:
        return self


def test_only_parts_with_state_run_in_workers_for_state() -> None:
    app = App("two", value="string")
    counts = app.stream("in").group_by_key().count().to_stream()
    counts.group_by(lambda key, count: str(count)).count().to("out")
    frame: Any = Frame()
    plan: Any = SimpleNamespace(places=2)
    _results(app, frame, plan)
    assert frame.found == [False, True, True]
    assert FOR_STATE not in frame.environment
