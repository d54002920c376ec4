"""Rows of any types come back from each format that can hold them."""

from __future__ import annotations

import decimal
import math
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows import FormatDescription, check, row_format, tuples
from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.numbers import DAY_MS
from felice.pipelines.sql.rows.plain import plain_of, value_of
from felice.pipelines.sql.rows.registry import MemoryRegistry
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)
from felice.pipelines.streams.formats import Format, session_windowed, time_windowed
from felice.pipelines.streams.record import Window, Windowed

INTS, LONGS = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INTEGER: INTS,
    BIGINT: LONGS,
    DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    STRING: TEXTS,
    BYTES: st.binary(max_size=5),
    DATE: st.integers(-700_000, 2_900_000),
    TIME: st.integers(0, DAY_MS),
    TIMESTAMP: st.integers(-62_000_000_000_000, 253_000_000_000_000),
}
SCALARS: st.SearchStrategy[SqlType] = st.sampled_from(list(VALUES)) | st.builds(
    lambda whole, scale: Decimal(whole + scale, scale), st.integers(1, 25), st.integers(0, 20)
)
NAMES = st.sampled_from(["A", "B", "ID", "N_1", "low"])


def fields_of(types: st.SearchStrategy[SqlType]) -> st.SearchStrategy[Columns]:
    pairs = st.lists(st.tuples(NAMES, types), min_size=1, max_size=4, unique_by=lambda pair: pair[0])
    return pairs.map(tuple)


TYPES: st.SearchStrategy[SqlType] = st.recursive(
    SCALARS,
    lambda inner: (
        st.builds(Array, inner) | st.builds(Map, st.just(STRING), inner) | st.builds(Struct, fields_of(inner))
    ),
    max_leaves=5,
)


def values_of(type_: SqlType, is_null: bool = True) -> st.SearchStrategy[Any]:
    """Values of a type; `is_null` says whether null is among them, also inside."""
    match type_:
        case Decimal(precision, scale):
            end = 10**precision - 1
            made: Any = st.integers(-end, end).map(lambda whole: decimal.Decimal(f"{whole}E-{scale}"))
        case Array(element):
            made = st.lists(values_of(element, is_null), max_size=3)
        case Map(key, member):
            made = st.dictionaries(values_of(key, False), values_of(member, is_null), max_size=3)
        case Struct(fields):
            made = st.tuples(*(values_of(one, is_null) for _, one in fields))
        case _:
            made = VALUES[type_]
    found: st.SearchStrategy[Any] = st.none() | made if is_null else made
    return found


def rows_of(
    columns: st.SearchStrategy[Columns], is_null: bool = True
) -> st.SearchStrategy[tuple[Columns, Any]]:
    return columns.flatmap(
        lambda found: st.tuples(st.just(found), st.tuples(*(values_of(one, is_null) for _, one in found)))
    )


def shape(value: Any) -> Any:
    """A value that equals another one only if types, scales and signs are the same, too."""
    if isinstance(value, list | tuple):
        return [type(value), *map(shape, value)]
    if isinstance(value, dict):
        return {shape(name) if isinstance(name, str) else name: shape(one) for name, one in value.items()}
    return type(value), repr(value)


@contextmanager
def without_msgspec() -> Iterator[None]:
    with patch.dict(sys.modules, {"msgspec": None}):
        yield


def format_of(name: str, columns: Columns, is_key: bool = False, **options: Any) -> Format:
    description = FormatDescription(name, **options)
    return row_format(description, columns, registry=MemoryRegistry(), subject="t-value", is_key=is_key)


few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(rows_of(fields_of(TYPES)))
@pytest.mark.parametrize("name", ["JSON", "JSON_SR", "AVRO"])
def test_formats_with_null_hold_all_values(name: str, case: tuple[Columns, Any]) -> None:
    columns, row = case
    format_ = format_of(name, columns)
    assert shape(format_.read(format_.write(row))) == shape(row)
    assert format_.decode_all(format_.encode_all([row, None])) == [row, None]


