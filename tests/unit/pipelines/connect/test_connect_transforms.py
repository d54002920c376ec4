"""Predicates, date patterns, regular expressions and refused configurations of transformations.

What transformations make of records is judged by Kafka's own: tests/properties/pipelines/test_connect_transforms.py.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from felice.pipelines.connect.model.errors import ConfigError, DataError
from felice.pipelines.connect.model.record import ConnectRecord, Header, SourceRecord
from felice.pipelines.connect.transforms.casting import TARGETS, Cast, cast
from felice.pipelines.connect.transforms.fields import InsertField, MaskField, ReplaceField
from felice.pipelines.connect.transforms.headers import DropHeaders, HeaderFrom
from felice.pipelines.connect.transforms.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from felice.pipelines.connect.transforms.routing import RegexRouter, SetSchemaMetadata, TimestampRouter
from felice.pipelines.connect.transforms.transformation import Transformation
from felice.pipelines.java.patterns import DatePattern, replaced
from felice.pipelines.java.regex import compiled

RECORD = ConnectRecord(
    "orders-7", 0, None, None, None, {"a": 1}, 5, (Header("h", None, "x"), Header("i", None, 1))
)


def made(kind: type[Transformation], **config: str) -> Transformation:
    return kind(kind.definitions.parse({name.replace("_", "."): value for name, value in config.items()}))


def test_predicates() -> None:
    matches = TopicNameMatches(TopicNameMatches.definitions.parse({"pattern": "orders-.*"}))
    assert matches.test(RECORD)
    assert not TopicNameMatches({"pattern": "orders"}).test(RECORD)
    assert HasHeaderKey({"name": "i"}).test(RECORD) and not HasHeaderKey({"name": "x"}).test(RECORD)
    tombstone = RecordIsTombstone({})
    assert not tombstone.test(RECORD)
    assert tombstone.test(ConnectRecord("t", 0, None, "k", None, None))
    with pytest.raises(ConfigError, match="configuration name: String must be non-empty"):
        HasHeaderKey.definitions.parse({"name": ""})


def test_headers_are_dropped_by_name() -> None:
    found = made(DropHeaders, headers="h,z").apply(RECORD)
    assert found is not None and [one.name for one in found.headers] == ["i"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyyMMdd", "20200301"),
        ("yy-M-d", "20-3-1"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2020-03-01T00:00:01.234Z"),
        ("h a, k, K", "12 AM, 24, 0"),
        ("EEE EEEE MMM MMMM D u", "Sun Sunday Mar March 61 7"),
        ("'o''clock' ''", "o'clock '"),
        ("Z X z", "+0000 Z UTC"),
        ("", ""),
    ],
)
def test_date_patterns(pattern: str, text: str) -> None:
    moment = datetime.datetime(2020, 3, 1, 0, 0, 1, 234_567, tzinfo=datetime.UTC)
    assert DatePattern(pattern).format(moment) == text


@pytest.mark.parametrize(
    ("pattern", "why"), [("yyyy-'x", "Unterminated quote"), ("YYYY", "the letter Y is not supported")]
)
def test_date_patterns_that_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"for configuration timestamp.format: {why}"):
        made(TimestampRouter, timestamp_format=pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "replacement", "result"),
    [
        ("(?<n>a+)(b)", "aab", "${n}-$2", "aa-b"),
        ("(a)(b)?", "a", "[$1$2]", "[a]"),
        (r"\(?<a", "<a", r"\$1\\", "$1\\"),
        ("a(?<=a)b(?<!c)", "ab", "x", "x"),
    ],
)
def test_regular_expressions_of_java(pattern: str, text: str, replacement: str, result: str) -> None:
    found = compiled(pattern).fullmatch(text)
    assert found is not None and replaced(found, replacement) == result


def test_a_group_that_does_not_exist_is_an_error() -> None:
    found = re.fullmatch("a", "a")
    assert found is not None
    with pytest.raises(ValueError, match="No group 3 in the regular expression a"):
        replaced(found, "$3")
    with pytest.raises(DataError, match="No group 3 in the regular expression orders-7"):
        made(RegexRouter, regex="orders-7", replacement="$3").apply(RECORD)
    with pytest.raises(ConfigError, match="configuration regex: Invalid regex"):
        made(RegexRouter, regex=r"\p{L}", replacement="x")


@pytest.mark.parametrize(
    ("kind", "config", "why"),
    [
        (InsertField, {}, "No field insertion configured"),
        (InsertField, {"static_field": "a"}, "No value specified for static field"),
        (ReplaceField, {"renames": "a"}, "expected pairs such as foo:bar"),
        (ReplaceField, {"renames": "a:b:c"}, "expected pairs such as foo:bar"),
        (MaskField, {"fields": "a", "replacement": ""}, "String must be non-empty"),
        (MaskField, {"fields": ""}, "Empty list"),
        (SetSchemaMetadata, {}, "Neither schema name nor version configured"),
        (HeaderFrom, {"fields": "a", "headers": "b,c", "operation": "copy"}, "the same number of elements"),
        (HeaderFrom, {"fields": "a", "headers": "b", "operation": "take"}, "must be one of: move, copy"),
    ],
)
def test_configurations_that_are_refused(
    kind: type[Transformation], config: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        made(kind, **config)


def test_a_source_record_has_no_offset_of_a_topic() -> None:
    record = SourceRecord("t", None, None, None, None, {})
    found = made(InsertField, topic_field="t", partition_field="p").apply(record)
    assert found is not None and found.value == {"t": "t"}
    with pytest.raises(DataError, match="only supported for sink connectors"):
        made(InsertField, offset_field="o").apply(record)


def test_a_route_by_time_needs_a_time() -> None:
    with pytest.raises(DataError, match="Timestamp missing on record: t"):
        made(TimestampRouter).apply(SourceRecord("t", None, None, None, None, {}))


@pytest.mark.parametrize(
    ("value", "target", "result"),
    [
        (300, "int8", 44),
        (2.9, "int8", 2),
        (-1e300, "int16", 0),
        (1e300, "int32", (1 << 31) - 1),
        (1e300, "int64", (1 << 63) - 1),
        (float("nan"), "int64", 0),
        ("-7", "int8", -7),
        (True, "float64", 1.0),
        (" 1e3f ", "float64", 1000.0),
        ("Infinity", "float64", float("inf")),
        ("TRUE", "boolean", True),
        ("yes", "boolean", False),
        (0.4, "boolean", False),
        (1e7, "string", "1.0E7"),
        (1e6, "string", "1000000.0"),
        (0.001, "string", "0.001"),
        (1.5e-4, "string", "1.5E-4"),
        (-0.0, "string", "-0.0"),
        (b"ab", "string", "YWI="),
        (True, "string", "true"),
        (0.1, "float32", 0.1),
        (None, "int8", None),
    ],
)
def test_values_are_cast_as_java_casts_them(value: Any, target: str, result: Any) -> None:
    assert cast(None, value, TARGETS[target]) == result


@pytest.mark.parametrize(
    ("value", "target"),
    [("128", "int8"), ("1.5", "int32"), (" 1", "int64"), ("x", "float64"), ("", "float32"), ([], "string")],
)
def test_values_that_cannot_be_cast(value: Any, target: str) -> None:
    with pytest.raises(DataError):
        cast(None, value, TARGETS[target])


@pytest.mark.parametrize("spec", ["a:date", "a:b:int8", ":int8", "int8,a:int8", ""])
def test_specs_that_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        made(Cast, spec=spec)
