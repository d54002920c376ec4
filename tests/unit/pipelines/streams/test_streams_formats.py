from __future__ import annotations

import pickle
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.errors import FormatError
from felice.pipelines.streams.formats import (
    FORMATS,
    UNREADABLE,
    UNWRITABLE,
    Format,
    change_of,
    format_of,
    pair_of,
    session_windowed,
    time_windowed,
)
from felice.pipelines.streams.record import Change, Window, Windowed
from felice.streams import App, TestDriver

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "string": st.text(),
    "json": st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).filter(lambda value: value is not None),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "double": st.floats(allow_nan=False),
    "short": st.integers(-(1 << 15), (1 << 15) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.uuids(),
}


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
def test_a_value_comes_back_from_its_bytes_and_from_a_store(name: str, data: st.DataObject) -> None:
    format_, value = FORMATS[name], data.draw(VALUES[name])
    assert format_.read(format_.write(value)) == value
    assert format_.unpack(format_.pack(value)) == value
    assert format_.decode_all(format_.encode_all([value, None])) == [value, None]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_json_is_read_in_each_encoding_of_unicode(encoding: str) -> None:
    assert FORMATS["json"].read('{"a": ["ü", 1]}'.encode(encoding)) == {"a": ["ü", 1]}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_can_be_sent_to_workers(name: str) -> None:
    others = {"bytes": b"x", "string": "x", "boolean": True, "uuid": uuid.UUID(int=7)}
    value = others.get(name, 7)
    assert pickle.loads(pickle.dumps(FORMATS[name])).write(value) == FORMATS[name].write(value)


def bytes_by_text(format_: Format, value: Any) -> Any:
    """What the expression of `written` gives."""
    text, names = format_.written("value")
    return eval(text.format(**{name: name for name in names}), {**names, "value": value})


@given(st.data())
@pytest.mark.parametrize("name", VALUES)
def test_the_text_of_a_format_writes_the_same_bytes(name: str, data: st.DataObject) -> None:
    value, form = data.draw(VALUES[name]), FORMATS[name]
    assert bytes_by_text(form, value) == form.writer(value)
    key = Windowed(value, Window(3, 13))
    for windowed in (time_windowed(form, 10), session_windowed(form)):
        assert bytes_by_text(windowed, key) == windowed.writer(key)


@given(st.data())
@pytest.mark.parametrize("name", VALUES)
def test_plain_values_are_their_own_packed_form(name: str, data: st.DataObject) -> None:
    value, form = data.draw(VALUES[name]), FORMATS[name]
    if type(value) is form.plain:
        assert form.pack(value) is value
        assert form.unpack(value) is value


def test_numbers_are_those_of_kafkas_serializers() -> None:
    assert FORMATS["long"].write(258) == bytes([0, 0, 0, 0, 0, 0, 1, 2])
    assert FORMATS["int"].write(-1) == b"\xff" * 4
    assert FORMATS["double"].write(1.0) == bytes([0x3F, 0xF0, 0, 0, 0, 0, 0, 0])
    assert FORMATS["short"].write(258) == bytes([1, 2])
    assert FORMATS["float"].write(1.0) == bytes([0x3F, 0x80, 0, 0])
    assert FORMATS["boolean"].write(True) == b"\1"
    assert FORMATS["uuid"].write(uuid.UUID(int=7)) == b"00000000-0000-0000-0000-000000000007"


def test_a_float_keeps_32_bits_in_a_store_too() -> None:
    narrow = FORMATS["float"]
    assert narrow.unpack(narrow.pack(0.1)) == narrow.read(narrow.write(0.1)) != 0.1


class Upper(Format):
    """A format of an application."""

    name = "upper"

    def write(self, value: Any) -> bytes:
        if not value.isupper():
            raise ValueError("expected capitals")
        return str(value).lower().encode()

    def read(self, data: bytes) -> str:
        return data.decode().upper()


