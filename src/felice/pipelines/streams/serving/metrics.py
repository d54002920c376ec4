"""An application's metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from felice.pipelines.prometheus import Rows, family
from felice.pipelines.streams.on_spark.directory import Checkpoint
from felice.pipelines.streams.on_spark.progress import sizes_of
from felice.pipelines.streams.stores import NEVER

_OF_BATCH = {
    "last_batch": ("gauge", "The number of the last finished batch.", "batch", 1),
    "batch_records": ("gauge", "Records that the last batch read.", "rows", 1),
    "batch_seconds": ("gauge", "How long the last batch took.", "batch_ms", 1000),
    "records_per_second": ("gauge", "Records per second of the last batch.", "rows_per_s", 1),
    "lag_records": ("gauge", "Records of the input that were not read after the last batch.", "behind", 1),
    "records_total": ("counter", "Records read since the start.", "read", 1),
    "skipped_records_total": (
        "counter",
        "Records that an error policy dropped since the start.",
        "skipped",
        1,
    ),
    "report_timestamp_seconds": ("gauge", "When the last batch was reported.", "reported_at", 1000),
}
"""Name -> kind, help, field of the report, and what it is divided by."""
_OF_TASK = {
    "state_rows": "Rows in the stores of a task.",
    "state_bytes": "Bytes on disk of the stores of a task.",
    "stream_time_seconds": "The greatest timestamp that a task has seen.",
}


def page(application: str, checkpoint: Checkpoint, is_running: bool) -> str:
    """The metrics of an application as its checkpoint has them."""
    return "".join(_lines(application, checkpoint, is_running))


def _lines(application: str, checkpoint: Checkpoint, is_running: bool) -> Iterator[str]:
    report, own = checkpoint.progress(), {"application": application}
    yield from _family("running", "gauge", "1 while the application runs.", [(own, int(is_running))])
    failed = int("failure" in report and not is_running)
    yield from _family("failed", "gauge", "1 after the application has failed.", [(own, failed)])
    for name, (kind, told, field, per) in _OF_BATCH.items():
        if report.get(field) is not None:
            yield from _family(name, kind, told, [(own, report[field] / per if per > 1 else report[field])])
    dropped = []
    for what, count in report.get("dropped", {}).items():
        reason, _, operator = what.partition(" ")
        dropped.append((own | {"operator": operator, "reason": reason}, count))
    told = "Records that operators dropped since the start: late ones, or with a null key or value."
    yield from _family("dropped_records_total", "counter", told, dropped)
    yield from _tasks(checkpoint, own)


def _tasks(checkpoint: Checkpoint, own: Mapping[str, str]) -> Iterator[str]:
    description = checkpoint.description()
    sizes = {} if description is None else sizes_of(checkpoint, description)
    rows: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in _OF_TASK}
    for (part, place), size in sizes.items():
        labels = {**own, "sub_topology": str(part), "partition": str(place)}
        rows["state_rows"].append((labels, size.rows))
        rows["state_bytes"].append((labels, size.size_bytes))
        if size.stream_time != NEVER:
            rows["stream_time_seconds"].append((labels, size.stream_time / 1000))
    for name, told in _OF_TASK.items():
        yield from _family(name, "gauge", told, rows[name])


def _family(name: str, kind: str, told: str, rows: Rows) -> Iterator[str]:
    return family(f"felice_streams_{name}", kind, told, rows)
