"""Types of SQL: texts, common types, and the types of arithmetic."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.statements import statement_of
from felice.pipelines.sql.syntax.tree import CreateType
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
    arithmetic,
    common,
    resolved,
    text_of,
)

USERS: dict[str, SqlType] = {"ADDRESS": Struct((("STREET", STRING), ("nr", INTEGER)))}


def type_of(text: str) -> SqlType:
    found = statement_of(f"CREATE TYPE t AS {text}")
    assert isinstance(found, CreateType)
    return resolved(found.type, USERS)


@pytest.mark.parametrize(
    ("text", "type_", "told"),
    [
        ("int", INTEGER, "INTEGER"),
        ("VARCHAR(20)", STRING, "STRING"),
        ("dec(4, 2)", Decimal(4, 2), "DECIMAL(4, 2)"),
        ("MAP<STRING, ARRAY<BIGINT>>", Map(STRING, Array(BIGINT)), "MAP<STRING, ARRAY<BIGINT>>"),
        ("address", USERS["ADDRESS"], "STRUCT<`STREET` STRING, `nr` INTEGER>"),
        ("STRUCT<`a``b` DATE>", Struct((("a`b", DATE),)), "STRUCT<`a``b` DATE>"),
    ],
)
def test_texts(text: str, type_: SqlType, told: str) -> None:
    assert type_of(text) == type_ and text_of(type_) == told
    assert type_of(told) == type_


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("STRNG", "line 1:18: Cannot resolve unknown type: STRNG; did you mean STRING?"),
        ("ARRAY<adress>", "line 1:24: Cannot resolve unknown type: ADRESS; did you mean ADDRESS?"),
        ("xyz", "Cannot resolve unknown type: XYZ"),
        ("INT(4)", "INT has no parameters, and got INT(4)"),
        ("DECIMAL(4)", "expected DECIMAL(precision, scale), and got DECIMAL(4)"),
        ("DECIMAL(4, 5)", "the scale from 0 to the precision"),
        ("DECIMAL(0, 0)", "the precision must be at least 1"),
        ("STRUCT<a INT, A STRING>", "a STRUCT has two fields A"),
    ],
)
def test_what_is_no_type_is_told(text: str, reason: str) -> None:
    with pytest.raises(SqlError) as refused:
        type_of(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (INTEGER, BIGINT, BIGINT),
        (BIGINT, Decimal(4, 2), Decimal(21, 2)),
        (Decimal(4, 2), Decimal(5, 0), Decimal(7, 2)),
        (Decimal(4, 2), DOUBLE, DOUBLE),
        (STRING, INTEGER, None),
        (BOOLEAN, INTEGER, None),
        (Array(INTEGER), Array(BIGINT), Array(BIGINT)),
        (Array(INTEGER), Array(STRING), None),
        (Map(STRING, INTEGER), Map(STRING, DOUBLE), Map(STRING, DOUBLE)),
        (Map(STRING, INTEGER), Map(INTEGER, INTEGER), None),
        (
            Struct((("A", INTEGER), ("B", STRING))),
            Struct((("C", DATE), ("A", BIGINT))),
            Struct((("A", BIGINT), ("B", STRING), ("C", DATE))),
        ),
        (Struct((("A", INTEGER),)), Struct((("A", STRING),)), None),
    ],
)
def test_the_type_that_holds_both(one: SqlType, other: SqlType, expected: SqlType | None) -> None:
    assert common(one, other) == expected
    if not isinstance(one, Struct):
        assert common(other, one) == expected
    assert common(one, one) == one


@pytest.mark.parametrize(
    ("one", "operator", "other", "expected"),
    [
        (INTEGER, "/", INTEGER, INTEGER),
        (INTEGER, "*", BIGINT, BIGINT),
        (INTEGER, "-", DOUBLE, DOUBLE),
        (Decimal(4, 2), "+", Decimal(5, 3), Decimal(6, 3)),
        (Decimal(4, 2), "*", Decimal(5, 3), Decimal(10, 5)),
        (Decimal(4, 2), "/", Decimal(5, 3), Decimal(13, 8)),
        (Decimal(4, 2), "%", Decimal(5, 3), Decimal(5, 3)),
        (Decimal(4, 2), "-", INTEGER, Decimal(13, 2)),
        (BIGINT, "+", Decimal(4, 2), Decimal(22, 2)),
        (Decimal(4, 2), "+", DOUBLE, DOUBLE),
        (STRING, "+", STRING, STRING),
        (STRING, "-", STRING, None),
        (STRING, "+", INTEGER, None),
        (DATE, "+", INTEGER, None),
    ],
)
def test_arithmetic(one: SqlType, operator: str, other: SqlType, expected: SqlType | None) -> None:
    assert arithmetic(operator, one, other) == expected