@few
@given(rows_of(st.tuples(st.tuples(NAMES, TYPES))))
@pytest.mark.parametrize("name", ["JSON", "JSON_SR", "AVRO"])
def test_a_bare_value_comes_back_and_null_has_no_bytes(name: str, case: tuple[Columns, Any]) -> None:
    columns, row = case
    format_ = format_of(name, columns, is_wrapped=False)
    data = format_.encode(row)
    assert (data is None) == (row == (None,))
    assert format_.encode_all([row, None]) == [data, None]
    assert shape(format_.decode(data)) == shape(None if data is None else row)


@few
@given(rows_of(fields_of(SCALARS | st.builds(Struct, fields_of(SCALARS))), is_null=True))
@pytest.mark.parametrize("nullable", ["OPTIONAL", "WRAPPER"])
@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR"])
def test_protobuf_with_null_holds_all_values(name: str, nullable: str, case: tuple[Columns, Any]) -> None:
    columns, row = case
    format_ = format_of(name, columns, nullable=nullable)
    assert shape(format_.read(format_.write(row))) == shape(row)


def has_nested_lists(type_: SqlType) -> bool:
    try:
        check(FormatDescription("PROTOBUF"), (("A", type_),), False)
    except ValueError:
        return True
    return False


@few
@given(rows_of(fields_of(TYPES.filter(lambda type_: not has_nested_lists(type_))), is_null=False))
@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR"])
def test_protobuf_holds_all_values_but_null(name: str, case: tuple[Columns, Any]) -> None:
    columns, row = case
    format_ = format_of(name, columns)
    assert shape(format_.read(format_.write(row))) == shape(row)


@few
@given(rows_of(fields_of(SCALARS)), st.sampled_from([None, "TAB", "SPACE", "|", "x"]))
def test_delimited_holds_rows_of_scalars(case: tuple[Columns, Any], delimiter: str | None) -> None:
    columns, row = case
    format_ = format_of("DELIMITED", columns, delimiter=delimiter)
    # Empty is null, and a line with nothing in it is no row.
    expected = tuple(None if value in ("", b"") else value for value in row)
    data = format_.write(row)
    if data:
        assert shape(format_.read(data)) == shape(expected)
    else:
        assert expected == (None,)


@few
@given(rows_of(st.tuples(st.tuples(NAMES, st.sampled_from([INTEGER, BIGINT, DOUBLE, STRING, BYTES])))))
def test_kafka_holds_one_column(case: tuple[Columns, Any]) -> None:
    columns, row = case
    format_ = format_of("KAFKA", columns, is_key=True)
    assert shape(format_.decode(format_.encode(row))) == shape(None if row == (None,) else row)


ANY_KEYS = st.builds(Map, st.sampled_from([INTEGER, DOUBLE, BYTES, Decimal(5, 2)]), SCALARS)


@few
@given(rows_of(fields_of(TYPES | ANY_KEYS)))
def test_packed_rows_are_the_same_bytes_with_and_without_msgspec(case: tuple[Columns, Any]) -> None:
    columns, row = case
    fast, slow = tuples(columns), tuples(columns)
    with without_msgspec():
        assert slow.write(row) == fast.write(row)
        assert shape(slow.read(slow.write(row))) == shape(row)
    assert shape(fast.decode_all(fast.encode_all([row]))[0]) == shape(row)
    assert shape(fast.unpack(pickle.loads(pickle.dumps(fast.pack(row))))) == shape(row)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (STRING, "\ud800x"),
        (Array(STRING), ["a" * 40, "\udfff"]),
        (Map(STRING, STRING), {None: "x", "\ud800": None}),
        (Map(INTEGER, Array(BYTES)), {None: [b"", None], 300: None}),
        (Array(Struct((("X", DATE), ("Y", Array(STRING))))), [(3, ["a", None]), None, (None, None)]),
        (Map(Decimal(5, 2), Struct((("X", BIGINT),))), {decimal.Decimal("1.10"): (1,)}),
        (BIGINT, -5),
        (DOUBLE, -0.0),
        (DOUBLE, math.inf),
        (BIGINT, -(1 << 63)),
        (Decimal(50, 3), decimal.Decimal("12345678901234567890123456789012345678901234.560")),
    ],
)
def test_packed_rows_hold_odd_values(type_: SqlType, value: Any) -> None:
    format_ = tuples((("A", type_), ("B", INTEGER)))
    data = format_.write((value, 1))
    assert shape(format_.read(data)) == shape((value, 1))
    with without_msgspec():
        slow = tuples(format_.columns)
        assert slow.write((value, 1)) == data and shape(slow.read(data)) == shape((value, 1))
    assert format_.encode_all([(value, 1)]) == [data] and shape(format_.decode_all([data])) == shape(
        [(value, 1)]
    )


