"""Rows between the stages of a query: which sub-topology each is for, which of its partitions, and its order.

How: `part` is the sub-topology that gets a row, and `place` its partition; OUT marks results. Rows of one `origin` are
     in the order of `seq`. A row without headers has an empty list of them (`columns.never_null`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from felice.pipelines.streams.fusing import Sent
from felice.pipelines.streams.on_spark.columns import never_null, places_of
from felice.pipelines.streams.record import Headers
from felice.pipelines.streams.task import TopicRecord, take_partition

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
        self.dropped: Mapping[tuple[str, str], int] = {}
        self._all = Sent()

    def add(self, sent: Sent) -> None:
        """Records that a group sent."""
        self._all.extend(sent)

    def add_each(self, records: Iterable[TopicRecord]) -> None:
        """Records that timers sent."""
        for record in records:
            self._all.add(record)

    def in_order(self) -> np.ndarray[Any, Any]:
        """For `batch`: rows in the order in which they were sent."""
        return np.arange(len(self._all.keys))

    def by_offset(self, offsets: Sequence[int]) -> np.ndarray[Any, Any]:
        """For `batch`: rows by the offset of the record that caused them, then in the order in which they were sent.

        Only for the results of one group, whose records had these offsets.
        """
        made_of = np.array(offsets, np.int64)
        if self._all.numbers:
            made_of = made_of[np.array(self._all.numbers, np.int64)]
        elif not self._all.keys:
            made_of = made_of[:0]
        order = np.argsort(made_of, kind="stable")
        _, starts, counts = np.unique(made_of[order], return_index=True, return_counts=True)
        seq = np.empty_like(made_of)
        seq[order] = made_of[order] << SUB_BITS | (np.arange(len(order)) - np.repeat(starts, counts))
        return seq

    def batch(
        self, reader_of: Callable[[str], int], places: int, origin: str, seq: np.ndarray[Any, Any]
    ) -> pa.RecordBatch:
        """The rows, addressed, with their places in the order of their origin."""
        topics, headers, size = self._all.topics, self._all.headers, len(self._all.keys)
        names = list(dict.fromkeys(topics))
        codes = dict(zip(names, range(len(names)), strict=True))
        of_names = np.zeros(size, np.int32)
        if len(names) > 1:
            of_names = np.fromiter(map(codes.__getitem__, topics), np.int32, size)
        key_array = pa.array(self._all.keys, pa.binary())
        key_places = places_of(key_array, seq, places)
        parts = np.array([reader_of(topic) for topic in names], np.int32)[of_names]
        if any(headers):
            headers = _placed(headers, parts != OUT, key_places, places)
        lists = [_written(one) for one in headers] if any(headers) else None
        made = {
            "part": parts,
            "place": key_places,
            "origin": pa.repeat(pa.scalar(origin), size),
            "seq": seq,
            "topic": pa.array(names, pa.string()).take(pa.array(of_names)),
            "key": key_array,
            "value": self._all.values,
            "timestamp": self._all.timestamps,
            "headers": never_null(pa.nulls(size, HEADERS)) if lists is None else lists,
        }
        return pa.RecordBatch.from_arrays([_array(made[one.name], one.type) for one in SCHEMA], schema=SCHEMA)


def _placed(
    headers: Sequence[Headers],
    is_inner: np.ndarray[Any, Any],
    place_of: np.ndarray[Any, Any],
    places: int,
) -> list[Headers]:
    """Set the places of inner rows whose partition a function has chosen, and return all headers without these numbers.
    The numbers of results stay in their headers, for the sink.
    """
    rest = list(headers)
    for row in np.flatnonzero(is_inner).tolist():
        number, rest[row] = take_partition(rest[row])
        if number is not None:
            place_of[row] = number % places
    return rest


def _array(given: Any, kind: pa.DataType) -> pa.Array:
    return given if isinstance(given, pa.Array) else pa.array(given, kind)


def _written(headers: Headers) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in headers]
