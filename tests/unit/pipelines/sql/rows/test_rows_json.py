"""JSON of rows: as lenient as ksqlDB, and the same with and without msgspec."""

from __future__ import annotations

import decimal
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows import json as row_json
from felice.pipelines.sql.rows.coercion import loaded
from felice.pipelines.sql.rows.json import BareJsonFormat, JsonFormat
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


@contextmanager
def without_msgspec() -> Iterator[None]:
    with patch.dict(sys.modules, {"msgspec": None}):
        yield


def shape(value: Any) -> Any:
    return (type(value), repr(value))


def read_in_both_ways(type_: SqlType, text: str) -> Any:
    """The value of a column, wrapped and bare, with msgspec and without; or the text of the error."""
    found: list[Any] = []
    for data, format_ in (
        (f'{{"C":{text}}}', JsonFormat((("C", type_),))),
        (text, BareJsonFormat((("C", type_),))),
        (f'{{"C":{text}}}', JsonFormat((("C", type_),))),
    ):
        is_last = len(found) == 2
        try:
            if is_last:
                with without_msgspec():
                    row = format_.read(data.encode())
            else:
                row = format_.read(data.encode())
            found.append(shape(None if row is None else row[0]))
            value = None if row is None else row[0]
        except ValueError as error:
            value = str(error).replace("$.C", "$")
            found.append(value)
    assert found == [found[0]] * 3
    return value


LARGE = "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (BOOLEAN, '"true"', '$: expected BOOLEAN, and got "true"'),
        (BOOLEAN, "1", "$: expected BOOLEAN, and got 1"),
        (INTEGER, "7", 7),
        (INTEGER, '"-7"', -7),
        (INTEGER, "1.9", 1),
        (INTEGER, "-1.9e1", -19),
        (INTEGER, "2147483648", -(1 << 31)),
        (INTEGER, '"2147483648"', "$: '2147483648' is not a whole number of 32 bits"),
        (INTEGER, '" 1"', "$: ' 1' is not a whole number of 32 bits"),
        (INTEGER, "true", "$: expected INTEGER, and got true"),
        (INTEGER, "1e999999999", "$: 1E+999999999 is too large for 32 bits"),
        (BIGINT, "2147483648", 1 << 31),
        (BIGINT, '"9223372036854775807"', (1 << 63) - 1),
        (BIGINT, "[1]", "$: expected BIGINT, and got [1]"),
        (DOUBLE, "1", 1.0),
        (DOUBLE, '"1.5e3"', 1500.0),
        (DOUBLE, '"1f"', 1.0),
        (DOUBLE, '"-Infinity"', -math.inf),
        (DOUBLE, "1e400", math.inf),
        (DOUBLE, '"x"', "$: 'x' is not a number"),
        (STRING, '"a\\u00e4"', "aä"),
        (STRING, '"\\ud800"', "\ud800"),
        (STRING, "1.50", "1.50"),
        (STRING, "1e5", "1E+5"),
        (STRING, LARGE, LARGE),
        (STRING, "1E+999999999", "1E+999999999"),
        (STRING, "1e99999999999999999999", "the exponent of a number is too large"),
        (Decimal(4, 2), "1e999999999", "$: 1E+999999999 does not fit into DECIMAL(4, 2) without rounding"),
        (STRING, "true", "true"),
        (STRING, '{"b": 1.50, "a": [null, "x"]}', '{"b":1.50,"a":[null,"x"]}'),
        (STRING, '[1, "a", null, [true], {"a": 1}]', '[1, a, null, [true], {"a":1}]'),
        (Decimal(4, 2), "1.5", decimal.Decimal("1.50")),
        (Decimal(4, 2), '"12"', decimal.Decimal("12.00")),
        (Decimal(4, 2), "1e1", decimal.Decimal("10.00")),
        (Decimal(32, 2), f"{LARGE}.10", decimal.Decimal(f"{LARGE}.10")),
        (Decimal(4, 2), "1.001", "$: 1.001 does not fit into DECIMAL(4, 2) without rounding"),
        (Decimal(4, 2), "100", "$: 100 does not fit into DECIMAL(4, 2) without rounding"),
        (Decimal(4, 2), "false", "$: expected DECIMAL(4, 2), and got false"),
        (BYTES, '"YWI="', b"ab"),
        (BYTES, "1", "$: expected BYTES, and got 1"),
        (DATE, "-1", -1),
        (DATE, '"3"', 3),
        (TIME, "86400000", 86_400_000),
        (TIME, "86400001", "$: a TIME has from 0 to 86400000 milliseconds, and got 86400001"),
        (TIMESTAMP, "10", 10),
        (Array(INTEGER), '[1, "2", null]', [1, 2, None]),
        (Array(INTEGER), "{}", "$: expected ARRAY<INTEGER>, and got {}"),
        (Array(Array(INTEGER)), "[[], [1, true]]", "$[1][1]: expected INTEGER, and got true"),
        (Map(STRING, BIGINT), '{"a": 1, "B": "2", "c": null}', {"a": 1, "B": 2, "c": None}),
        (Map(STRING, Decimal(3, 1)), '{"a": 1, "b": null}', {"a": decimal.Decimal("1.0"), "b": None}),
        (Map(STRING, INTEGER), '{"a": []}', "$.a: expected INTEGER, and got []"),
        (Map(INTEGER, INTEGER), '{"1": 2}', {1: 2}),
        (Map(STRING, Struct((("A", INTEGER),))), '{"k": {"a": 1}}', {"k": (1,)}),
        (Map(STRING, INTEGER), "[]", "$: expected MAP<STRING, INTEGER>, and got []"),
        (Decimal(4, 2), '"x"', "$: 'x' is not a decimal number"),
        (DOUBLE, "1" * 400, math.inf),
        (DOUBLE, "-" + "1" * 400, -math.inf),
        (Struct((("A", INTEGER), ("b", STRING))), '{"a": 1, "B": "no", "x": 2}', (1, None)),
        (Struct((("A", INTEGER),)), '{"A": null, "a": 1}', (None,)),
        (Struct((("A", INTEGER),)), '{"A": {}}', "$.A: expected INTEGER, and got {}"),
        (Struct((("A", INTEGER),)), "[]", "$: expected STRUCT<`A` INTEGER>, and got []"),
        (Struct((("A", INTEGER),)), "null", None),
    ],
)
def test_values_are_read_as_ksqldb_reads_them(type_: SqlType, text: str, value: Any) -> None:
    assert shape(read_in_both_ways(type_, text)) == shape(value)