@pytest.mark.parametrize(
    "data", [b"", b"\x92\x01", b"\x92\x01\x02\x03", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xd9\x05a"]
)
def test_other_bytes_are_no_packed_rows(data: bytes) -> None:
    columns = (("A", INTEGER), ("B", INTEGER))
    with pytest.raises(FormatError, match="is not packed rows"):
        tuples(columns).decode(data)
    with without_msgspec(), pytest.raises(FormatError, match="is not packed rows"):
        tuples(columns).decode(data)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, object()])
def test_other_values_are_not_packed(value: Any) -> None:
    with pytest.raises(FormatError, match="cannot be written as packed rows"):
        tuples((("A", INTEGER),)).encode((value,))
    with without_msgspec(), pytest.raises(FormatError, match="cannot be written as packed rows"):
        tuples((("A", INTEGER),)).encode((value,))


def test_a_row_that_cannot_change_is_its_own_packed_form() -> None:
    row = (1, "a", math.nan)
    assert tuples((("A", INTEGER), ("B", STRING), ("C", DOUBLE))).pack(row) is row
    assert isinstance(tuples((("A", Array(INTEGER)),)).pack(([1],)), bytes)
    assert math.isnan(tuples((("C", DOUBLE),)).read(tuples((("C", DOUBLE),)).write((math.nan,)))[0])


@few
@given(TYPES.flatmap(lambda type_: st.tuples(st.just(type_), values_of(type_))))
def test_plain_values_come_back(case: tuple[SqlType, Any]) -> None:
    type_, value = case
    assert shape(value_of(type_, plain_of(type_, value))) == shape(value)


KEY: Columns = (("ID", BIGINT), ("N", STRING))
FORMATS: list[Callable[[], Format]] = [
    lambda: format_of("JSON", KEY, is_key=True),
    lambda: format_of("DELIMITED", KEY, is_key=True),
    lambda: format_of("AVRO", KEY, is_key=True),
    lambda: format_of("PROTOBUF_NOSR", KEY, is_key=True),
    lambda: format_of("KAFKA", (("ID", BIGINT),), is_key=True),
    lambda: format_of("JSON", (("ID", BIGINT),), is_key=True),
    lambda: tuples(KEY),
]


@pytest.mark.parametrize("make", FORMATS)
def test_formats_stand_in_windowed_keys(make: Callable[[], Format]) -> None:
    key = make()
    row = (7, "x")[: len(key.columns)]  # type: ignore[attr-defined]
    windowed = Windowed(row, Window(1000, 3000))
    for format_ in (time_windowed(key, 2000), session_windowed(key)):
        assert format_.read(format_.write(windowed)) == windowed


@pytest.mark.parametrize("make", [*FORMATS[:2], *FORMATS[3:]])
def test_formats_are_values_that_travel(make: Callable[[], Format]) -> None:
    format_ = make()
    row = (7, "x")[: len(format_.columns)]  # type: ignore[attr-defined]
    data = format_.write(row)  # What it makes for this stays here.
    copy = pickle.loads(pickle.dumps(format_))
    assert copy == format_ == make() and hash(copy) == hash(format_)
    assert copy.read(data) == row
