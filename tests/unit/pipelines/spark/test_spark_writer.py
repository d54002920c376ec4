from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.schema import HEADERS, source_schema
from felice.pipelines.spark.source import FeliceDataSource
from felice.pipelines.spark.writer import SchemaError, check_schema

WITH_TOPIC = SinkOptions.parse({"kafka.bootstrap.servers": "h:1", "topic": "out"})
WITHOUT_TOPIC = SinkOptions.parse({"kafka.bootstrap.servers": "h:1"})


def schema(**columns: object) -> StructType:
    found = StructType()
    for name, column_type in columns.items():
        found = found.add(name, column_type)
    return found


@pytest.mark.parametrize(
    "columns",
    [
        {"value": "string"},
        {"value": "binary", "key": "string", "partition": "integer", "headers": HEADERS},
        {"value": "binary", "key": "binary", "topic": "string", "timestamp": "timestamp"},
    ],
)
def test_records_are_accepted(columns: dict[str, object]) -> None:
    check_schema(schema(**columns), WITH_TOPIC)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": "string"}, "no column 'value'"),
        ({"value": "integer"}, "'value' is int, but must be string or binary"),
        ({"value": "string", "key": "long"}, "'key' is bigint"),
        ({"value": "string", "partition": "string"}, "'partition' is string, but must be int"),
        ({"value": "string", "headers": "string"}, "'headers' is string, but must be array<struct<"),
        ({"value": "string", "timestamp": "long"}, "'timestamp' is bigint, but must be timestamp"),
        ({"value": "string", "Key": "string"}, "'Key' is no part of a record"),
        ({"value": "string", "offset": "long"}, "'offset' is no part of a record"),
    ],
)
def test_what_is_no_record_is_refused_before_it_is_written(columns: dict[str, object], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        check_schema(schema(**columns), WITH_TOPIC)


def test_rows_must_say_where_they_go() -> None:
    with pytest.raises(OptionError, match="no column 'topic'"):
        check_schema(schema(value="string"), WITHOUT_TOPIC)
    check_schema(schema(value="string", topic="string"), WITHOUT_TOPIC)


def source(**options: str) -> FeliceDataSource:
    return FeliceDataSource({"kafka.bootstrap.servers": "h:1"} | options)


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source(topic="out").writer(schema=schema(value="string"), overwrite=True)


def test_a_topics_columns_cannot_be_chosen() -> None:
    with pytest.raises(OptionError, match="columns are fixed"):
        source(subscribe="a").reader(schema=schema(value="string"))


def test_spark_is_told_of_a_stream_that_cannot_be_when_it_asks_for_offsets() -> None:
    refused = source(subscribe="a", endingOffsets="latest").streamReader(source_schema(False))
    for ask in (refused.initialOffset, refused.getDefaultReadLimit, refused.prepareForTriggerAvailableNow):
        with pytest.raises(OptionError, match="has no end"):
            ask()
    refused.stop()


def test_headers_are_a_column_only_if_asked() -> None:
    assert source(subscribe="a").schema() == source_schema(False)
    assert source(subscribe="a", includeHeaders="true").schema().names[-1] == "headers"