ROW = (
    ("ID", INTEGER),
    ("name", STRING),
    ("S", Struct((("X", BIGINT), ("Y", Array(Struct((("Z", STRING),))))))),
)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('{"ID":1,"name":"a","S":{"X":2,"Y":[{"Z":"z"}]}}', (1, "a", (2, [("z",)]))),
        ('{"id":1,"name":"a","s":{"x":2,"y":[{"z":"z"}]}}', (1, "a", (2, [("z",)]))),
        ('{"iD":1,"NAME":"not this column","S":{}}', (1, None, (None, None))),
        ('{"ID":1,"id":2,"Id":3}', (1, None, None)),
        ('{"other":[1,{"ID":5}]}', (None, None, None)),
        ('{"\\u0069d":1}', (1, None, None)),
        ('{"\u0131d":1,"name":"ı"}', (1, "ı", None)),
        ('{"name":"says \\"x\\""}', (None, 'says "x"', None)),
        ("{}", (None, None, None)),
        ("[1]", "expected STRUCT"),
        (" null ", None),
    ],
)
def test_names_match_in_other_case(text: str, row: Any) -> None:
    format_ = JsonFormat(ROW)
    if isinstance(row, str):
        with pytest.raises(FormatError, match=row):
            format_.decode_all([text.encode()])
        return
    # The second time, the decoder may be one for the names of this text.
    assert [format_.read(text.encode()) for _ in range(2)] == [row, row]
    with without_msgspec():
        assert JsonFormat(ROW).read(text.encode()) == row


def test_a_name_may_be_written_with_escapes() -> None:
    format_ = JsonFormat((("A/B", INTEGER), ("C", INTEGER)))
    assert format_.read(b'{"A\\/B":1}') == (1, None) == format_.read(b'{"a\\/B":1}')


def test_json_may_be_in_utf_16() -> None:
    assert JsonFormat(ROW).read('{"ID":1,"name":"ä"}'.encode("utf-16")) == (1, "ä", None)


