"""Values of two types as values of one: where operators, CASE, IN and functions need it.

Keeps true: a literal text takes the type of the column beside it. A type of numbers becomes a wider one. Nothing else
            is converted without CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.arithmetic import limits, number_function
from felice.pipelines.sql.expressions.casts import cast, decimal_of_text, known_boolean_of_text
from felice.pipelines.sql.expressions.code import Code, Names, called
from felice.pipelines.sql.expressions.texts import text_function
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import ArrayOf, Expression, Literal, MapOf, StructOf
from felice.pipelines.sql.syntax.writer import shown_text
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    text_of,
)

TypeOf = Callable[[Expression], SqlType | None]
"""Finds the type of a part of a list; None for NULL."""
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
    if types.common(wanted, code.type) != wanted:
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


def as_decimal(names: Names, code: Code) -> Code:
    """An exact number as a decimal."""
    assert code.type is not None
    return converted(names, code, types.as_decimal(code.type)) or code


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
            return None
        found = wider
    if found is None:
        return None, list(codes)
    made: list[Code] = []
    for code in codes:
        one = converted(names, code, found)
        assert one is not None, "the common type is wider"
        made.append(one)
    return found, made


def listed(
    names: Names, codes: Sequence[Code], trees: Sequence[Expression], type_of: TypeOf
) -> tuple[SqlType | None, list[Code]]:
    """The common type of values that stand beside each other in a list, and each of them in it.

    Literal texts become numbers, booleans and moments where the others are such. The type of NULLs is None. Raises
    `SqlError` if there is no such type.
    """
    found: SqlType | None = None
    for code, tree in zip(codes, trees, strict=True):
        found = _wider(found, code.type, tree, type_of)
    if found is None:
        return None, list(codes)
    made = [_in_list(names, code, tree, found) for code, tree in zip(codes, trees, strict=True)]
    return found, made


def _wider(found: SqlType | None, given: SqlType | None, tree: Expression, type_of: TypeOf) -> SqlType | None:
    """The type of the values before, and of one more."""
    if found is None or given is None:
        return found or given
    text = tree.value if isinstance(tree, Literal) and isinstance(tree.value, str) else None
    if text is not None and types.is_number(found):
        return types.common(found, _type_of_number(text, tree, found))
    if text is not None and found == BOOLEAN:
        _checked(text, tree, found)
    wider = (
        _of_other_kind(found, given, tree) or types.common(found, given) or _of_parts(found, tree, type_of)
    )
    if wider is None:
        raise _no_operator(found, given, tree)
    return wider


def _of_other_kind(found: SqlType, given: SqlType, tree: Expression) -> SqlType | None:
    """The common type of literals and values of another kind, and of dates and timestamps."""
    is_literal = isinstance(tree, Literal)
    if is_literal and (found == STRING or (given == STRING and found in (BOOLEAN, *MOMENTS))):
        return found
    if found == STRING and given in MOMENTS:
        return given
    return TIMESTAMP if {found, given} == {DATE, TIMESTAMP} else None


def _of_parts(found: SqlType, tree: Expression, type_of: TypeOf) -> SqlType | None:
    """The common type of a list and of one whose parts are given: these become of its type one by one."""

    def of_all(known: SqlType, parts: Iterable[Expression]) -> SqlType:
        for part in parts:
            known = _wider(known, type_of(part), part, type_of) or known
        return known

    match found, tree:
        case types.Array(element), ArrayOf(elements):
            return types.Array(of_all(element, elements))
        case types.Map(key, value), MapOf(entries):
            return types.Map(
                of_all(key, (one for one, _ in entries)), of_all(value, (one for _, one in entries))
            )
        case types.Struct(fields), StructOf(own):
            given = dict(own)
            known = dict(fields)
            return types.Struct(
                tuple((name, of_all(one, [given[name]] if name in given else [])) for name, one in fields)
                + tuple((name, type_of(one) or STRING) for name, one in own if name not in known)
            )
    return None


def _type_of_number(text: str, tree: Expression, wanted: SqlType) -> SqlType:
    try:
        number = decimal_of_text(text)
    except ValueError:
        raise _no_value(text, tree, wanted) from None
    if number.is_finite() and text.strip().lstrip("+-").isdecimal():
        least, greatest = limits(INTEGER)
        if least <= number <= greatest:
            return INTEGER
        least, greatest = limits(BIGINT)
        if least <= number <= greatest:
            return BIGINT
    return type_of_decimal(number)


def _checked(text: str, tree: Expression, wanted: SqlType) -> None:
    try:
        value_of_text(text, wanted)
    except ValueError:
        raise _no_value(text, tree, wanted) from None


def _no_value(text: str, tree: Expression, wanted: SqlType) -> SqlError:
    return SqlError(f'invalid input syntax for type {types.base(wanted)}: "{text}".', tree.position)


def _no_operator(wanted: SqlType, given: SqlType, tree: Expression) -> SqlError:
    return SqlError(
        f"operator does not exist: {text_of(wanted)} = {text_of(given)} ({shown_text(tree)})\n"
        "Hint: You might need to add explicit type casts.",
        tree.position,
    )


def _in_list(names: Names, code: Code, tree: Expression, wanted: SqlType) -> Code:
    """A value of a list in the type of all."""
    if code.type is None or code.type == wanted:
        return code
    try:
        found = coerced_literal(names, code, wanted) or converted(names, code, wanted)
    except ValueError:
        raise _no_value(code.constant, tree, wanted) from None
    if found is not None:
        return found
    function = cast(code.type, wanted)
    if function is None:
        raise _no_operator(wanted, code.type, tree)
    return called(names, function, [code], wanted)


def type_of_literal(value: object) -> SqlType:
    """The type of a literal that is not NULL."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        least, greatest = limits(INTEGER)
        return INTEGER if least <= value <= greatest else BIGINT
    if isinstance(value, Decimal):
        return type_of_decimal(value)
    return DOUBLE if isinstance(value, float) else STRING


def type_of_decimal(value: Decimal) -> types.Decimal:
    """The narrowest type of a decimal number."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return types.Decimal(max(len(digits) + max(0, exponent), scale, 1), scale)


def told(code: Code) -> str:
    """The type of a value, for messages."""
    return "NULL" if code.type is None else text_of(code.type)
