from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.streams.formats import (
    FORMATS,
    UNREADABLE,
    UNWRITABLE,
    FormatError,
    change_of,
    format_of,
    pair_of,
    session_windowed,
    time_windowed,
)
from felice.pipelines.streams.record import Change, Window, Windowed

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "string": st.text(),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False),
}


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
def test_a_value_comes_back_from_its_bytes_and_from_a_store(name: str, data: st.DataObject) -> None:
    format_, value = FORMATS[name], data.draw(VALUES[name])
    assert format_.read(format_.write(value)) == value
    assert format_.unpack(format_.pack(value)) == value
    hash(format_.pack(value))
    assert format_.decode_all(format_.encode_all([value, None])) == [value, None]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_json_is_read_in_each_encoding_of_unicode(encoding: str) -> None:
    assert FORMATS["json"].read('{"a": ["ü", 1]}'.encode(encoding)) == {"a": ["ü", 1]}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_can_be_sent_to_workers(name: str) -> None:
    value = {"bytes": b"x", "string": "x"}.get(name, 7)
    assert pickle.loads(pickle.dumps(FORMATS[name])).write(value) == FORMATS[name].write(value)


def test_numbers_are_those_of_kafkas_serializers() -> None:
    assert FORMATS["long"].write(258) == bytes([0, 0, 0, 0, 0, 0, 1, 2])
    assert FORMATS["int"].write(-1) == b"\xff" * 4
    assert FORMATS["double"].write(1.0) == bytes([0x3F, 0xF0, 0, 0, 0, 0, 0, 0])


def test_windowed_keys_are_those_of_kafkas_serializers() -> None:
    key = Windowed("k", Window(258, 268))
    windowed = time_windowed(FORMATS["string"], 10)
    assert windowed.write(key) == b"k" + bytes([0, 0, 0, 0, 0, 0, 1, 2])
    sessions = session_windowed(FORMATS["string"])
    assert sessions.write(key) == b"k" + bytes([0, 0, 0, 0, 0, 0, 1, 12]) + bytes([0, 0, 0, 0, 0, 0, 1, 2])
    for format_ in (windowed, sessions):
        assert format_.read(format_.write(key)) == key
        assert format_.unpack(format_.pack(key)) == key


@given(st.none() | st.text(), st.none() | st.text())
def test_a_change_comes_back_with_both_values(new: str | None, old: str | None) -> None:
    format_ = change_of(FORMATS["string"])
    assert format_.read(format_.write(Change(new, old))) == Change(new, old)


@given(st.lists(st.none() | st.tuples(st.none() | st.text(), st.none() | st.text())))
def test_a_column_of_pairs_is_written_and_read_like_single_pairs(
    pairs: list[tuple[str | None, str | None] | None],
) -> None:
    changes = [None if pair is None else Change(*pair) for pair in pairs]
    text = FORMATS["string"]
    for format_, values in ((change_of(text), changes), (pair_of(text, text), pairs)):
        written = [format_.encode(value) for value in values]
        assert format_.encode_all(list(values)) == written
        assert format_.decode_all(written) == values
        assert [type(one) for one in format_.decode_all(written)] == [type(one) for one in values]


def test_null_is_null_in_every_format() -> None:
    for format_ in FORMATS.values():
        assert format_.encode(None) is None
        assert format_.decode(None) is None


@pytest.mark.parametrize(
    ("name", "data"), [("json", b"{"), ("json", b"[" * 1_000_000), ("string", b"\xff"), ("long", b"abc")]
)
def test_bytes_of_another_format_are_told(name: str, data: bytes) -> None:
    with pytest.raises(FormatError, match=f"is not {name}"):
        FORMATS[name].decode(data)
    with pytest.raises(UNREADABLE):
        FORMATS[name].decode_all([data])


@pytest.mark.parametrize(
    ("name", "value"), [("json", {1, 2}), ("string", 5), ("long", "x"), ("int", 1 << 40)]
)
def test_a_value_that_a_format_cannot_hold_is_told(name: str, value: Any) -> None:
    with pytest.raises(FormatError, match=f"cannot be written as {name}"):
        FORMATS[name].encode(value)
    with pytest.raises(UNWRITABLE):
        FORMATS[name].encode_all([value])


def test_an_unknown_format_is_told_with_those_that_exist() -> None:
    with pytest.raises(
        ValueError, match="no format 'avro'; formats are bytes, string, json, int, long, double"
    ):
        format_of("avro")
