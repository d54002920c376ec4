"""DataFrames as inputs of applications, and results of applications as DataFrames.

Keeps true: both have the columns of `format("felice")` that make a record: key, value, timestamp, headers.
How:        Rows of a DataFrame become records like those of a topic: the partition is that of Spark's task, and the
            offset is the row's place in it. So a batch that runs again takes its rows in the same order if the
            DataFrame makes them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from felice.pipelines.spark import schema
from felice.pipelines.spark.writer import SchemaError, check_columns
from felice.pipelines.streams.on_spark import packs
from felice.pipelines.streams.on_spark.identity import check_query
from felice.pipelines.streams.on_spark.rows import HEADERS
from felice.pipelines.streams.on_spark.stage import Plan, packed_source
from felice.pipelines.streams.topology import TopologyError

SPARK_HEADERS = schema.HEADERS.simpleString()
SPARK_SCHEMA = f"key binary, value binary, timestamp timestamp, headers {SPARK_HEADERS}"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES = {"key": pa.binary(), "value": pa.binary(), "timestamp": _TIMESTAMP, "headers": HEADERS}


def packs_of_frame(
    name: str, make: Callable[[SparkSession], DataFrame], spark: SparkSession, plan: Plan
) -> DataFrame:
    """The packs of a DataFrame's rows. Raises `TopologyError` if they cannot be records."""
    frame = make(spark)
    _check(name, frame)
    columns = [_column(frame, column) for column in _TYPES]
    return frame.select(*columns).mapInArrow(partial(packed_frame, plan=plan, name=name), packs.SPARK_SCHEMA)


def _check(name: str, frame: Any) -> None:
    if not isinstance(frame, DataFrame):
        raise TopologyError(
            f"the function of DataFrame {name!r} returned {type(frame).__name__}, not a DataFrame"
        )
    if not frame.isStreaming:
        raise TopologyError(f"DataFrame {name!r} is not a streaming one: make it with spark.readStream")
    try:
        check_columns(frame.schema, tuple(_TYPES))
    except SchemaError as error:
        raise TopologyError(f"DataFrame {name!r} cannot be read: {error}") from None


def _column(frame: DataFrame, name: str) -> Any:
    made = functions.col(name) if name in frame.columns else functions.lit(None)
    if name == "timestamp":
        # Spark's log has the time of a batch, so it is the same when the batch runs again.
        return functions.coalesce(made.cast("timestamp"), functions.current_timestamp()).alias(name)
    return made.cast(SPARK_HEADERS if name == "headers" else "binary").alias(name)


def packed_frame(batches: Iterable[pa.RecordBatch], plan: Plan, name: str) -> Iterator[pa.RecordBatch]:
    """The first stage of a DataFrame's rows: from its columns to packs."""
    context = TaskContext.get()
    assert context is not None, "Spark runs stages in tasks"
    yield from packed_source(_as_of_a_topic(batches, name, context.partitionId()), plan)


def _as_of_a_topic(batches: Iterable[pa.RecordBatch], name: str, partition: int) -> Iterator[pa.RecordBatch]:
    offset = 0
    for batch in batches:
        columns = _columns(batch)
        columns["topic"] = pa.repeat(pa.scalar(name), len(batch))
        columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), len(batch))
        columns["offset"] = pa.array(np.arange(offset, offset + len(batch)))
        offset += len(batch)
        yield pa.RecordBatch.from_pydict(columns)


def frame_of_packs(results: DataFrame, checkpoint: Path) -> DataFrame:
    """The records of packs, one for each row, for the query with this checkpoint."""
    return results.mapInArrow(partial(records, checkpoint=str(checkpoint)), SPARK_SCHEMA)


def records(batches: Iterable[pa.RecordBatch], checkpoint: str) -> Iterator[pa.RecordBatch]:
    """The last stage: from packs to the columns of a DataFrame."""
    check_query(checkpoint)
    for batch in packs.results(batches):
        yield pa.RecordBatch.from_pydict(_columns(batch))


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name).cast(kind) for name, kind in _TYPES.items()}
