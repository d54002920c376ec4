"""Expressions: the types and values of those that are taken, and the reasons for which others are refused."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from felice.pipelines.sql import types
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.table import SCALAR
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.types import type_at
from felice.pipelines.sql.types import SqlType, resolved, text_of
from sql_values import value_of


def sql_type(text: str) -> SqlType:
    return resolved(type_at(Cursor(text)), {})


COLUMNS: dict[str, tuple[SqlType, Any]] = {
    name: (sql_type(type_), value)
    for name, type_, value in (
        ("I", "INTEGER", 5),
        ("L", "BIGINT", 3_000_000_000),
        ("D", "DOUBLE", 2.5),
        ("C", "DECIMAL(4, 2)", Decimal("12.34")),
        ("S", "STRING", "abc"),
        ("B", "BOOLEAN", True),
        ("Y", "BYTES", b"ab"),
        ("DT", "DATE", 18_765),
        ("T", "TIME", 3_600_000),
        ("TS", "TIMESTAMP", 1_526_075_913_000),
        ("A", "ARRAY<INTEGER>", [1, 2, None]),
        ("M", "MAP<STRING, INTEGER>", {"a": 1, "b": 2}),
        ("R", "STRUCT<F INTEGER, G STRING>", (7, "g")),
        ("N", "INTEGER", None),
        ("NS", "STRING", None),
        ("NB", "BOOLEAN", None),
        ("NR", "STRUCT<F INTEGER>", None),
        ("ROWTIME", "BIGINT", 1_000),
    )
}
FAILS = object()
"""In the place of a value: the expression fails, so that its column is null."""

VALUES: list[tuple[str, str, Any]] = [
    # Elements
    ("A[1]", "INTEGER", 1),
    ("A[0]", "INTEGER", None),
    ("A[-2]", "INTEGER", 2),
    ("A[4]", "INTEGER", None),
    ("A[N]", "INTEGER", None),
    ("ARRAY[ARRAY[1, 2], ARRAY[3]][1][2]", "INTEGER", 2),
    ("M['b']", "INTEGER", 2),
    ("M['c']", "INTEGER", None),
    ("R->G", "STRING", "g"),
    ("NR->F", "INTEGER", None),
    ("STRUCT(A := R)->A->F", "INTEGER", 7),
    # Arithmetic
    ("I + L", "BIGINT", 3_000_000_005),
    ("I + D", "DOUBLE", 7.5),
    ("C + 1", "DECIMAL(13, 2)", Decimal("13.34")),
    ("C * C", "DECIMAL(9, 4)", Decimal("152.2756")),
    ("C / 4", "DECIMAL(15, 13)", Decimal("3.0850000000000")),
    ("C % 3", "DECIMAL(4, 2)", Decimal("0.34")),
    ("2147483647 + 1", "INTEGER", -2_147_483_648),
    ("9223372036854775807 + 1", "BIGINT", -9_223_372_036_854_775_808),
    ("-7 / 2", "INTEGER", -3),
    ("-7 % 2", "INTEGER", -1),
    ("I / 0", "INTEGER", FAILS),
    ("C / 0", "DECIMAL(15, 13)", FAILS),
    ("D / 0", "DOUBLE", math.inf),
    ("I + N", "INTEGER", None),
    ("-C", "DECIMAL(4, 2)", Decimal("-12.34")),
    ("- -I", "INTEGER", 5),
    ("S + 'd'", "STRING", "abcd"),
    ("S || NS", "STRING", None),
    # Literals
    ("-9223372036854775808", "BIGINT", -9_223_372_036_854_775_808),
    ("-0.0", "DECIMAL(1, 1)", Decimal("0.0")),
    (
        "-12345678901234567890123456789012345678.5",
        "DECIMAL(39, 1)",
        Decimal("-12345678901234567890123456789012345678.5"),
    ),
    (
        "-(12345678901234567890123456789012345678.5)",
        "DECIMAL(39, 1)",
        Decimal("-12345678901234567890123456789012345678.5"),
    ),
    ("1.5E3", "DOUBLE", 1500.0),
    (".5", "DECIMAL(1, 1)", Decimal("0.5")),
    ("'it''s'", "STRING", "it's"),
    # Comparisons are never null
    ("I > N", "BOOLEAN", False),
    ("NOT (I > N)", "BOOLEAN", True),
    ("I = 5E0", "BOOLEAN", True),
    ("I = L", "BOOLEAN", False),
    ("C = 12.340", "BOOLEAN", True),
    ("A = ARRAY[1, 2, NULL]", "BOOLEAN", True),
    ("M <> MAP('a' := 1)", "BOOLEAN", True),
    ("R = STRUCT(F := 7, G := 'g')", "BOOLEAN", True),
    ("Y > TO_BYTES('aa', 'ascii')", "BOOLEAN", True),
    ("TS > '2018'", "BOOLEAN", True),
    ("'2018-05-12' > TS", "BOOLEAN", True),
    ("DT = TS", "BOOLEAN", False),
    ("T = '01:00'", "BOOLEAN", True),
    ("ROWTIME = '1970-01-01T00:00:01'", "BOOLEAN", True),
    ("ROWTIME BETWEEN '1970-01-01' AND '1970-01-02'", "BOOLEAN", True),
    ("N IS DISTINCT FROM I", "BOOLEAN", True),
    ("N IS NOT DISTINCT FROM N", "BOOLEAN", True),
    ("I IS NOT NULL", "BOOLEAN", True),
    ("NULL IS NULL", "BOOLEAN", True),
    # AND, OR, NOT
    ("NB AND TRUE", "BOOLEAN", None),
    ("FALSE AND NB", "BOOLEAN", False),
    ("TRUE OR NB", "BOOLEAN", True),
    ("NB OR TRUE", "BOOLEAN", None),
    ("NOT NB", "BOOLEAN", None),
    # BETWEEN, IN, LIKE
    ("I BETWEEN 5 AND 5", "BOOLEAN", True),
    ("I BETWEEN '1' AND 9.5", "BOOLEAN", True),
    ("N NOT BETWEEN 1 AND 2", "BOOLEAN", True),
    ("S BETWEEN 'abb' AND 'abd'", "BOOLEAN", True),
    ("TS BETWEEN '2018' AND '2019'", "BOOLEAN", True),
    ("TS BETWEEN DT AND DT", "BOOLEAN", False),
    ("I IN (1, '5', NULL)", "BOOLEAN", True),
    ("I IN ('5.0')", "BOOLEAN", True),
    ("I IN ('5.5', 3000000000)", "BOOLEAN", False),
    ("I IN (N, L, C)", "BOOLEAN", False),
    ("'5' IN (I)", "BOOLEAN", FAILS),
    ("S IN (5, TRUE, 'abc')", "BOOLEAN", True),
    ("B IN ('yes', 'f')", "BOOLEAN", True),
    ("TS IN ('2018-05-11T21:58:33')", "BOOLEAN", True),
    ("A IN (ARRAY[1, '2', NULL])", "BOOLEAN", True),
    ("M IN (MAP('a' := 1, 'b' := '2'))", "BOOLEAN", True),
    ("R IN (STRUCT(G := 'g', F := 7))", "BOOLEAN", True),
    ("N IN (NULL)", "BOOLEAN", False),
    ("N NOT IN (1)", "BOOLEAN", True),
    ("NULL IN (1)", "BOOLEAN", False),
    ("S LIKE '_b%'", "BOOLEAN", True),
    ("S LIKE 'a!%' ESCAPE '!'", "BOOLEAN", False),
    ("NS NOT LIKE 'a'", "BOOLEAN", True),
    # CASE
    ("CASE WHEN NB THEN 1 END", "INTEGER", None),
    ("CASE I WHEN 4 THEN 'x' WHEN 5 THEN 'y' END", "STRING", "y"),
    ("CASE WHEN B THEN NULL ELSE 1 END", "INTEGER", None),
    ("CASE WHEN B THEN 1 ELSE 1 / 0 END", "INTEGER", 1),
    ("CASE WHEN FALSE THEN 1 ELSE L END", "BIGINT", 3_000_000_000),
    # CAST
    ("CAST(' 12 ' AS INT)", "INTEGER", 12),
    ("CAST('1.5' AS INT)", "INTEGER", None),
    ("CAST('2147483648' AS INT)", "INTEGER", None),
    ("CAST(L AS INT)", "INTEGER", -1_294_967_296),
    ("CAST(-2.9E0 AS BIGINT)", "BIGINT", -2),
    ("CAST(1E30 AS BIGINT)", "BIGINT", 9_223_372_036_854_775_807),
    ("CAST(12.345 AS DECIMAL(4, 2))", "DECIMAL(4, 2)", Decimal("12.35")),
    ("CAST(123.4 AS DECIMAL(4, 2))", "DECIMAL(4, 2)", None),
    (f"CAST('{'9' * 38}' AS DECIMAL(38, 0))", "DECIMAL(38, 0)", Decimal("9" * 38)),
    ("CAST('y' AS BOOLEAN)", "BOOLEAN", True),
    ("CAST('x' AS BOOLEAN)", "BOOLEAN", False),
    ("CAST(1E10 AS STRING)", "STRING", "1.0E10"),
    ("CAST(A AS STRING)", "STRING", "[1, 2, null]"),
    ("CAST(M AS STRING)", "STRING", "{a=1, b=2}"),
    ("CAST(R AS STRING)", "STRING", "Struct{F=7,G=g}"),
    ("CAST(A AS ARRAY<STRING>)", "ARRAY<STRING>", ["1", "2", None]),
    ("CAST(R AS STRUCT<F BIGINT, H STRING>)", "STRUCT<F BIGINT, H STRING>", (7, None)),
    ("CAST(TS AS DATE)", "DATE", 17_662),
    ("CAST('01:02' AS TIME)", "TIME", 3_720_000),
    ("CAST(NULL AS MAP<STRING, INT>)", "MAP<STRING, INTEGER>", None),
    # A part that fails is null, and the rest goes on
    ("COALESCE(CAST('x' AS INT), 0)", "INTEGER", 0),
    ("CAST('x' AS INT) IS NULL", "BOOLEAN", True),
    ("ARRAY[1, 1 / 0]", "ARRAY<INTEGER>", [1, None]),
    ("MAP('a' := 1 / 0)", "MAP<STRING, INTEGER>", {"a": None}),
    ("STRUCT(X := 1 / 0, Y := 1)", "STRUCT<X INTEGER, Y INTEGER>", (None, 1)),
    ("CONCAT('a', REGEXP_EXTRACT('(', 'b'), 'c')", "STRING", "ac"),
    ("COALESCE(1 / 0, 2)", "INTEGER", FAILS),
    # Lists get one type
    ("ARRAY[1, 2.5, '3.25']", "ARRAY<DECIMAL(12, 2)>", [Decimal("1.00"), Decimal("2.50"), Decimal("3.25")]),
    ("ARRAY['a', 1, TRUE]", "ARRAY<STRING>", ["a", "1", "true"]),
    ("ARRAY[TRUE, 'no']", "ARRAY<BOOLEAN>", [True, False]),
    ("ARRAY['2018-05-11', DT]", "ARRAY<DATE>", [17_662, 18_765]),
    ("ARRAY[ARRAY[1], ARRAY['2']]", "ARRAY<ARRAY<INTEGER>>", [[1], [2]]),
    (
        "ARRAY[STRUCT(X := 1), STRUCT(Y := 2)]",
        "ARRAY<STRUCT<X INTEGER, Y INTEGER>>",
        [(1, None), (None, 2)],
    ),
    ("MAP('a' := 1, 'b' := L)", "MAP<STRING, BIGINT>", {"a": 1, "b": 3_000_000_000}),
    # Lambdas
    ("TRANSFORM(FILTER(A, x => x IS NOT NULL), x => x * I)", "ARRAY<INTEGER>", [5, 10]),
    ("TRANSFORM(A, x => x + 1)", "ARRAY<INTEGER>", FAILS),
    ("TRANSFORM(ARRAY[A], x => REDUCE(x, 0, (s, y) => s + COALESCE(y, 10)))", "ARRAY<INTEGER>", [13]),
    (
        "TRANSFORM(A, x => TRANSFORM(ARRAY[x], x => x))",
        "ARRAY<ARRAY<INTEGER>>",
        [[1], [2], [None]],
    ),
    ("FILTER(M, (k, v) => v > 1 AND k = 'b')", "MAP<STRING, INTEGER>", {"b": 2}),
]


@pytest.mark.parametrize(("text", "kind", "value"), VALUES)
def test_values(text: str, kind: str, value: Any) -> None:
    if value is FAILS:
        with pytest.raises((ValueError, TypeError, SqlError)):
            value_of(text, **COLUMNS)
        return
    found_kind, found = value_of(text, **COLUMNS)
    assert found_kind == sql_type(kind)
    assert repr(found) == repr(value)


REFUSALS = [
    ("A['a']", "the index of an ARRAY must be INTEGER, and is STRING"),
    ("R->H", "could not find field 'H' in 'R'. The STRUCT has F, G"),
    ("S->F", "expected STRUCT type, got: STRING"),
    ("R['F']", "Use the dereference operator for STRUCTS: R->F"),
    ("S[1]", "subscript expression (S[1]) do not apply to STRING"),
    ("M[1]", "the key of M must be STRING, and is INTEGER"),
    ("I = '5'", "cannot compare I (INTEGER) to '5' (STRING) with EQUAL."),
    ("A < A", "cannot compare A (ARRAY<INTEGER>) to A (ARRAY<INTEGER>) with LESS_THAN."),
    ("B >= FALSE", "cannot compare B (BOOLEAN) to FALSE (BOOLEAN) with GREATER_THAN_OR_EQUAL."),
    ("T > TS", "cannot compare T (TIME) to TS (TIMESTAMP) with GREATER_THAN."),
    ("I + 1 <> S", "cannot compare (I + 1) (INTEGER) to S (STRING) with NOT_EQUAL."),
    ("DT < 'x'", "expected a date such as 2021-03-04"),
    ("ROWTIME > 'x'", "failed to parse timestamp 'x'"),
    (
        "NULL = I",
        "comparison with NULL not supported: NULL = INTEGER\nUse 'IS NULL' or 'IS NOT NULL' instead.",
    ),
    ("I BETWEEN NULL AND 3", "comparison with NULL not supported"),
    ("B BETWEEN TRUE AND TRUE", "BETWEEN cannot compare BOOLEAN"),
    ("I IN ('x')", 'invalid input syntax for type INTEGER: "x".'),
    ("B IN ('maybe')", 'invalid input syntax for type BOOLEAN: "maybe".'),
    (
        "I IN (S)",
        "operator does not exist: INTEGER = STRING (S)\nHint: You might need to add explicit type casts.",
    ),
    ("I LIKE '5'", "LIKE: expected STRING, and got INTEGER"),
    ("I + S", "error processing expression: (I + S). Unsupported arithmetic types. INTEGER STRING"),
    ("-S", "-: expected a number, and got STRING"),
    ("I || S", "||: expected STRING, and got INTEGER (I); use CAST"),
    ("I AND B", "type error in AND expression: should evaluate to boolean but is I (INTEGER) instead."),
    ("NOT I", "NOT: expected BOOLEAN, and got INTEGER"),
    ("CASE WHEN I THEN 1 END", "WHEN operand type should be boolean.\nType for 'I' is INTEGER"),
    (
        "CASE WHEN B THEN 1 WHEN I > 2 THEN 'a' END",
        "THEN expression 'WHEN (I > 2) THEN 'a'' has type: STRING.",
    ),
    ("CASE WHEN B THEN 1 ELSE 'a' END", "THEN type: INTEGER.\nDEFAULT type: STRING."),
    ("CASE WHEN B THEN NULL END", "All case branches have NULL type"),
    ("CAST(B AS INT)", "cast of BOOLEAN to INTEGER is not supported"),
    ("CAST(A AS ARRAY<BOOLEAN>)", "cast of ARRAY<INTEGER> to ARRAY<BOOLEAN> is not supported"),
    ("ARRAY[]", "array constructor cannot be empty. Please supply at least one element"),
    ("ARRAY[NULL]", "cannot construct an array with all NULL elements"),
    ("ARRAY[1, 'a']", 'invalid input syntax for type INTEGER: "a".'),
    ("MAP()", "map constructor cannot be empty. Please supply at least one key value pair"),
    ("MAP(NULL := 1)", "cannot construct a map with all NULL keys"),
    ("MAP('a' := NULL)", "cannot construct a map with all NULL values"),
    ("STRUCT(X := 1, X := 2)", "a STRUCT has two fields X"),
    ("UCASES(S)", "can't find any functions with the name 'UCASES'; did you mean UCASE?"),
    (
        "UCASE(I)",
        "function 'UCASE' does not accept parameters (INTEGER).\nValid alternatives are:\nUCASE(text STRING)",
    ),
    ("TRANSFORM(A, (x, y) => x)", "function 'TRANSFORM' does not accept parameters (ARRAY<INTEGER>, LAMBDA)"),
    ("TRANSFORM(MAP('a' := 1), (k, k) => k, (k, v) => v)", "a lambda has two parameters K"),
    ("FILTER(A, x => x)", "the lambda must return BOOLEAN, and returns INTEGER"),
    ("REDUCE(A, 0, (s, x) => 'a')", "the lambda must return INTEGER, and returns STRING"),
    ("1E400", "number overflows DOUBLE"),
    ("9223372036854775808", "invalid numeric literal: 9223372036854775808"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSALS)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(SqlError) as found:
        value_of(text, **COLUMNS)
    assert reason in found.value.reason
    assert found.value.position is not None


EXAMPLES = [
    pytest.param(*example, id=f"{function.signature.text}-{example[0]}")
    for function in built_in()
    if function.kind == SCALAR
    for example in function.examples
]


@pytest.mark.parametrize(("call", "result"), EXAMPLES)
def test_examples_of_functions(call: str, result: str) -> None:
    kind, got = value_of(call)
    expected_kind, expected = value_of(result)
    assert got == expected
    if expected is None or expected_kind is None:
        return
    assert kind is not None and kind == types.common(kind, expected_kind), "literals are narrow"
    if isinstance(kind, types.Decimal):
        assert -got.as_tuple().exponent == kind.scale
    else:
        assert repr(got) == repr(expected), "1 is another value than 1.0"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" + ".join(["I"] * 10_000), 50_000),
        (" || ".join(["S"] * 10_000), "abc" * 10_000),
        (" AND ".join(["I = 5"] * 10_000), True),
        (" OR ".join(["N = 5"] * 10_000), False),
        (" AND ".join(["B"] * 9_999 + ["NB"]), None),
        (f"I IN ({', '.join(map(str, range(10_000)))})", True),
        (f"I IN ({', '.join(['I + 1'] * 2_000)})", False),
        (f"CASE {' '.join(f'WHEN I = {5000 - n} THEN {n}' for n in range(5_000))} END", 4_995),
        (f"ARRAY[{', '.join(['I'] * 10_000)}]", [5] * 10_000),
        (f"COALESCE({', '.join(['N'] * 10_000)}, 1)", 1),
        (f"TRANSFORM(ARRAY[I], x => {' + '.join(['x'] * 1_000)})", [5_000]),
        (" * ".join(["1.5"] * 500), Decimal(f"{15**500}E-500")),
    ],
    ids=lambda one: str(one)[:20],
)
def test_long_expressions(text: str, value: Any) -> None:
    assert value_of(text, **COLUMNS)[1] == value


def test_each_type_has_a_column_here() -> None:
    shown = {text_of(kind).partition("<")[0].partition("(")[0] for kind, _ in COLUMNS.values()}
    assert shown >= {"BOOLEAN", "BYTES", "DECIMAL", "DATE", "TIME", "TIMESTAMP", "ARRAY", "MAP", "STRUCT"}
