"""Divides the offsets of a batch into tasks, limits the size of a batch, and finds missing records.

Keeps true: every offset of a batch is read by exactly one task. One task reads all of a topic partition's part, unless
            the query asked for splitting. A limit on a batch is shared in proportion to what each partition has, as in
            Spark's own Kafka source, and every partition makes progress. Records that the log no longer holds are
            reported.
How:        a task costs about 50 ms of Python start-up, even for few records, so there are only as many tasks as the
            session has cores, each with many topic partitions.
Pure.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from felice.pipelines.spark.offsets import Offsets, Partition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets `start` to `end` (exclusive) of one topic partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets in the range. Compaction and markers may leave fewer records."""
        return self.end - self.start


Task = tuple[OffsetRange, ...]


def share_limit(limit: int, start: Mapping[Partition, int], end: Offsets) -> Offsets:
    """Returns where a batch of about `limit` records ends. Each partition gets a part in proportion to its records.

    A part below one record is rounded up, so that a small partition is never starved. The batch may then exceed
    `limit` by as many records as there are small partitions.
    """
    sizes = {key: end[key] - start[key] for key in end if end[key] > start.get(key, end[key])}
    total = sum(sizes.values())
    if total <= limit:
        return end
    return {
        key: _share(limit, size, total, start[key]) if (size := sizes.get(key)) else end[key] for key in end
    }


def _share(limit: int, size: int, total: int, start: int) -> int:
    part = limit * size / total
    return start + min(size, math.ceil(part) if part < 1 else math.floor(part))


def count_new(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> int:
    """Number of offsets between `start` and `end`. A partition without a start counts 0."""
    return sum(max(0, end[key] - start.get(key, end[key])) for key in end)


def behind_their_ends(start: Offsets, end: Offsets) -> list[str]:
    """A message for each partition whose start is behind its end; it could not be read."""
    return [
        f"{_name(key)} would be read from offset {start[key]} to {end[key]}"
        for key in sorted(start)
        if start[key] > end[key]
    ]


@dataclass(frozen=True, slots=True)
class Batch:
    """The ranges of one batch, and messages about records that are missing from the log."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def plan_batch(
    start: Offsets,
    end: Offsets,
    earliest_of_new: Offsets,
    recreated: Collection[str] = (),
    reads: Callable[[str], bool] = lambda topic: True,
) -> Batch:
    """The ranges between two checkpoints. `earliest_of_new` has the start of partitions that are only in `end`.

    Topics that were `recreated` are read from their beginning: `start` was in topics that are gone. `reads` says
    whether the query reads a topic.
    """
    gone = sorted(start.keys() - end.keys())
    losses = [_another_query(topic) for topic in sorted({topic for topic, _ in gone if not reads(topic)})]
    losses += [_gone(key) for key in gone if reads(key[0])]
    losses += [recreation_loss(topic) for topic in sorted(recreated) if any(key[0] == topic for key in start)]
    start = {key: offset for key, offset in start.items() if key[0] not in recreated}
    ranges: list[OffsetRange] = []
    for key in sorted(end):
        first = start.get(key, earliest_of_new.get(key, 0))
        if key not in start and first > 0:
            losses.append(f"{_name(key)} is new, but its first {first} records are gone already")
        if end[key] < first:
            losses.append(f"{_name(key)} went back from offset {first} to {end[key]}")
        elif end[key] > first:
            ranges.append(OffsetRange(*key, first, end[key]))
    return Batch(tuple(ranges), tuple(losses))


def recreation_loss(topic: str) -> str:
    """The message for a topic that was deleted and created again while a query read it."""
    return f"topic {topic} was deleted and created again; what the query had not read of it is lost"


def _gone(key: Partition) -> str:
    return f"{_name(key)} is gone; what it still held is lost to this query"


def _another_query(topic: str) -> str:
    return (
        f"the checkpoint is of a query that reads topic {topic}, and this query does not; give each query a checkpoint "
        "of its own"
    )


def _name(key: Partition) -> str:
    return f"partition {key[1]} of topic {key[0]}"


def plan_tasks(
    ranges: Iterable[OffsetRange],
    *,
    cores: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[Task]:
    """Groups ranges into tasks of about equal size, and splits them if the query asked for that."""
    pieces = [piece for piece in ranges if piece.size > 0]
    if max_records_per_partition is not None:
        pieces = [
            part for piece in pieces for part in _cut(piece, -(-piece.size // max_records_per_partition))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split(pieces, min_partitions)
    wanted = min(len(pieces), max(cores, min_partitions or 1))
    return _pack(pieces, wanted, max_records_per_partition)


def _split(pieces: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Cuts ranges into at least `wanted` pieces if there are as many records; larger ranges into more."""
    parts = dict.fromkeys(pieces, 1)
    wanted = min(wanted, sum(piece.size for piece in pieces))
    while sum(parts.values()) < wanted:
        largest = max(
            (piece for piece in pieces if parts[piece] < piece.size), key=lambda p: p.size / parts[p]
        )
        parts[largest] += 1
    return [part for piece in pieces for part in _cut(piece, parts[piece])]


def _cut(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [piece.start + piece.size * index // parts for index in range(parts + 1)]
    return [replace(piece, start=low, end=high) for low, high in itertools.pairwise(edges) if high > low]


def _pack(pieces: Sequence[OffsetRange], wanted: int, limit: int | None) -> list[Task]:
    """Puts the largest range first into the least loaded task. A range that would exceed `limit` opens another task."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(wanted)]
    loads = [(0, index) for index in range(wanted)]
    for piece in sorted(pieces, key=lambda p: (-p.size, p)):
        load, index = loads[0]
        if limit is not None and load and load + piece.size > limit:
            tasks.append([piece])
            heapq.heappush(loads, (piece.size, len(tasks) - 1))
        else:
            tasks[index].append(piece)
            heapq.heapreplace(loads, (load + piece.size, index))
    return [tuple(sorted(task)) for task in tasks if task]
