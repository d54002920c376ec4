"""Packs: rows as they pass through Spark, where each row of Spark has many records as Arrow in one binary value.

Keeps true: all records of a pack have the same part, place, topic and origin, and keep their order. A shuffle loses the
            order of packs. A pack has at most MOST_ROWS records and MOST_BYTES, or is one record. `packed` yields a
            RecordBatch as soon as its packs exceed MOST_BYTES.
How:        Spark pays for each of its rows: it makes a row of the columns, copies it in the shuffle, and makes columns
            again. A pack has many records, so their cost is that of copied bytes. Packs exist only within
            a batch of a query, so their format may change with each release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from felice.pipelines.spark.producing import NUMBER
from felice.pipelines.streams.on_spark.rows import HEADERS, SCHEMA
from felice.pipelines.streams.task import PARTITION

READ = -3
"""The value of `part` in a pack without records; its `count` is the number of records that the source has read."""
SKIPPED = -2
"""The value of `part` in a pack without records; its `count` is the number of records that a task skipped, as an error
policy says.
"""
MOST_BYTES = 4 * 1024 * 1024
"""A pack with several records has at most this many bytes in its columns."""
MOST_ROWS = 50_000
"""A pack has at most this many records."""

PACKS = pa.schema(
    [
        ("part", pa.int32()),
        ("place", pa.int32()),
        ("topic", pa.string()),
        ("origin", pa.string()),
        ("count", pa.int64()),
        ("packed", pa.binary()),
    ]
)
SPARK_SCHEMA = "part int, place int, topic string, origin string, count long, packed binary"
_GROUPED_BY = ("part", "place", "topic", "origin")
_PACKED = pa.schema([field for field in SCHEMA if field.name not in _GROUPED_BY])

Pack = tuple[int, int, str, str, int, bytes | None]


DROPPED = -4
"""The value of `part` in a pack without records; its `count` is the number of records that an operator left out.
`topic` is the operator, and `origin` the reason.
"""


MARK = -5
"""The value of `part` in a pack without records; its `topic` is a text for each place (`host`)."""


def marked(text: str, places: int) -> Iterator[pa.RecordBatch]:
    """The packs that bring a text to each place."""
    yield _batch([(MARK, place, text, "", 0, None) for place in range(places)])


def counted(part: int, count: int) -> Iterator[pa.RecordBatch]:
    """The pack that reports a count, if there is something to report."""
    if count:
        yield _batch([(part, 0, "", "", count, None)])


def counted_drops(dropped: Mapping[tuple[str, str], int]) -> Iterator[pa.RecordBatch]:
    """The packs that report what operators left out."""
    if dropped:
        yield _batch([(DROPPED, 0, *what, count, None) for what, count in dropped.items()])


def packed(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The packs of rows with `rows.SCHEMA`, if there are rows."""
    if not len(rows):
        return
    order, starts = _groups([rows.column(name) for name in _GROUPED_BY])
    if len(starts) > 1:
        rows = rows.take(pa.array(order))
    bounds = pairwise([*starts.tolist(), len(rows)])
    groups = (rows.slice(start, end - start) for start, end in bounds)
    yield from _batches(_packed(piece) for group in groups for piece in _pieces(group))


def unpacked(packs: pa.Table) -> pa.Table:
    """The rows of packs, with `rows.SCHEMA`."""
    found = []
    columns = (packs[name].to_pylist() for name in _GROUPED_BY)
    for part, place, topic, origin, data in zip(*columns, packs["packed"], strict=True):
        rows = _read(data)
        made = {"part": part, "place": place, "topic": topic, "origin": origin}
        arrays = [
            pa.repeat(pa.scalar(made[field.name], field.type), len(rows))
            if field.name in made
            else rows.column(field.name)
            for field in SCHEMA
        ]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return pa.Table.from_batches(found, SCHEMA)


def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of packs as a sink takes them."""
    for batch in batches:
        found = []
        for topic, data in zip(batch.column("topic").to_pylist(), batch.column("packed"), strict=True):
            rows = _read(data)
            made = {name: rows.column(name) for name in ("key", "value")}
            made["headers"], made[NUMBER] = _partitions(rows.column("headers"))
            made["topic"] = pa.repeat(pa.scalar(topic), len(rows))
            made["timestamp"] = rows.column("timestamp").cast(pa.timestamp("ms", tz="UTC"))
            found.append(pa.RecordBatch.from_pydict(made))
        # One batch, because a writer holds batches, and each small one needs kilobytes.
        if found:
            yield from pa.Table.from_batches(found).combine_chunks().to_batches()


def _partitions(headers: pa.ListArray) -> tuple[pa.ListArray, pa.Array]:
    """The headers, and the numbers that choose partitions; null where a record has none."""
    size = len(headers)
    if not len(headers.flatten()):
        return headers, pa.nulls(size, pa.int64())
    first = pc.list_slice(headers, 0, 1)
    # One place for each record, also for those without headers.
    lengths = pc.list_value_length(first).to_numpy(zero_copy_only=False)
    at = np.cumsum(lengths) - lengths
    chosen = np.zeros(size, np.bool_)
    has_one = lengths > 0
    names, values = (first.flatten().field(name) for name in ("key", "value"))
    chosen[has_one] = pc.equal(names, PARTITION).to_numpy(zero_copy_only=False)[at[has_one]]
    if not chosen.any():
        return headers, pa.nulls(size, pa.int64())
    numbers = np.zeros(size, np.int64)
    data = b"".join(values.take(pa.array(at[chosen])).to_pylist())
    numbers[chosen] = np.frombuffer(data, "<i8")
    rest = pc.if_else(pa.array(chosen), pc.list_slice(headers, 1, None), headers)
    return rest.cast(HEADERS), pa.array(numbers, mask=~chosen)


def _groups(columns: list[pa.Array]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An order that brings equal values together and else changes nothing, and where each group then starts."""
    groups = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        groups = groups * len(encoded.dictionary) + encoded.indices.to_numpy()
    if groups.max() < 1 << 15:
        groups = groups.astype(np.int16)  # numpy sorts short numbers much faster.
    order = np.argsort(groups, kind="stable")
    return order, np.flatnonzero(np.diff(groups[order], prepend=-1))


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if len(rows) == 1 or (len(rows) <= MOST_ROWS and rows.select(_PACKED.names).nbytes <= MOST_BYTES):
        yield rows
        return
    half = len(rows) // 2
    yield from _pieces(rows.slice(0, half))
    yield from _pieces(rows.slice(half))


def _packed(rows: pa.RecordBatch) -> Pack:
    part, place, topic, origin = (rows.column(name)[0].as_py() for name in _GROUPED_BY)
    # Bytes, because `pa.array` of memoryviews never frees their memory (pyarrow 26).
    data = rows.select(_PACKED.names).serialize().to_pybytes()
    return part, place, topic, origin, len(rows), data


def _read(data: pa.BinaryScalar) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(data.as_buffer(), _PACKED)


def _batches(packs: Iterable[Pack]) -> Iterator[pa.RecordBatch]:
    held: list[Pack] = []
    size = 0
    for pack in packs:
        held.append(pack)
        size += len(pack[-1] or b"")
        if size > MOST_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(packs: list[Pack]) -> pa.RecordBatch:
    columns = zip(*packs, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, PACKS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKS)