def test_a_topic_with_other_names_is_read_leniently_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def lenient(data: bytes) -> Any:
        asked.append(data)
        return loaded(data)

    monkeypatch.setattr(row_json, "loaded", lenient)
    format_ = JsonFormat(ROW)
    rows: list[bytes | None] = [
        b'{"id":%d,"name":"a","s":{"x":2,"y":[{"z":"z"}]}}' % number for number in range(3)
    ]
    assert [row[0] for row in format_.decode_all(rows)] == [0, 1, 2] and asked == rows[:1]
    # A field that the record does not have in any spelling costs no second reading either.
    assert format_.read(b'{"id":1,"s":null}') == (1, None, None) and len(asked) == 1
    assert format_.read('{"id":1,"name":"ä\\n"}'.encode()) == (1, "ä\n", None) and len(asked) == 1
    assert format_.decode_all([b'{"id":2}', b'{"id":3,"name":"x"}']) == [(2, None, None), (3, "x", None)]
    assert len(asked) == 1
    # Names that change with each record are read, too.
    for number in range(40):
        text = json.dumps({"Id" if number % 2 else "iD": number}).encode()
        assert format_.read(text) == (number, None, None)


@pytest.mark.parametrize(
    ("type_", "learned", "text", "value"),
    [
        (INTEGER, '{"b":1}', '{"B":2,"b":1}', 2),
        (INTEGER, '{"b":1}', '{"b":1,"B":2}', 2),
        (INTEGER, '{"b":1}', '{"b":1,"\\u0042":2}', 2),
        (Struct((("X", INTEGER),)), '{"B":{"x":1}}', '{"B":{"x":1,"X":2}}', (2,)),
        (Array(Struct((("X", INTEGER),))), '{"b":[{"x":1}]}', '{"b":[{"X":3,"x":1}]}', [(3,)]),
        (
            Map(STRING, Struct((("X", INTEGER),))),
            '{"B":{"k":{"x":1}}}',
            '{"B":{"k":{"x":1,"X":2}}}',
            {"k": (2,)},
        ),
    ],
)
def test_a_record_reads_the_same_whatever_was_read_before(
    type_: SqlType, learned: str, text: str, value: Any
) -> None:
    """Results depended on which process had read what: the decoder for `b` took it where a record has `B`, too."""
    columns = (("B", type_),)
    experienced = JsonFormat(columns)
    experienced.read(learned.encode())
    assert JsonFormat(columns).read(text.encode()) == (value,)
    assert experienced.read(text.encode()) == (value,)
    assert experienced.decode_all([learned.encode(), text.encode()])[1] == (value,)
    # From now on the decoder lets this field pass, and then any field.
    for other in ("other", "an other", "one more"):
        experienced.read(f'{learned[:-1]},"{other}":0}}'.encode())
        assert experienced.read(text.encode()) == (value,)
        assert experienced.decode_all([learned.encode(), text.encode()])[1] == (value,)


