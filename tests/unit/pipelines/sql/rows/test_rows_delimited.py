"""Lines of DELIMITED, as commons-csv writes and reads them."""

from __future__ import annotations

import decimal
from typing import Any

import pytest

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows.delimited import DelimitedFormat, delimiter_of
from felice.pipelines.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIME, Decimal

COLUMNS = (("A", STRING), ("B", STRING))


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (("a", "b c"), "a,b c"),
        ((None, None), ","),
        (("", ""), '"",'),
        (('say "hi"', "a,b"), '"say ""hi""","a,b"'),
        (("#x", " x"), '"#x"," x"'),
        (("$", "x "), '$,"x "'),
        (("a\nb", "a\r"), '"a\nb","a\r"'),
        (("ä", "ä"), '"ä",ä'),
        (("-1", "a|b"), "-1,a|b"),
    ],
)
def test_texts_are_quoted_where_the_parser_needs_it(row: tuple[Any, ...], line: str) -> None:
    format_ = DelimitedFormat(COLUMNS, ",")
    assert format_.write(row).decode() == line
    assert format_.read(line.encode()) == tuple(one or None for one in row)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("\r\n\na,b\nc,d", ("a", "b")),
        ('"a"  ,"b" \nc', ("a", "b")),
        ('a "b" c,', ('a "b" c', None)),
        ('"",""', (None, None)),
        ('"a\n""b""",c', ('a\n"b"', "c")),
    ],
)
def test_the_first_line_is_read(line: str, row: tuple[Any, ...]) -> None:
    assert DelimitedFormat(COLUMNS, ",").read(line.encode()) == row


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a", "expected 2 fields, and got 1"),
        ("a,b,c", "expected 2 fields, and got 3"),
        ("", "expected 2 fields, and got 0"),
        ('"a"b,c', "the quotation that begins at character 1 is not followed by a delimiter"),
        ('a,"b', "the quotation that begins at character 3 is not followed by a delimiter"),
    ],
)
def test_other_lines_are_refused(line: str, reason: str) -> None:
    with pytest.raises(FormatError, match=f"^{reason}$"):
        DelimitedFormat(COLUMNS, ",").read(line.encode())


LINES = [
    "a,1",
    ",",
    "b,",
    "a,+2",
    '"a",3',
    "a,4\r",
    "\n\na,5",
    "ä,6",
    "a,x",
    "a",
    "a,1,2",
    "",
    "a,99999999999",
]


@pytest.mark.parametrize("lines", [LINES[:4], [LINES[0], LINES[7]], *([LINES[0], one] for one in LINES)])
def test_a_group_of_lines_is_read_as_each_of_them(lines: list[str]) -> None:
    format_, data = DelimitedFormat((("A", STRING), ("B", INTEGER)), ","), [one.encode() for one in lines]
    try:
        one_by_one: Any = [format_.read(one) for one in data]
    except FormatError:
        with pytest.raises(ValueError):
            format_.decode_all([*data])
        return
    assert format_.decode_all([*data]) == one_by_one
    assert format_.decode_all([*data, None]) == [*one_by_one, None]


def test_a_group_of_lines_of_one_column_is_read_as_each_of_them() -> None:
    format_ = DelimitedFormat((("A", STRING),), ",")
    for lines in (["a", "b c"], ["a", '"b,c"'], ["a", "b\nc"]):
        data: list[bytes | None] = [one.encode() for one in lines]
        assert format_.decode_all(data) == [format_.read(one.encode()) for one in lines]
    for wrong in ("", "a,b"):
        with pytest.raises(FormatError, match="expected 1 fields"):
            format_.decode_all([b"a", wrong.encode()])
    with pytest.raises(UnicodeDecodeError):
        format_.decode_all([b"a\xc3", b"\xa4"])


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (BOOLEAN, True, "true"),
        (DOUBLE, 1e10, "1.0E10"),
        (DOUBLE, 0.00025, "2.5E-4"),
        (DOUBLE, 1234567.5, "1234567.5"),
        (DOUBLE, float("inf"), "Infinity"),
        (Decimal(9, 8), decimal.Decimal("0.00000010"), "0.00000010"),
        (BYTES, b"ab", "YWI="),
        (DATE, -3, "-3"),
    ],
)
def test_texts_of_values(type_: Any, value: Any, text: str) -> None:
    format_ = DelimitedFormat((("A", type_), ("B", INTEGER)), ";")
    assert format_.write((value, None)).decode() == f"{text};"
    assert format_.read(f"{text};".encode()) == (value, None)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (BOOLEAN, "TRUE", True),
        (BOOLEAN, "yes", False),
        (INTEGER, "+5", 5),
        (INTEGER, "1.0", "the column A: '1.0' is not a whole number of 32 bits"),
        (BIGINT, "x", "the column A: 'x' is not a whole number of 64 bits"),
        (DOUBLE, " 1.5d ", 1.5),
        (Decimal(3, 1), "1", decimal.Decimal("1.0")),
        (Decimal(3, 1), "1.25", "the column A: 1.25 does not fit into DECIMAL(3, 1) without rounding"),
        (Decimal(3, 1), "NaN", "the column A: 'NaN' is not a decimal number"),
        (TIME, "-1", "the column A: a TIME has from 0 to 86400000 milliseconds, and got -1"),
    ],
)
def test_values_of_texts(type_: Any, text: str, value: Any) -> None:
    format_ = DelimitedFormat((("A", type_), ("B", INTEGER)), ",")
    try:
        found = format_.read(f"{text},".encode())[0]
    except FormatError as error:
        found = str(error)
    assert (type(found), found) == (type(value), value)


def test_delimiters() -> None:
    assert [delimiter_of(one) for one in ("tab", "SPACE", "|")] == ["\t", " ", "|"]
    assert DelimitedFormat(COLUMNS, " ").read(b'"a b" c') == ("a b", "c")
    for wrong in ("", "ab", '"', "\n"):
        with pytest.raises(ValueError, match="elimiter"):
            delimiter_of(wrong)
