"""The workers of a query of Spark, without Spark: what they do with each batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from felice.pipelines.streams.on_spark import stage
from felice.pipelines.streams.on_spark.packs import PACKS, READ, SKIPPED, unpacked
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.on_spark.stage import Plan, packed_source, run_part
from felice.streams import App
from streams.spark_batches import source_batch

PLACES = 3


class Spark:
    """The batches of one query, with a worker that may forget what it knows."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        app: App,
        places: int = PLACES,
    ) -> None:
        pickled = cloudpickle.dumps(app.topology)  # type: ignore[no-untyped-call]
        self.plan = Plan(pickled, places, tuple(str(directory / str(number)) for number in range(10)))
        self.monkeypatch = monkeypatch
        self.offsets: defaultdict[str, int] = defaultdict(int)
        self.skipped = self.read = 0

    def batch(self, number: int, source: pa.RecordBatch) -> list[tuple[str, bytes, bytes]]:
        packs = self.addressed(source)
        for part in self.plan.application().parts:
            if part.is_placed:
                packs = pa.concat_tables(
                    [self.run_task(part.number, place, number, packs) for place in range(self.plan.places)]
                )
        self.skipped += sum(of_part(packs, SKIPPED)["count"].to_pylist())
        self.read += sum(of_part(packs, READ)["count"].to_pylist())
        results = unpacked(of_part(packs, OUT))
        return list(
            zip(*(results[name].to_pylist() for name in ("topic", "key", "value", "timestamp")), strict=True)
        )

    def addressed(self, source: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches(packed_source([source], self.plan), PACKS)

    def run_task(self, part: int, place: int, number: int, packs: pa.Table) -> pa.Table:
        context = SimpleNamespace(partitionId=lambda: place, getLocalProperty=lambda name: str(number))
        self.monkeypatch.setattr(stage, "TaskContext", SimpleNamespace(get=lambda: context))
        here = packs.filter(pa.compute.equal(packs["place"], place))
        return pa.Table.from_batches(run_part(here.to_batches(), self.plan, part), PACKS)

    def source(self, rows: Sequence[tuple[str, str, str | None, int]]) -> pa.RecordBatch:
        found = []
        for topic, key, value, timestamp in rows:
            self.offsets[topic] += 1
            written = None if value is None else value.encode()
            one = (key.encode(), written, topic, 0, self.offsets[topic], timestamp * 1000, None)
            found.append(one)
        return source_batch(found)


def of_part(packs: pa.Table, part: int) -> pa.Table:
    return packs.filter(pa.compute.equal(packs["part"], part))
