"""Values of two types as values of one: where operators, CASE, IN and functions need it.

Keeps true: a literal text takes the type of the column beside it. A type of numbers becomes a wider one. Nothing else
            is converted without CAST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.arithmetic import number_function
from felice.pipelines.sql.expressions.casts import cast, decimal_of_text, known_boolean_of_text
from felice.pipelines.sql.expressions.code import Code, Names, called
from felice.pipelines.sql.expressions.texts import text_function
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    text_of,
)

MOMENTS = (DATE, TIME, TIMESTAMP)


def literal(names: Names, value: Any, type_: SqlType) -> Code:
    """A value that is known."""
    is_number = type(value) in (int, bool)
    text = repr(value) if is_number else names.constant(value)
    return Code(
        text if not text.startswith("-") else f"({text})",
        type_,
        can_be_null=False,
        is_simple=True,
        constant=value,
        is_literal=True,
    )


def converted(names: Names, code: Code, wanted: SqlType) -> Code | None:
    """The value in a wider type; None if there is no such conversion."""
    if code.type is None or code.type == wanted:
        return code.typed(wanted)
    if types.common(code.type, wanted) != wanted:
        return None
    if types.is_number(wanted):
        function: Any = number_function(wanted, code.type)
    else:
        function = cast(code.type, wanted)
    if function is None:
        return code.typed(wanted)
    if code.is_literal:
        return literal(names, function(code.constant), wanted)
    return called(names, function, [code], wanted, can_fail=isinstance(wanted, types.Decimal))


def coerced_literal(names: Names, code: Code, wanted: SqlType) -> Code | None:
    """A literal in the type of the value beside it; None if it has no such value. Raises ValueError for a text that is
    no value of the type.
    """
    if not code.is_literal or code.type is None:
        return None
    if code.type == STRING and wanted != STRING:
        value = value_of_text(code.constant, wanted)
        return None if value is None else literal(names, value, wanted)
    if wanted == STRING and not isinstance(code.type, types.Array | types.Map | types.Struct):
        return literal(names, text_function(code.type)(code.constant), STRING)
    return None


def value_of_text(text: str, wanted: SqlType) -> Any:
    """The value of a literal text in another type; None for a type without such texts."""
    if wanted == BOOLEAN:
        return known_boolean_of_text(text)
    if wanted in (INTEGER, BIGINT):
        number = decimal_of_text(text)
        if number != int(number):
            raise ValueError(f"expected a whole number, and got {text!r}")
    convert = cast(STRING, wanted)
    return None if convert is None else convert(text)


def unified(names: Names, codes: Sequence[Code]) -> tuple[SqlType | None, list[Code]] | None:
    """The common type of several values, and each of them in it; None if there is none. The type of NULLs is None."""
    found: SqlType | None = None
    for code in codes:
        if code.type is None:
            continue
        wider = code.type if found is None else types.common(found, code.type)
        if wider is None:
            wider = _moment(found, code.type, codes)
        if wider is None:
            return None
        found = wider
    if found is None:
        return None, list(codes)
    made: list[Code] = []
    for code in codes:
        one = converted(names, code, found) or coerced_literal(names, code, found)
        if one is None:
            return None
        made.append(one)
    return found, made


def _moment(found: SqlType | None, other: SqlType, codes: Sequence[Code]) -> SqlType | None:
    """The type of a date, a time or a timestamp beside literal texts."""
    kinds = {found, other}
    moments = [one for one in MOMENTS if one in kinds]
    texts_are_literal = all(code.is_literal for code in codes if code.type == STRING)
    if len(moments) == 1 and STRING in kinds and texts_are_literal:
        return moments[0]
    return None


def told(code: Code) -> str:
    """The type of a value, for messages."""
    return "NULL" if code.type is None else text_of(code.type)
