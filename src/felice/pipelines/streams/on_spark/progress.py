"""Reports of a running application on each batch: rows, speed, lag, state, stream time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.spark.lag import offsets_behind
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.places import PlaceError
from felice.pipelines.streams.on_spark.state import Size, StateError, StateFiles, files_of_task
from felice.pipelines.streams.record import NULL, TIME
from felice.pipelines.streams.stores import NEVER

METRICS = "felice"
"""What Spark's progress calls the counters of an application, in `observedMetrics`."""

_DROPPED = "dropped "
_TOLD = {NULL: "with a null key or value", TIME: "without a valid timestamp"}
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch. `behind` counts the records that its topics have after it. Times are in milliseconds.

    `skipped` counts the records that an error policy has dropped since the application was started. `dropped` counts
    those that operators left out, by reason and operator: "late counts". `read` counts all that were read.
    """

    batch: int
    rows: int
    batch_ms: int
    rows_per_s: int
    behind: int
    state_rows: int
    state_bytes: int
    stream_time: int
    reported_at: int
    skipped: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    read: int = 0

    def line(self) -> str:
        """The report as one line of text."""
        told = [
            f"batch {self.batch}: {self.rows} rows in {self.batch_ms} ms",
            f"{self.rows_per_s} rows/s",
            f"{self.behind} behind",
        ]
        if self.skipped:
            told.append(f"{self.skipped} skipped so far")
        told += [f"{count} {_TOLD.get(reason, reason)} so far" for reason, count in self._reasons().items()]
        if self.state_bytes:
            told.append(f"state {self.state_rows} rows, {in_bytes(self.state_bytes)}")
        if self.stream_time != NEVER:
            told.append(f"stream time {in_time(self.stream_time)}")
        return ", ".join(told)

    def _reasons(self) -> Counter[str]:
        reasons: Counter[str] = Counter()
        for what, count in self.dropped.items():
            reasons[what.partition(" ")[0]] += count
        return reasons

    def document(self) -> dict[str, Any]:
        """The report as a dictionary for JSON."""
        return asdict(self)


@dataclass(slots=True)
class Totals:
    """What an application has counted since its start."""

    read: int = 0
    skipped: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, progress: Mapping[str, Any]) -> None:
        """Count a batch."""
        self.read += _counted(progress, "read")
        self.skipped += skipped_in(progress)
        self.dropped.update(dropped_in(progress))


def report_of(progress: Mapping[str, Any], sizes: Iterable[Size], totals: Totals) -> BatchReport | None:
    """The report on a batch of a query; None for a batch without input. `sizes` are those of the tasks, `totals` those
    of all batches so far.

    Spark's `numInputRows` counts packs, so records are counted by the application's own metric.
    """
    if not int(progress["numInputRows"]):
        return None
    rows = _counted(progress, "read")
    took_ms = max(1, int(progress["durationMs"].get("triggerExecution", 1)))
    behind = int(offsets_behind(progress).get("offsetsBehindLatest", 0))
    size = size_of(sizes)
    now = round(time.time() * 1000)
    speed = rows * 1000 // took_ms
    return BatchReport(
        batch=int(progress["batchId"]),
        rows=rows,
        batch_ms=took_ms,
        rows_per_s=speed,
        behind=behind,
        state_rows=size.rows,
        state_bytes=size.size_bytes,
        stream_time=size.stream_time,
        reported_at=now,
        skipped=totals.skipped,
        dropped=dict(totals.dropped),
        read=totals.read,
    )


def skipped_in(progress: Mapping[str, Any]) -> int:
    """The number of records that an error policy dropped in a batch."""
    return _counted(progress, "skipped")


def dropped_metric(label: str, reason: str) -> str:
    """The name of a counter of records that an operator left out."""
    return f"{_DROPPED}{reason} {label}"


def dropped_in(progress: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of records that operators left out in a batch, by reason and operator, without those that are 0."""
    counted = progress["observedMetrics"].get(METRICS)
    found = {} if counted is None else counted.asDict()
    return {
        name.removeprefix(_DROPPED): int(count)
        for name, count in found.items()
        if name.startswith(_DROPPED) and count
    }


def _counted(progress: Mapping[str, Any], name: str) -> int:
    counted = progress["observedMetrics"].get(METRICS)
    return 0 if counted is None else int(counted[name] or 0)


def sizes_of(checkpoint: Checkpoint, description: Description) -> dict[tuple[int, int], Size]:
    """The size of the state of each task, by sub-topology and partition."""
    found = {}
    for part in description.parts or ():
        for place in range(description.partitions):
            size = _task_size(files_of_task(checkpoint, description, part.number, place))
            if size is not None:
                found[part.number, place] = size
    return found


def size_of(sizes: Iterable[Size]) -> Size:
    """The size of the state of all tasks. Its stream time is that of the task that is furthest behind."""
    known = list(sizes)
    times = [size.stream_time for size in known if size.stream_time != NEVER]
    return Size(
        sum(size.rows for size in known), sum(size.size_bytes for size in known), min(times, default=NEVER)
    )


def _task_size(files: StateFiles) -> Size | None:
    try:
        return files.size()
    except (FileNotFoundError, ValueError):
        return None  # A worker makes it, or removes older files, at this moment.
    except (StateError, PlaceError):
        return None  # The application says so when it reads the file.


def in_bytes(size: float) -> str:
    """A size in the unit that suits it."""
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def in_time(timestamp_ms: int) -> str:
    """A timestamp as text in UTC; the number itself if it is outside the range of dates."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
