"""Rows between the stages of a query: which sub-topology each is for, which of its partitions, and its order.

How: `part` is the sub-topology that gets a row, and `place` its partition; OUT marks results. Rows of one `origin` are
     in the order of `seq`. A row without headers has an empty list of them (`columns.never_null`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from felice.pipelines.streams.on_spark.columns import never_null, places_of
from felice.pipelines.streams.record import Group, Headers
from felice.pipelines.streams.task import TopicGroup, TopicRecord

OUT = -1
# A record of a topic may cause at most 2 to this power results; offsets use the remaining bits.
SUB_BITS = 20

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("place", pa.int32()),
        ("origin", pa.string()),
        ("seq", pa.int64()),
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
    ]
)


class Rows:
    """Rows to be sent on."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, part: int, place: int, origin: str, seq: int, record: TopicRecord) -> None:
        """One row."""
        topic, key, value, timestamp, headers = record
        self._rows.append((part, place, origin, seq, topic, key, value, timestamp, _written(headers)))

    def batch(self) -> pa.RecordBatch:
        """All rows."""
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(SCHEMA)
        arrays = [pa.array(values, column.type) for values, column in zip(columns, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class Results:
    """The results of a task, by column."""

    def __init__(self) -> None:
        self.skipped = 0
        self._topics: list[str] = []
        self._counts: list[int] = []
        """How many records in a row are for each of the topics."""
        self._all = Group([], [], [], [], [])

    def add(self, records: Iterable[TopicRecord]) -> None:
        """Records one by one."""
        for topic, key, value, timestamp, headers in records:
            self._topics.append(topic)
            self._counts.append(1)
            self._all.keys.append(key)
            self._all.values.append(value)
            self._all.timestamps.append(timestamp)
            self._all.headers.append(headers)

    def add_groups(self, groups: Iterable[TopicGroup]) -> None:
        """Records in groups."""
        for topic, group in groups:
            self._topics.append(topic)
            self._counts.append(len(group))
            self._all.keys.extend(group.keys)
            self._all.values.extend(group.values)
            self._all.timestamps.extend(group.timestamps)
            self._all.headers.extend(group.headers)
            self._all.numbers.extend(group.numbers)

    def in_order(self) -> np.ndarray[Any, Any]:
        """For `batch`: rows in the order in which they were sent."""
        return np.arange(len(self._all))

    def by_offset(self, offsets: Sequence[int]) -> np.ndarray[Any, Any]:
        """For `batch`: rows by the offset of the record that caused them, then in the order in which they were sent.

        Only for records that were sent in groups. The group that a task was given had these offsets.
        """
        made_of = np.array(offsets, np.int64)[np.array(self._all.numbers, np.int64)]
        order = np.argsort(made_of, kind="stable")
        _, starts, counts = np.unique(made_of[order], return_index=True, return_counts=True)
        seq = np.empty_like(made_of)
        seq[order] = made_of[order] << SUB_BITS | (np.arange(len(order)) - np.repeat(starts, counts))
        return seq

    def batch(
        self, reader_of: Callable[[str], int], places: int, origin: str, seq: np.ndarray[Any, Any]
    ) -> pa.RecordBatch:
        """The rows, addressed, with their places in the order of their origin."""
        size = len(self._all)
        runs = np.repeat(np.arange(len(self._counts)), self._counts)
        keys = pa.array(self._all.keys, pa.binary())
        headers = [_written(one) for one in self._all.headers] if any(self._all.headers) else None
        made = {
            "part": np.array([reader_of(topic) for topic in self._topics], np.int32)[runs],
            "place": places_of(keys, seq, places),
            "origin": pa.repeat(pa.scalar(origin), size),
            "seq": seq,
            "topic": pa.array(self._topics, pa.string()).take(pa.array(runs)),
            "key": keys,
            "value": self._all.values,
            "timestamp": self._all.timestamps,
            "headers": never_null(pa.nulls(size, HEADERS)) if headers is None else headers,
        }
        return pa.RecordBatch.from_arrays([_array(made[one.name], one.type) for one in SCHEMA], schema=SCHEMA)


def _array(given: Any, kind: pa.DataType) -> pa.Array:
    return given if isinstance(given, pa.Array) else pa.array(given, kind)


def _written(headers: Headers) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in headers]