def test_names_are_not_counted_in_records_whose_fields_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for spellings takes longer than all the rest, and a query seldom uses each field of a topic."""
    columns = tuple((name, INTEGER) for name in ("A", "B", "C"))
    texts = [b'{"a":1,"b":2,"c":[3]}', b'{"d":[5],"b":2}', b'{"a":1,"b":2,"c":"","d":null}']
    expected = [(1, 2), (None, 2), (1, 2)]
    format_ = JsonFormat(columns).of_columns((0, 1))
    assert [format_.read(one) for one in texts] == expected
    monkeypatch.setattr(
        row_json._TypedReader, "_may_be_spelled_twice", lambda *_: pytest.fail("names are counted")
    )
    assert format_.decode_all([*texts]) == expected
    assert format_.read(b"null") is None
    for broken in (b"{", b'{"a":1,"c":x}', b'{"a":[],"b":2,"c":3}', b"[1]"):
        with pytest.raises(ValueError):
            format_.read(broken)
    assert format_.decode_all([*texts]) == expected


def test_a_topic_with_ever_other_fields_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_json, "_MOST_OTHERS", 3)
    format_ = JsonFormat((("A", INTEGER),))
    for number in range(8):
        assert format_.read(b'{"x%d":0,"a":%d}' % (number, number)) == (number,)
    assert format_.read(b'{"a":1,"A":2,"x9":0}') == (2,)


@pytest.mark.parametrize("data", [b"", b"{", b"1x", b"truex", b"\xff", b'{"ID":NaN}', b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    for type_ in (JsonFormat, BareJsonFormat):
        with pytest.raises(FormatError, match="is not JSON"):
            type_((("ID", INTEGER),)).decode(data)


ODD: dict[SqlType, st.SearchStrategy[Any]] = {
    STRING: st.text(max_size=6) | st.text('\ud83d\ude00\ud800\n"\\', max_size=4),
    DOUBLE: st.floats()
    | st.tuples(st.integers(-99, 99), st.integers(-9, 25)).map(lambda one: one[0] * 10.0 ** one[1]),
    Decimal(30, 20): st.integers(-(10**25), 10**25).map(lambda whole: decimal.Decimal(f"{whole}E-20")),
    BYTES: st.binary(max_size=3),
    BOOLEAN: st.booleans(),
    BIGINT: st.integers(-(1 << 63), (1 << 63) - 1),
}
CASES = st.sampled_from(list(ODD)).flatmap(lambda type_: st.tuples(st.just(type_), st.none() | ODD[type_]))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(CASES)
def test_the_bytes_are_the_same_with_and_without_msgspec(case: tuple[SqlType, Any]) -> None:
    type_, value = case
    columns = (("A", type_), ("é", Array(type_)), ("M", Map(STRING, type_)), ("S", Struct((("x", type_),))))
    row = (value, [value, value], {"k": value}, (value,))
    data = JsonFormat(columns).write(row)
    with without_msgspec():
        assert JsonFormat(columns).write(row) == data
    json.loads(data)


def test_numbers_that_json_lacks_are_named() -> None:
    columns = (("A", DOUBLE), ("B", DOUBLE), ("C", DOUBLE))
    data = b'{"A":"NaN","B":"Infinity","C":"-Infinity"}'
    assert JsonFormat(columns).write((math.nan, math.inf, -math.inf)) == data
    assert JsonFormat(columns).read(data)[1:] == (math.inf, -math.inf)
    assert BareJsonFormat((("A", DOUBLE),)).write((math.nan,)) == b'"NaN"'
    with without_msgspec():
        assert JsonFormat(columns).write((math.nan, math.inf, -math.inf)) == data
    with pytest.raises(FormatError, match="null has no bytes"):
        BareJsonFormat((("A", DOUBLE),)).encode_all([(1.0,)]) and BareJsonFormat((("A", DOUBLE),)).key_bytes(
            (None,)
        )


def test_bare_values_without_msgspec() -> None:
    with without_msgspec():
        format_ = BareJsonFormat((("A", Map(STRING, DOUBLE)),))
        assert format_.write(({"é": 1e-5},)) == '{"é":0.00001}'.encode()
        assert format_.read(b'{"x":"1"}') == ({"x": 1.0},) and format_.placed_by(b"") is None
    assert BareJsonFormat(format_.columns).write(({"é": 1e-5},)) == '{"é":0.00001}'.encode()


def test_bytes_of_rows() -> None:
    columns = (
        ("ID", INTEGER),
        ("D", Decimal(4, 2)),
        ("B", BYTES),
        ("S", Struct((("a b", BOOLEAN),))),
        ("F", DOUBLE),
    )
    row = (1, decimal.Decimal("1.10"), b"ab", (None,), 1e16)
    assert JsonFormat(columns).write(row) == b'{"ID":1,"D":1.10,"B":"YWI=","S":{"a b":null},"F":1e16}'
    assert BareJsonFormat((("A", STRING),)).encode_all([("x",), (None,), None]) == [b'"x"', None, None]
    with pytest.raises(FormatError, match=r"\('a',\) cannot be written as JSON"):
        JsonFormat((("ID", INTEGER), ("N", INTEGER))).encode(("a",))


def test_a_field_that_no_column_has_leaves_spellings_right() -> None:
    """Names are looked at in one pass then; two fields of one name may each have a spelling of its own."""
    inner = Struct((("AB", INTEGER), ("N", INTEGER)))
    format_ = JsonFormat((("AB", INTEGER), ("S", inner)))
    first = b'{"ab": 1, "s": {"aB": 2, "n": 3, "zz": 4}}'
    for data, row in (
        (first, (1, (2, 3))),
        (first, (1, (2, 3))),
        (b'{"aB": 1, "s": {"ab": 2, "n": 3, "zz": "\\"AB"}}', (1, (2, 3))),
        (b'{"ab": 1, "s": {"aB": 2, "N": 3, "zz": "n"}}', (1, (2, 3))),
        (b'{"ab": 1, "s": {"aB": 2, "zz": "N"}}', (1, (2, None))),
    ):
        assert format_.read(data) == row
