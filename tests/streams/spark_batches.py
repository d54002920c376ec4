"""Batches as Spark's workers get them from the source of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from felice.pipelines.streams.on_spark.rows import HEADERS

SOURCE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", HEADERS),
    ]
)


def source_batch(rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """A batch of rows with the values of these columns; timestamps in microseconds."""
    return pa.RecordBatch.from_pylist([dict(zip(SOURCE.names, row, strict=True)) for row in rows], SOURCE)
