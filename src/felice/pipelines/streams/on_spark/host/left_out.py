"""How many records each App of a host has left out, as Spark reports it for each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from felice.pipelines.streams.on_spark.packs import DROPPED, counted_drops
from felice.pipelines.streams.on_spark.progress import METRICS
from felice.pipelines.streams.task import Task

AGGREGATE = f"collect_list(if(part = {DROPPED}, struct(topic, origin, count), null)) as left_out"
"""One list for all Apps: Apps come and go while the query runs, and a query of Spark cannot change its columns."""
_SKIPPED = "skipped"

Progress = Mapping[str, Any]


def counts_of(
    incarnation: str, skipped: int, dropped: Mapping[tuple[str, str], int]
) -> Iterator[pa.RecordBatch]:
    """The packs that report what an App left out: what an error policy says, and what operators did."""
    counts = Counter({(incarnation, _SKIPPED): skipped} if skipped else {})
    for (_, reason), count in dropped.items():
        counts[incarnation, reason] += count
    yield from counted_drops(counts)


def counts_of_tasks(incarnation: str, tasks: Iterable[Task]) -> Iterator[pa.RecordBatch]:
    """The packs that report what tasks without state left out in a batch."""
    for task in tasks:
        yield from counts_of(incarnation, task.skipped, task.take_dropped())


class LeftOut:
    """The counts of all batches since the host was started."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._last = -1

    def add(self, last: Progress, recent: Callable[[], Iterable[Progress]]) -> None:
        """Add the counts of batches up to the report `last`. `recent` also returns earlier reports, and is slower."""
        for one in (last,) if int(last["batchId"]) <= self._last + 1 else recent():
            found = one["observedMetrics"].get(METRICS)
            if found is None or not one["numInputRows"] or int(one["batchId"]) <= self._last:
                continue  # A report that there was nothing to do has the number of the next batch.
            self._last = int(one["batchId"])
            for row in found["left_out"]:
                self._counts.setdefault(row["topic"], Counter())[row["origin"]] += int(row["count"])

    def of(self, incarnation: str) -> Mapping[str, int]:
        """The numbers of records that an App left out, by reason."""
        return dict(self._counts.get(incarnation, {}))
