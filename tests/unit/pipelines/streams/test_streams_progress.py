"""What is told of a batch, and the size of an application's state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description, PartDescription
from felice.pipelines.streams.on_spark.progress import (
    METRICS,
    Totals,
    dropped_in,
    dropped_metric,
    in_bytes,
    in_time,
    report_of,
    size_of,
    sizes_of,
    skipped_in,
)
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.pipelines.streams.stores import Clocks, KeyValueStore, Store

PROGRESS = {
    "batchId": 3,
    "numInputRows": 2,
    "observedMetrics": {METRICS: Row(read=500, skipped=0)},
    "durationMs": {"triggerExecution": 250},
    "sources": [{"latestOffset": '{"a":{"0":12}}', "endOffset": '{"a":{"0":5}}'}],
}


def keep(directory: Path, rows: int, time: int) -> None:
    table, clocks = KeyValueStore("t", FORMATS["string"], FORMATS["json"]), Clocks("clocks")
    for number in range(rows):
        table.put(f"k{number}", 1, 5)
    if time >= 0:
        clocks.advance("window", time)
    stores: dict[str, Store] = {"t": table, "clocks": clocks}
    StateFiles(directory).write(0, {name: store.take_changes() for name, store in stores.items()}, stores)


def test_a_batch_tells_rows_speed_and_lag(tmp_path: Path) -> None:
    report = report_of(PROGRESS, [], Totals())
    assert report is not None
    assert report.line() == "batch 3: 500 rows in 250 ms, 2000 rows/s, 7 behind"
    counted = report_of(PROGRESS, [], Totals(skipped=4))
    assert counted is not None and counted.line().endswith("7 behind, 4 skipped so far")
    assert report_of(PROGRESS | {"numInputRows": 0}, [], Totals()) is None


def test_a_batch_without_records_counts_none(tmp_path: Path) -> None:
    """It may have ticks of the wall clock as its input. Spark's sum of no rows is null."""
    for counted in ({}, {METRICS: Row(read=None, skipped=None)}):
        progress = PROGRESS | {"observedMetrics": counted}
        report = report_of(progress, [], Totals())
        assert report is not None and (report.rows, report.rows_per_s) == (0, 0)
        assert skipped_in(progress) == 0
    assert skipped_in(PROGRESS | {"observedMetrics": {METRICS: Row(read=5, skipped=3)}}) == 3


def test_what_operators_left_out_is_told_by_reason() -> None:
    names = [dropped_metric(*what) for what in (("counts", "late"), ("sums", "late"), ("counts", "null"))]
    counted = Row(**{"read": 5, "skipped": 0, names[0]: 2, names[1]: 1, names[2]: None})
    dropped = dropped_in(PROGRESS | {"observedMetrics": {METRICS: counted}})
    assert dropped == {"late counts": 2, "late sums": 1}
    report = report_of(PROGRESS, [], Totals(dropped=Counter(dropped | {"null counts": 4})))
    assert report is not None
    assert report.line().endswith("7 behind, 3 late so far, 4 with a null key or value so far")
    assert report.document()["dropped"] == dropped | {"null counts": 4}
    assert dropped_in(PROGRESS | {"observedMetrics": {}}) == {}


def test_a_batch_tells_the_state_of_all_tasks_and_the_least_stream_time(tmp_path: Path) -> None:
    parts = tuple(PartDescription(number, str(number), ()) for number in (1, 2))
    checkpoint, description = Checkpoint(tmp_path), Description("shop", "", 2, {}, parts=parts)
    for (part, place), (rows, time) in {(1, 0): (3, 86_400_000), (1, 1): (2, 1_000), (2, 0): (1, -1)}.items():
        keep(Path(checkpoint.task_location(description, part, place)), rows, time)
    Path(checkpoint.task_location(description, 2, 1)).mkdir()  # A task that has written nothing yet.
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*.delta"))
    sizes = sizes_of(checkpoint, description)
    assert sizes.keys() == {(1, 0), (1, 1), (2, 0)}
    assert size_of(sizes.values()) == (8, on_disk, 1_000)
    report = report_of(PROGRESS, sizes.values(), Totals())
    assert report is not None
    told = f"7 behind, state 8 rows, {on_disk} B, stream time 1970-01-01T00:00:01.000+00:00"
    assert report.line().endswith(told)


def test_sizes_and_times_are_told_so_that_people_can_read_them() -> None:
    assert [in_bytes(size) for size in (0, 999, 1000, 2_550_000, 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "2.5 MB",
        "1000.0 TB",
    ]
    assert in_time(1 << 60) == str(1 << 60)
