"""The compiled and the plain kernels return the same results and the same errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.records.kernels import plain, plain_columns
from felice.records.kernels.grammar import BinaryColumn, HeadersColumn, RowColumns

compiled = pytest.importorskip("felice.records.kernels._kernels", reason="the extension was not built")

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3)
RECORDS = st.lists(st.tuples(INT32, INT64, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), max_size=12)


def encoded(records: list[Any]) -> bytearray:
    out = bytearray()
    for record in records:
        plain.encode_record(out, *record)
    return out


def outcome(call: Callable[[], Any]) -> Any:
    """The result or the error of a call, comparable between both kernels."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error), getattr(error, "record_errors", None)


def flat(value: Any) -> Any:
    """Converts buffers of any type to bytes."""
    if isinstance(value, tuple):
        return tuple(flat(item) for item in value)
    return value if value is None or isinstance(value, int | str | type | list) else bytes(value)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Encoded records and a count; often valid, often with a byte changed, cut or added."""
    records = draw(RECORDS)
    payload = encoded(records)
    count = len(records)
    for _ in range(draw(st.integers(0, 2))):
        match draw(st.sampled_from(["byte", "cut", "add", "count"])):
            case "byte" if payload:
                payload[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
            case "cut":
                del payload[draw(st.integers(0, len(payload))) :]
            case "add":
                payload += draw(st.binary(max_size=12))
            case "count":
                count = draw(st.integers(-2, len(records) + 2) | INT32)
    return bytes(payload), count


ANY_PAYLOAD = payloads() | st.tuples(st.binary(max_size=60), st.integers(0, 8))


@given(ANY_PAYLOAD, INT64)
def test_scan(case: tuple[bytes, int], base_timestamp: int) -> None:
    expected = outcome(lambda: plain.scan(*case, base_timestamp))
    assert outcome(lambda: compiled.scan(*case, base_timestamp)) == expected


@given(ANY_PAYLOAD, INT64, INT64, st.none() | INT64)
def test_iterate(case: tuple[bytes, int], base_offset: int, base_timestamp: int, append: int | None) -> None:
    expected = outcome(lambda: plain.iterate(*case, base_offset, base_timestamp, append))
    found = outcome(lambda: compiled.iterate(*case, base_offset, base_timestamp, append))
    assert found == expected
    if isinstance(found, list):
        assert [type(record) for record in found] == [type(record) for record in expected]
        # From Python 3.14 on a tuple keeps its hash.
        assert list(map(hash, found)) == list(map(hash, expected))


class Wrapped:
    __slots__ = ("_error", "_origin", "_record")


@given(ANY_PAYLOAD, INT64, INT64, st.none() | INT64, INT64)
def test_wrapped_records(
    case: tuple[bytes, int], base_offset: int, base_timestamp: int, append: int | None, first_offset: int
) -> None:
    def wrapped_by(kernels: Any, first: int) -> Any:
        wrapper, origin = kernels.RecordWrapper(Wrapped), "origin"
        wrapped = wrapper.wrap(*case, base_offset, base_timestamp, append, first, origin)
        return [(type(each), type(each._record), each._record, each._origin, each._error) for each in wrapped]

    for first in (-(2**63), base_offset, first_offset):
        assert outcome(lambda: wrapped_by(compiled, first)) == outcome(lambda: wrapped_by(plain, first))  # noqa: B023


def test_a_wrapper_needs_its_slots() -> None:
    with pytest.raises(KeyError):
        compiled.RecordWrapper(object)

    class Impostor:
        _record = _origin = _error = None

    with pytest.raises(TypeError):
        compiled.RecordWrapper(Impostor)


@given(INT32, INT64, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS)
def test_encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: list[Any]
) -> None:
    expected, found = bytearray(b"room"), bytearray(b"room")
    size = plain.encode_record(expected, offset_delta, timestamp_delta, key, value, headers)
    assert compiled.encode_record(found, offset_delta, timestamp_delta, key, value, headers) == size
    assert found == expected
    wrapped = bytearray(b"room")
    view = value if value is None else memoryview(bytearray(value))
    compiled.encode_record(wrapped, offset_delta, timestamp_delta, key, view, headers)
    assert wrapped == expected


@pytest.mark.parametrize("delta", [(2**31, 0), (0, 2**63), (-(2**31) - 1, 0), (0, -(2**63) - 1)])
def test_a_delta_that_does_not_fit_is_an_overflow_in_both(delta: tuple[int, int]) -> None:
    for twin in (plain, compiled):
        with pytest.raises(OverflowError):
            twin.encode_record(bytearray(), *delta, None, None)


BATCH = st.tuples(
    ANY_PAYLOAD, st.integers(-5, 20) | INT64, INT64, st.none() | INT64, st.integers(-9, 20), INT64
)


def columns_of(module: Any, batches: list[Any], with_headers: bool) -> Any:
    columns = module.ArrowColumns(with_headers)
    outcomes = []
    for (payload, count), base_offset, base_timestamp, append, start, end in batches:
        appended = partial(columns.append, payload, count, base_offset, base_timestamp, append, start, end)
        outcomes.append(outcome(appended))
        outcomes.append((columns.rows, columns.data_bytes))
    return outcomes, flat(columns.finish())


@given(st.lists(BATCH, max_size=4), st.booleans())
@settings(max_examples=300)
def test_columns(batches: list[Any], with_headers: bool) -> None:
    expected = columns_of(plain_columns, batches, with_headers)
    assert columns_of(compiled, batches, with_headers) == expected


def test_columns_of_many_rows_keep_their_bitmaps() -> None:
    records: list[Any] = []
    for row in range(203):
        key = None if row % 3 else b"k"
        value = None if row % 7 == 0 else b"v" * (row % 5)
        records.append((row, row, key, value, [("h", None if row % 2 else b"x")] * (row % 4)))
    broken = bytes(encoded(records[:50])) + b"\x01"
    batches = [
        ((bytes(encoded(records[:101])), 101), 0, 0, None, 3, 90),
        ((broken, 50), 0, 0, None, 0, 2**62),
        ((bytes(encoded(records[101:])), 102), 1000, 0, 5, 0, 2**62),
    ]
    expected = columns_of(plain_columns, batches, True)
    assert columns_of(compiled, batches, True) == expected
    assert expected[0][-1][0] == 87 + 102


@st.composite
def binary_columns(draw: st.DrawFn, rows: int) -> BinaryColumn:
    """A column with this number of rows, sometimes with wrong offsets or lengths."""
    is_large = draw(st.booleans())
    array_offset = draw(st.integers(0, 3))
    cells = draw(st.lists(st.binary(max_size=40), min_size=rows + array_offset, max_size=rows + array_offset))
    offsets = [0]
    for cell in cells:
        offsets.append(offsets[-1] + len(cell))
    data = b"".join(cells)
    if offsets and draw(st.integers(0, 9)) == 0:
        offsets[draw(st.integers(0, len(offsets) - 1))] = draw(st.integers(-3, len(data) + 3))
    packed = pack(f"={len(offsets)}{'q' if is_large else 'i'}", *offsets)
    if draw(st.integers(0, 19)) == 0:
        packed = packed[: draw(st.integers(0, len(packed)))]
    validity = draw(st.none() | st.binary(min_size=(len(cells) + 7) // 8, max_size=(len(cells) + 7) // 8 + 1))
    if validity and draw(st.integers(0, 19)) == 0:
        validity = validity[:-1]
    return BinaryColumn(validity, packed, data, array_offset, is_large)


@st.composite
def row_columns(draw: st.DrawFn) -> tuple[RowColumns, int]:
    rows = draw(st.integers(0, 12))
    timestamps = draw(st.lists(INT64, min_size=rows, max_size=rows))
    headers = None
    if draw(st.booleans()):
        counts = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
        bounds = [sum(counts[:row]) for row in range(rows + 1)]
        if draw(st.integers(0, 9)) == 0:
            bounds[draw(st.integers(0, rows))] = draw(st.integers(-2, 9))
        total = max(bounds[-1], 0)
        validity = draw(st.none() | st.binary(min_size=(rows + 7) // 8, max_size=2))
        headers = HeadersColumn(
            validity,
            pack(f"={rows + 1}i", *bounds),
            0,
            draw(binary_columns(total))._replace(validity=None),
            draw(binary_columns(total)),
        )
    keys = draw(st.none() | binary_columns(rows))
    values = draw(st.none() | binary_columns(rows))
    return RowColumns(keys, values, pack(f"={rows}q", *timestamps), headers), rows


@given(row_columns(), st.integers(-1, 200), st.data())
@settings(max_examples=300)
def test_encode_rows(case: tuple[RowColumns, int], target_bytes: int, data: st.DataObject) -> None:
    columns, rows = case
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows + 1))
    room = data.draw(st.integers(0, 70))
    expected = outcome(lambda: plain_columns.encode_rows(columns, start, stop, target_bytes, room))
    assert outcome(lambda: compiled.encode_rows(columns, start, stop, target_bytes, room)) == expected


@given(st.binary(max_size=40))
def test_murmur2(key: bytes) -> None:
    assert compiled.murmur2(key) == plain_columns.murmur2(key)


@given(st.integers(0, 9).flatmap(lambda rows: st.tuples(binary_columns(rows), st.just(rows))))
def test_murmur2_column(case: tuple[BinaryColumn, int]) -> None:
    expected = outcome(lambda: plain_columns.murmur2_column(*case))
    assert outcome(lambda: compiled.murmur2_column(*case)) == expected
