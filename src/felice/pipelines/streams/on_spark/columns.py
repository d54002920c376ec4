"""Computes the tasks of a source's rows from whole columns, if no operator or function must see the rows before.


Keeps true: the result has the same rows, in the same order, as if they were addressed one by one.
            A record without key stays with its partition, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from felice.records.arrow import key_hashes

SHORT_RUN = 50


def address_columns(
    batch: pa.RecordBatch, part_of: Mapping[str, int], places: int, schema: pa.Schema
) -> pa.RecordBatch | None:
    """The rows with their part and place; None if `part_of` lacks one of their topics."""
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    if not part_of.keys() >= set(names):
        return None
    parts = np.array([part_of[name] for name in names], np.int32)[topics.indices.to_numpy()]
    made = {name: batch.column(name) for name in ("topic", "key", "value")} | {
        "headers": never_null(batch.column("headers")),
        "part": pa.array(parts),
        "place": pa.array(places_of(batch.column("key"), batch.column("partition").to_numpy(), places)),
        "origin": pc.binary_join_element_wise(
            batch.column("topic"), batch.column("partition").cast(pa.string()), "-"
        ),
        "seq": batch.column("offset"),
        "timestamp": pa.array(milliseconds_of(batch)),
    }
    arrays = [made[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def milliseconds_of(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    """The timestamps, which Spark gives in microseconds, in milliseconds."""
    microseconds: np.ndarray[Any, Any] = batch.column("timestamp").cast(pa.int64()).to_numpy()
    return microseconds // 1000


def runs_of_partitions(batch: pa.RecordBatch) -> list[pa.RecordBatch] | None:
    """The runs of consecutive rows of one partition; None if most runs would be short."""
    topics = batch.column("topic").dictionary_encode().indices.to_numpy()
    partitions = batch.column("partition").to_numpy()
    starts = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
    if len(starts) * SHORT_RUN > len(batch):
        return None
    bounds = [0, *starts.tolist(), len(batch)]
    return [batch.slice(start, end - start) for start, end in pairwise(bounds)]


def never_null(lists: pa.ListArray) -> pa.ListArray:
    """The column of lists, with empty lists in place of nulls.

    Spark counts the bytes that it sends to Python after each row. For a column of lists, each count walks through all
    nulls since the last list, so the time grows with the square of the number of nulls.

    The result holds no other values than those of its lists: Arrow would write them again with each slice.
    """
    ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(np.insert(ends, 0, 0)), lists.flatten())


def places_of(keys: pa.Array, otherwise: np.ndarray[Any, Any], places: int) -> np.ndarray[Any, Any]:
    """The partition of each key, chosen like Kafka's partitioner. A null key uses the number in its row instead."""
    hashes = pc.fill_null(key_hashes(keys), -1).to_numpy(zero_copy_only=False)
    chosen: np.ndarray[Any, Any] = (np.where(hashes < 0, otherwise, hashes) % places).astype(np.int32)
    return chosen