def test_a_format_of_the_application() -> None:
    app = App("own", key=Upper(), value=Upper())
    app.stream("a").group_by_key().reduce(lambda one, other: one + other, name="all").to("out")
    driver = TestDriver(app)
    driver.send("a", "K", "ONE")
    driver.send_bytes("a", b"k", b"two")
    assert driver.table("all") == {"K": "ONETWO"}
    with pytest.raises(FormatError, match="'small' cannot be written as upper: expected capitals"):
        driver.send("a", "K", "small")


def test_windowed_keys_are_those_of_kafkas_serializers() -> None:
    key = Windowed("k", Window(258, 268))
    windowed = time_windowed(FORMATS["string"], 10)
    assert windowed.write(key) == b"k" + bytes([0, 0, 0, 0, 0, 0, 1, 2])
    sessions = session_windowed(FORMATS["string"])
    assert sessions.write(key) == b"k" + bytes([0, 0, 0, 0, 0, 0, 1, 12]) + bytes([0, 0, 0, 0, 0, 0, 1, 2])
    for format_ in (windowed, sessions):
        assert format_.read(format_.write(key)) == key
        assert format_.placed_by(format_.write(key)) == b"k"


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
    ("name", "data"),
    [
        *(("json", data) for data in (b"{", b"", b"NaN", b"[-Infinity]", b"1 2", b"[" * 1_000_000)),
        ("string", b"\xff"),
        ("long", b"abc"),
        ("boolean", b"\2"),
        ("uuid", b"no uuid"),
    ],
)
def test_bytes_of_another_format_are_told(name: str, data: bytes) -> None:
    with pytest.raises(FormatError, match=f"is not {name}"):
        FORMATS[name].decode(data)
    with pytest.raises(UNREADABLE):
        FORMATS[name].decode_all([data])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("json", {1, 2}),
        ("json", float("nan")),
        ("json", [float("inf")]),
        ("json", {7: 1}),
        ("json", [{"a": {True: 1}}]),
        ("json", {"a": ({None: 1},)}),
        ("string", 5),
        ("string", b"x"),
        ("string", "\ud83d"),
        ("bytes", "x"),
        ("bytes", 5),
        ("bytes", [1]),
        ("long", "x"),
        ("long", 1.0),
        ("int", 1 << 40),
        ("double", "1"),
        ("double", 10**400),
        ("short", 1 << 15),
        ("float", 1e300),
        ("boolean", 1),
        ("uuid", "00000000-0000-0000-0000-000000000007"),
    ],
)
def test_a_value_that_a_format_cannot_hold_is_told(name: str, value: Any) -> None:
    with pytest.raises(FormatError, match=f"cannot be written as {name}"):
        FORMATS[name].encode(value)
    with pytest.raises(UNWRITABLE):
        FORMATS[name].encode_all([value])
    with pytest.raises(UNWRITABLE):
        FORMATS[name].pack(value)


def test_an_unknown_format_is_told_with_those_that_exist() -> None:
    with pytest.raises(
        ValueError,
        match="no format 'xml'; formats are bytes, string, json, boolean, uuid, short, int, long, float",
    ):
        format_of("xml")


@pytest.mark.parametrize("data", [b'"\\ud83d"', b'{"\\udc00":["x\\ud83d"]}', '"é\\udfff"'.encode()])
def test_half_of_a_pair_of_surrogates_passes_as_it_came(data: bytes) -> None:
    assert FORMATS["json"].write(FORMATS["json"].read(data)) == data


def test_two_halves_are_one_character() -> None:
    json = FORMATS["json"]
    assert json.write("\ud83d\ude00") == json.write("\U0001f600") == '"\U0001f600"'.encode()


def test_a_number_that_python_cannot_hold_is_refused_when_it_is_written() -> None:
    with pytest.raises(FormatError, match="cannot be written as json"):
        FORMATS["json"].encode(FORMATS["json"].decode(b"[1e400]"))


def test_a_name_that_is_not_text_is_told() -> None:
    with pytest.raises(FormatError, match="the name 7 is not text"):
        FORMATS["json"].encode({"7": 1, 7: 2})


def test_javas_only_nan() -> None:
    assert FORMATS["double"].write(-float("nan")) == bytes([0x7F, 0xF8, 0, 0, 0, 0, 0, 0])
