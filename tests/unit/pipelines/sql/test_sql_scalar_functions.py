"""Scalar functions of single values: what their examples do not show."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from felice.pipelines.sql import types
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.limits import MOST
from felice.pipelines.sql.syntax.errors import SqlError
from sql_values import value_of

NUMBERS: list[tuple[str, Any]] = [
    ("ABS(-2147483648)", -2147483648),
    ("ABS(-2147483649)", 2147483649),
    ("ABS(-9223372036854775808)", -9223372036854775808),
    ("ABS(NULL)", None),
    ("FLOOR(-0.5E0)", -1.0),
    ("CEIL(-0.5E0)", -0.0),
    ("CEIL(2.01)", Decimal("3.00")),
    ("FLOOR(1E300)", 1e300),
    ("ROUND(0.49999999999999994E0)", 0),
    ("ROUND(2.5E0)", 3),
    ("ROUND(1E300)", 9223372036854775807),
    ("TRUNC(-1E300)", -9223372036854775808),
    ("ROUND(SQRT(-1))", 0),
    ("ROUND(1.234567E0, 2)", 1.23),
    ("ROUND(-1.5E0, 0)", -1.0),
    ("ROUND(1.7E0, -1)", 0.0),
    ("ROUND(-1.1E0, -1)", 0.0),
    ("ROUND(1.15E0, 1)", 1.2),
    ("ROUND(1.5E0, 2000000000)", 1.5),
    ("ROUND(1.5E0, -2000000000)", 0.0),
    ("ROUND(-2.5)", Decimal(-2)),
    ("ROUND(0.4)", Decimal(0)),
    ("TRUNC(-2.75, 1)", Decimal("-2.70")),
    ("SIGN(-0.5)", -1),
    ("SIGN(0.5)", 1),
    ("SIGN(SQRT(-1))", 0),
    ("GREATEST(NULL, 2, 3000000000)", 3000000000),
    ("GREATEST(1.5, 2E0, 1)", 2.0),
    ("GREATEST(0.123456, 1234567.89)", Decimal("1234567.890000")),
    ("LEAST(1, SQRT(-1))", 1.0),
    ("GREATEST(1, SQRT(-1))", math.nan),
    ("GREATEST(TO_BYTES('a', 'ascii'), TO_BYTES('b', 'ascii'))", b"b"),
    ("GREATEST(FROM_DAYS(1), FROM_DAYS(2))", 2),
    ("GENERATE_SERIES(3, 3)", [3]),
    ("GENERATE_SERIES(5, 0, -2)", [5, 3, 1]),
    ("GEO_DISTANCE(0E0, 0E0, 0E0, 180E0, ' ')", 6371 * math.pi),
    ("LN(0)", -math.inf),
    ("LN(-1)", math.nan),
    ("LOG(13)", 2.5649493574615367),
    ("LOG(15, 0)", -math.inf),
    ("LOG(1, 13)", math.nan),
    ("LOG(-15, 13)", math.nan),
    ("ACOS(1.1)", math.nan),
    ("COT(0)", math.inf),
    ("EXP(1000)", math.inf),
    ("COSH(-1000)", math.inf),
    ("SINH(-1000)", -math.inf),
    ("CBRT(3)", 1.4422495703074083),
    ("POWER(15, -1)", 0.06666666666666667),
    ("POWER(-8, 0.5)", math.nan),
    ("POWER(0, -1)", math.inf),
    ("POWER(-0E0, -1)", -math.inf),
    ("POWER(-0E0, -2)", math.inf),
    ("POWER(-10, 309)", -math.inf),
    ("POWER(10, 309)", math.inf),
    ("POWER(1, SQRT(-1))", math.nan),
    ("POWER(-1, EXP(1000))", math.nan),
]
TEXTS: list[tuple[str, Any]] = [
    ("CONCAT(NULL, NULL)", ""),
    ("CONCAT(TO_BYTES('a', 'ascii'), TO_BYTES('b', 'ascii'), NULL)", b"ab"),
    ("CONCAT_WS(NULL, 'a', 'b')", None),
    ("CONCAT_WS(',', NULL, NULL)", ""),
    ("LPAD('Foo', 2, 'Bar')", "Fo"),
    ("LPAD('', 2, 'Bar')", "Ba"),
    ("LPAD('Foo', 7, '')", None),
    ("RPAD('Foo', -1, 'x')", None),
    ("RPAD('Foo', 7, NULL)", None),
    ("SPLIT('abc', '')", ["a", "b", "c"]),
    ("SPLIT('', '')", [""]),
    ("SPLIT(',a.', '.')", [",a", ""]),
    ("SPLIT(TO_BYTES('ab', 'ascii'), TO_BYTES('', 'ascii'))", [b"a", b"b"]),
    ("SUBSTRING('stream', 0, 2)", "st"),
    ("SUBSTRING('stream', -10)", "stream"),
    ("SUBSTRING('stream', 9, 1)", ""),
    ("SUBSTRING('stream', 2, -1)", ""),
    ("LEN('')", 0),
    ("INITCAP('  tHE\tend ')", "The\tEnd "),
    ("TRIM(' \t a\u00a0 ')", "a\u00a0"),
    ("UCASE('straße')", "STRASSE"),
    ("REPLACE('ab', '', '-')", "-a-b-"),
    ("INSTR('short', 'or', 4)", 0),
    ("INSTR('corporate floor', 'or', -4)", 5),
    ("INSTR('corporate floor', 'r', -1)", 15),
    ("INSTR('corporate floor', 'rx', -1)", 0),
    ("INSTR('abba', 'a', -4)", 1),
    ("INSTR('abba', 'a', -3, 1)", 1),
    ("INSTR('aaa', 'aa', 1, 2)", 2),
    ("INSTR('aaa', 'aa', 1, 3)", 0),
    ("INSTR('aaa', 'a', 0)", 0),
    ("INSTR('aaa', 'a', 4)", 0),
    ("INSTR('aaa', 'a', 1, 0)", 0),
    ("INSTR(NULL, 'a')", 0),
    ("INSTR('a', 'a', NULL)", None),
    ("INSTR('a', 'a', 1, NULL)", None),
    ("FIELD(NULL, 'a', NULL)", 0),
    ("FIELD('x')", 0),
    ("CHR(99000)", "𘊸"),
    ("CHR(-1)", None),
    ("CHR(1114112)", None),
    (r"CHR('\ud820\udeb8')", "𘊸"),
    (r"CHR('\u0041\t\\\101')", "A\t\\A"),
    ("CHR('004b')", None),
    ("SPLIT_TO_MAP('a:1//b:2/b:3:4/c/', '/', ':')", {"a": "1", "b": "3"}),
    ("SPLIT_TO_MAP('', '/', ':')", {}),
    ("SPLIT_TO_MAP('a', '', ':')", None),
    ("SPLIT_TO_MAP('a', ':', ':')", None),
    ("MASK(NULL)", None),
    ("MASK('Éé٣_')", "Xxn-"),
    ("MASK_LEFT('ab', 5)", "xx"),
    ("MASK_KEEP_RIGHT('ab', 5)", "ab"),
    ("MASK_RIGHT('ab', 0)", "ab"),
    ("MASK_RIGHT('ab', NULL, 'X', 'x', 'n', '-')", None),
    ("MASK_KEEP_LEFT('ab1', 1, NULL, '*', 'n', '-')", "a*n"),
    ("UUID(TO_BYTES('00', 'hex'))", None),
]
PATTERNS: list[tuple[str, Any]] = [
    ("REGEXP_EXTRACT('x', 'abc')", None),
    ("REGEXP_EXTRACT('a', 'abc', 1)", None),
    ("REGEXP_EXTRACT('(x)?a', 'abc', 1)", None),
    ("REGEXP_EXTRACT_ALL('x', 'abc')", []),
    ("REGEXP_EXTRACT_ALL('x', 'abc', 1)", None),
    ("REGEXP_EXTRACT_ALL('(x)|.', 'axb', 1)", [None, "x", None]),
    ("REGEXP_REPLACE('äbc', 'b', '$0$0')", "äbbc"),
    ("REGEXP_REPLACE('abc', '', '-')", "-a-b-c-"),
    ("REGEXP_REPLACE('axx', 'x|$', '-')", "a---"),
    ("REGEXP_REPLACE('abc', 'b', NULL)", None),
    ("REGEXP_SPLIT_TO_ARRAY('xaxbxx', 'x')", ["", "a", "b", "", ""]),
    ("REGEXP_SPLIT_TO_ARRAY('aabcd', '')", ["a", "a", "b", "c", "d"]),
    ("REGEXP_SPLIT_TO_ARRAY('axb', 'x*')", ["a", "", "b"]),
    ("REGEXP_SPLIT_TO_ARRAY('xx', 'x*')", []),
    ("REGEXP_SPLIT_TO_ARRAY('', '')", [""]),
    ("REGEXP_SPLIT_TO_ARRAY('abc', 'x')", ["abc"]),
    ("""EXTRACTJSONFIELD('{"a": [1, {"b c": null}]}', '$.a[1]["b c"]')""", "null"),
    ("""EXTRACTJSONFIELD('{"a": [1, {"ü": "x\\""}, true]}', '$.a')""", r'[1,{"ü":"x\""},true]'),
    ("""EXTRACTJSONFIELD('{"a": 1.23450}}', '$.a')""", "1.23450"),
    ("""EXTRACTJSONFIELD('{"a": [1]}', '$.a[-1]')""", None),
    ("""EXTRACTJSONFIELD('{"a": [1]}', '$.a[1]')""", None),
    ("""EXTRACTJSONFIELD('{"a": [1]}', '$.a.b')""", None),
    ("""EXTRACTJSONFIELD('{"@type": "x", "a-b": 1}', '$.@type')""", "x"),
    ("EXTRACTJSONFIELD(' ', '$.a')", None),
    ("EXTRACTJSONFIELD(' \"x\"', '$')", "x"),
]
ENCODINGS: list[tuple[str, Any]] = [
    ("TO_BYTES('1aB2', 'HEX')", b"\x1a\xb2"),
    ("TO_BYTES('é', 'ascii')", b"?"),
    ("TO_BYTES('IQ', 'base64')", b"!"),
    ("FROM_BYTES(TO_BYTES('1ab2', 'hex'), 'hex')", "1AB2"),
    ("FROM_BYTES(TO_BYTES('ff', 'hex'), 'utf8')", "\ufffd"),
    ("FROM_BYTES(TO_BYTES('ff', 'hex'), 'base64')", "/w=="),
    ("ENCODE('c39c6265', 'hex', 'ascii')", "\ufffd\ufffdbe"),
    ("ENCODE('X''4578''', 'hex', 'utf8')", "Ex"),
    ("ENCODE('0x578616d706C6521', 'hex', 'ascii')", "\x05xample!"),
    ("ENCODE('0x', 'hex', 'base64')", ""),
    ("ENCODE('Ελλάδα', 'ascii', 'base64')", "Pz8/Pz8/"),
    ("ENCODE('RXhh bXBsZSE=', 'base64', 'utf8')", "Example!"),
    ("ENCODE('_-8', 'base64', 'hex')", "ffef"),
    ("ENCODE('QUJDR', 'base64', 'utf8')", "ABC"),
    ("INT_FROM_BYTES(TO_BYTES('ffffffff', 'hex'))", -1),
    ("BIGINT_FROM_BYTES(TO_BYTES('ff00000000000000', 'hex'), 'little_endian')", 255),
]
TIMES: list[tuple[str, Any]] = [
    ("FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'VV z X')", "UTC UTC Z"),
    ("PARSE_TIMESTAMP('2018-05-11 14:58 -0700', 'yyyy-MM-dd HH:mm Z', 'Europe/Berlin')", 1526075880000),
    ("STRINGTOTIMESTAMP('1', 'd', '+01:00')", -3600000),
    ("PARSE_TIME('24:00', 'HH:mm')", 0),
    ("PARSE_TIME('01:02:03.9999', 'HH:mm:ss.SSSS')", 3723999),
    ("TIMESTAMPADD(hour, 1, FROM_UNIXTIME(0))", 3600000),
    ("TIMESTAMPSUB(MICROSECONDS, 1999, FROM_UNIXTIME(0))", -1),
    ("DATEADD(HOURS, 23, FROM_DAYS(1))", 1),
    ("DATESUB(HOURS, 1, FROM_DAYS(1))", 0),
    ("DATESUB(DAYS, 3, FROM_DAYS(1))", -2),
    ("TIMESUB(MINUTES, 1, PARSE_TIME('00:00', 'HH:mm'))", 86340000),
    ("TIMEADD(NANOSECONDS, 999999, PARSE_TIME('00:00', 'HH:mm'))", 0),
    ("CONVERT_TZ(FROM_UNIXTIME(1589234313000), 'America/Los_Angeles', 'America/New_York')", 1589245113000),
    ("CONVERT_TZ(FROM_UNIXTIME(0), NULL, 'UTC')", None),
]
URLS: list[tuple[str, Any]] = [
    ("URL_EXTRACT_PROTOCOL('www.confluent.io')", None),
    ("URL_EXTRACT_PROTOCOL('mailto:a@b.c')", "mailto"),
    ("URL_EXTRACT_PATH('mailto:a@b.c')", None),
    ("URL_EXTRACT_PATH('http://www.test.com?query')", ""),
    ("URL_EXTRACT_HOST('http://[::1]:80/')", "[::1]"),
    ("URL_EXTRACT_HOST('http://a_b/')", None),
    ("URL_EXTRACT_HOST('http://a-b.c1.:80')", "a-b.c1."),
    ("URL_EXTRACT_HOST('http://a.1')", None),
    ("URL_EXTRACT_HOST('http://1a')", "1a"),
    ("URL_EXTRACT_HOST('http://10.0.0.1')", "10.0.0.1"),
    ("URL_EXTRACT_QUERY('http://?q')", "q"),
    ("URL_EXTRACT_PROTOCOL('x:?q')", "x"),
    ("URL_EXTRACT_HOST('')", None),
    ("URL_EXTRACT_PORT('http://localhost/')", None),
    ("URL_EXTRACT_PORT('http://localhost:/')", None),
    ("URL_EXTRACT_QUERY('http://test.com')", None),
    ("URL_EXTRACT_QUERY('http://test.com?a=[%FF]')", "a=[\ufffd]"),
    ("URL_EXTRACT_FRAGMENT('http://test.com')", None),
    ("URL_EXTRACT_PARAMETER('http://t?a=1=2&a=3&b', 'a')", "1=2"),
    ("URL_EXTRACT_PARAMETER('http://t?a=1&b', 'b')", ""),
    ("URL_EXTRACT_PARAMETER('http://t?a=1', 'c')", None),
    ("URL_EXTRACT_PARAMETER('http://t', '')", None),
    ("URL_ENCODE_PARAM('a*-._~ü/')", "a*-._%7E%C3%BC%2F"),
    ("URL_DECODE_PARAM('a%FFb')", "a\ufffdb"),
]


@pytest.mark.parametrize(
    ("call", "value"), [*NUMBERS, *TEXTS, *PATTERNS, *ENCODINGS, *TIMES, *URLS], ids=lambda one: str(one)[:60]
)
def test_values(call: str, value: Any) -> None:
    _, got = value_of(call)
    assert repr(got) == repr(value)  # `repr` tells -0.0 from 0.0, and 1 from 1.0; NaN is equal


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("CEIL(9.5)", "10 does not fit DECIMAL(2, 1)"),
        ("ROUND(9.5)", "10 does not fit DECIMAL(1, 0)"),
        ("ROUND(SQRT(-1), 1)", "ROUND to a number of places needs a number, and got nan"),
        ("GENERATE_SERIES(1, 2, 0)", "the step of GENERATE_SERIES cannot be 0"),
        ("GENERATE_SERIES(1, 2, -1)", "the step -1 of GENERATE_SERIES does not lead from 1 to 2"),
        ("GENERATE_SERIES(1, 2000000000)", "the result would have 2000000000 characters or elements"),
        ("GEO_DISTANCE(91, 0, 0, 0)", "a latitude is from -90 to 90, and got 91.0 and 0.0"),
        ("GEO_DISTANCE(0, 0, 0, -181)", "a longitude is from -180 to 180"),
        ("GEO_DISTANCE(0, 0, 0, 0, 'feet')", "the unit of a distance is KM or MI, and got 'feet'"),
        ("LPAD('a', 10000001, 'b')", "the result would have 10000001 characters or elements"),
        ("RPAD(TO_BYTES('a', 'ascii'), 2000000000, TO_BYTES('b', 'ascii'))", "10000000 are the most"),
        ("CHR(55296)", "the code 55296 is half of a character"),
        (r"CHR('\ud820')", "is half of a character"),
        (r"CHR('\uxyzw')", "expected four hexadecimal digits"),
        ("MASK('a', 'XX', 'x', 'n', '-')", "a mask is one character, and got 'XX'"),
        ("MASK_LEFT('a', -1)", "MASK_LEFT needs a number of characters that is not negative, and got -1"),
        ("REGEXP_EXTRACT('(', 'a')", "expected a regular expression, and got '('"),
        ("REGEXP_EXTRACT('a', 'a', -1)", "a group of a regular expression is 0 or greater, and got -1"),
        ("REGEXP_REPLACE('a', 'a', '$1')", "No group 1"),
        ("REGEXP_SPLIT_TO_ARRAY('a', '(?!a)')", "expected a regular expression"),
        ("EXTRACTJSONFIELD('{', '$.a')", "expected JSON, and got '{'"),
        ("EXTRACTJSONFIELD('NaN', '$')", "NaN is not JSON"),
        ("EXTRACTJSONFIELD('{}', 'a')", "expected a path such as"),
        ("EXTRACTJSONFIELD('{}', '$.a[')", "expected a path such as"),
        ("TO_BYTES('abc', 'hex')", "expected pairs of hexadecimal digits, and got 'abc'"),
        ("TO_BYTES('ü!', 'hex')", "expected pairs of hexadecimal digits"),
        ("TO_BYTES('I', 'base64')", "expected base64, and got 'I'"),
        ("TO_BYTES('IQ=', 'base64')", "expected base64, and got 'IQ='"),
        ("TO_BYTES('a', 'utf16')", "encodings are hex, utf8, ascii and base64, and got 'utf16'"),
        ("ENCODE('a', 'hex', 'HEX')", "ENCODE needs two different encodings"),
        ("ENCODE('X''4578', 'hex', 'utf8')", "expected pairs of hexadecimal digits"),
        ("INT_FROM_BYTES(TO_BYTES('00', 'hex'))", "expected 4 bytes, and got 1"),
        ("INT_FROM_BYTES(TO_BYTES('00', 'hex'), 'MIDDLE')", "the byte order is BIG_ENDIAN or LITTLE_ENDIAN"),
        ("PARSE_DATE('10', 'HH')", "a date has no time, and the pattern 'HH' has one"),
        ("PARSE_TIME('10', 'dd')", "a time has no date, and the pattern 'dd' has one"),
        ("PARSE_TIME('10', 'mm')", "a time needs an hour, and the pattern 'mm' has none"),
        ("PARSE_TIME('10', 'hh')", "a time needs an hour, and the pattern 'hh' has none, or only half of it"),
        ("FORMAT_DATE(FROM_DAYS(0), 'HH')", "the value has no hour, which the pattern asks for"),
        ("FORMAT_TIMESTAMP(FROM_UNIXTIME(0), 'HH', 'PST')", "there is no time zone 'PST'"),
        ("FORMAT_TIMESTAMP(FROM_UNIXTIME(9000000000000000000), 'HH')", "outside the years 1 to 9999"),
        ("TIMESTAMPADD('WEEKS', 1, FROM_UNIXTIME(0))", "units are DAYS, HOURS, MINUTES, SECONDS"),
        ("TIMESTAMPADD(DAYS, 1, FROM_UNIXTIME(9223372036854775807))", "lead outside the timestamps"),
        ("URL_EXTRACT_HOST('http://a b')", "expected a URL, and got 'http://a b'"),
        ("URL_EXTRACT_HOST('http://a/%zz')", "expected a URL"),
        ("URL_EXTRACT_HOST('1http://a')", "expected a URL"),
        ("URL_EXTRACT_HOST('http://')", "expected a URL"),
        ("URL_EXTRACT_HOST('http://a]')", "expected a URL"),
        ("URL_EXTRACT_HOST('http://a/[')", "expected a URL"),
        ("URL_EXTRACT_HOST(':a')", "expected a URL"),
        ("URL_EXTRACT_HOST('a:')", "expected a URL"),
        ("URL_EXTRACT_HOST('http://a#b#c')", "expected a URL"),
        ("URL_DECODE_PARAM('%4')", "expected two hexadecimal digits after each percent sign"),
    ],
)
def test_errors(call: str, why: str) -> None:
    with pytest.raises(ValueError) as refusal:
        value_of(call)
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("REPLACE", ["a" * 4000, "a", "b" * 4000]),
        ("REGEXP_REPLACE", ["a" * 4000, "a", "b" * 4000]),
        ("CONCAT", ["a" * MOST, "b"]),
        ("CONCAT_WS", ["a" * MOST, "b", "c"]),
        ("URL_ENCODE_PARAM", ["/" * (MOST // 2)]),
        ("ENCODE", ["a" * (MOST // 2 + 1), "ascii", "hex"]),
    ],
)
def test_results_that_are_too_large_are_refused(name: str, arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="and 10000000 are the most"):
        columns = {f"X{number}": (types.STRING, one) for number, one in enumerate(arguments)}
        value_of(f"{name}({', '.join(columns)})", **columns)


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("ROUND(123456789876543.2345678987)", types.Decimal(15, 0)),
        ("ROUND(0.5)", types.Decimal(1, 0)),
        ("ROUND(1.25, 1)", types.Decimal(3, 2)),
        ("ROUND(1.5E0)", types.BIGINT),
        ("CEIL(1.25)", types.Decimal(3, 2)),
        ("FLOOR(3)", types.INTEGER),
        ("GREATEST(1.5, 2.25, NULL)", types.Decimal(3, 2)),
        ("LEAST(1, 3000000000)", types.BIGINT),
        ("SPLIT(TO_BYTES('a', 'ascii'), TO_BYTES('b', 'ascii'))", types.Array(types.BYTES)),
        ("TIMEADD(HOURS, 1, PARSE_TIME('01', 'HH'))", types.TIME),
    ],
)
def test_types(call: str, type_: types.SqlType) -> None:
    assert value_of(call)[0] == type_


@pytest.mark.parametrize("call", ["GREATEST(TRUE, FALSE)", "GREATEST(NULL)", "LEAST(ARRAY[1], ARRAY[2])"])
def test_values_without_an_order_have_no_greatest(call: str) -> None:
    with pytest.raises(SqlError, match="expected a value that is not NULL|have no greatest one"):
        value_of(call)


def test_the_least_whole_numbers_are_their_own_absolute_values() -> None:
    for type_, least in ((types.INTEGER, -(1 << 31)), (types.BIGINT, -(1 << 63))):
        assert value_of("ABS(X)", X=(type_, least)) == (type_, least)
        assert value_of("ABS(X)", X=(type_, least + 1)) == (type_, -least - 1)


@pytest.mark.parametrize(
    ("places", "result"),
    [
        (0, "12345678987654321.0000000000000000"),
        (10, "12345678987654321.2345678988000000"),
        (-2, "12345678987654300.0000000000000000"),
        (20, "12345678987654321.2345678987654321"),
    ],
)
def test_decimals_keep_their_digits(places: int, result: str) -> None:
    given = types.Decimal(33, 16), Decimal("12345678987654321.2345678987654321")
    assert value_of(f"ROUND(X, {places})", X=given) == (given[0], Decimal(result))


def test_chance() -> None:
    assert all(0 <= value_of("RANDOM()")[1] < 1 for _ in range(20))
    assert value_of("UUID()")[1] != value_of("UUID()")[1]
    random = {one.signature.text for one in built_in() if one.is_random}
    assert random == {
        "RANDOM() -> DOUBLE",
        "UUID() -> STRING",
        "UNIX_TIMESTAMP() -> BIGINT",
        "UNIX_DATE() -> INTEGER",
    }


def test_a_json_text_that_nests_deeply_is_refused() -> None:
    deep = "[" * 100_000
    with pytest.raises(ValueError, match="nests too deeply"):
        value_of("EXTRACTJSONFIELD(X, '$')", X=(types.STRING, deep))
