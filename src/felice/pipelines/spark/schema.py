"""The columns of a topic, exactly as in Spark's own Kafka source.

Keeps true: a query that was written for `format("kafka")` finds the same names and types.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]


def source_schema(include_headers: bool) -> StructType:
    """The columns of the source; `headers` comes last, with the option `includeHeaders`."""
    headers = [StructField("headers", HEADERS)] if include_headers else []
    return StructType([*_COLUMNS, *headers])
