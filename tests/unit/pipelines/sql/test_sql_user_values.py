"""Values of SQL in users' functions."""

from __future__ import annotations

from decimal import Decimal as Number
from typing import Any

import pytest

from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)
from felice.pipelines.sql.users.values import given_values, returned_values, type_of_annotation

PERSON = Struct((("NAME", STRING), ("TAGS", Array(Struct((("N", INTEGER),))))))


@pytest.mark.parametrize(
    ("type_", "value", "python"),
    [
        (Map(STRING, PERSON), {"a": ("x", None)}, {"a": {"NAME": "x", "TAGS": None}}),
        (Array(Array(INTEGER)), [[1], None], [[1], None]),
        (BYTES, b"\x00", b"\x00"),
        (DATE, 5, 5),
        (Decimal(4, 2), Number("1.50"), Number("1.50")),
        (BOOLEAN, None, None),
    ],
)
def test_values_reach_python_and_come_back(type_: SqlType, value: Any, python: Any) -> None:
    assert given_values(type_)(value) == python
    assert returned_values(type_)(python) == value


@pytest.mark.parametrize(
    ("type_", "python", "value"),
    [
        (INTEGER, -(2**31), -(2**31)),
        (INTEGER, 2**31 - 1, 2**31 - 1),
        (DOUBLE, 1, 1.0),
        (Decimal(4, 2), 1, Number("1.00")),
        (Decimal(4, 2), Number("1.005"), Number("1.01")),
        (Array(INTEGER), (1, 2), [1, 2]),
        (PERSON, {"TAGS": []}, (None, [])),
    ],
)
def test_what_python_returns_is_converted(type_: SqlType, python: Any, value: Any) -> None:
    assert repr(returned_values(type_)(python)) == repr(value)


@pytest.mark.parametrize(
    ("type_", "python", "reason"),
    [
        (INTEGER, "a", "expected INTEGER, and got 'a'"),
        (INTEGER, True, "expected INTEGER, and got True"),
        (INTEGER, 2**31, "expected INTEGER, and got 2147483648"),
        (INTEGER, -(2**31) - 1, "expected INTEGER, and got -2147483649"),
        (BIGINT, 1.0, r"expected BIGINT, and got 1\.0"),
        (BOOLEAN, 1, "expected BOOLEAN, and got 1"),
        (DOUBLE, True, "expected DOUBLE, and got True"),
        (STRING, b"a", "expected STRING, and got b'a'"),
        (BYTES, "a", "expected BYTES, and got 'a'"),
        (Decimal(4, 2), 100, r"expected DECIMAL\(4, 2\), and got 100"),
        (Decimal(4, 2), Number("NaN"), r"expected DECIMAL\(4, 2\), and got Decimal\('NaN'\)"),
        (Decimal(4, 2), 1.5, r"expected DECIMAL\(4, 2\), and got 1.5"),
        (Array(INTEGER), {1}, "expected ARRAY<INTEGER>, and got {1}"),
        (Array(Array(INTEGER)), [[1, "x"]], "expected INTEGER, and got 'x'"),
        (Map(STRING, INTEGER), [], r"expected MAP<STRING, INTEGER>, and got \[\]"),
        (PERSON, ("a", []), "expected STRUCT<`NAME` STRING"),
        (PERSON, {"name": "a"}, "has no field 'name'"),
        (STRING, 10**150, r"expected STRING, and got 10{98}0\.\.\.$"),
    ],
)
def test_wrong_values_are_refused(type_: SqlType, python: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        returned_values(type_)(python)


@pytest.mark.parametrize(
    ("annotation", "type_", "may_be_null"),
    [
        (bool, BOOLEAN, False),
        (list[int], Array(BIGINT), False),
        (dict[str, bytes | None], Map(STRING, BYTES), False),
        (list[float] | None, Array(DOUBLE), True),
    ],
)
def test_types_of_annotations(annotation: Any, type_: SqlType, may_be_null: bool) -> None:
    assert type_of_annotation(annotation) == (type_, may_be_null)
