"""Calls of SQL functions in texts, without the compiler of expressions: literals, and calls of them."""

from __future__ import annotations

from decimal import Context, Decimal
from functools import reduce
from typing import Any

from felice.pipelines.sql import types
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.signatures import filled
from felice.pipelines.sql.syntax import tree
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.expressions import expression_at

Typed = tuple[Any, types.SqlType | None]


def evaluated(text: str) -> Typed:
    """The value of an expression, and its type."""
    return _value(expression_at(Cursor(text)))


def _value(expression: Any) -> Typed:
    match expression:
        case tree.Literal(value):
            return value, _type_of_literal(value)
        case tree.Column(name):
            return name, types.STRING
        case tree.ArrayOf(elements):
            found = [_value(one) for one in elements]
            return [value for value, _ in found], types.Array(_common(found))
        case tree.MapOf(entries):
            keys, values = [_value(key) for key, _ in entries], [_value(value) for _, value in entries]
            return (
                dict(zip((key for key, _ in keys), (value for value, _ in values), strict=True)),
                types.Map(_common(keys), _common(values)),
            )
        case tree.Binary(">", left, right):
            return _value(left)[0] > _value(right)[0], types.BOOLEAN
        case tree.Call(name, arguments):
            return called(name, [_value(one) for one in arguments])
    raise AssertionError(f"no example may have {expression}")


def _common(found: list[Typed]) -> types.SqlType:
    return reduce(lambda one, other: types.common(one, other) or one, (kind for _, kind in found if kind))


def _type_of_literal(value: Any) -> types.SqlType | None:
    match value:
        case None:
            return None
        case bool():
            return types.BOOLEAN
        case int():
            return types.INTEGER if -(1 << 31) <= value < 1 << 31 else types.BIGINT
        case Decimal():
            scale = -int(value.as_tuple().exponent)
            return types.Decimal(max(len(value.as_tuple().digits), scale), scale)
        case float():
            return types.DOUBLE
    return types.STRING


def called(name: str, given: list[Typed]) -> Typed:
    """The function that takes the types, with its arguments in the types of the parameters."""
    known = [kind for _, kind in given]
    matches = [(match, one) for one in built_in().named(name) if (match := one.signature.match(known))]
    (_, bound), function = min(matches, key=lambda one: one[0][0])
    parameters = [function.signature.parameter(number) for number in range(len(given))]
    wanted = [
        None if kind is None or parameter is None else _parameter_type(parameter.type, bound, kind)
        for parameter, kind in zip(parameters, known, strict=True)
    ]
    values = [converted(value, kind) for (value, _), kind in zip(given, wanted, strict=True)]
    result = (
        function.result_type(wanted, values)  # type: ignore[arg-type]
        if function.result_type
        else filled(function.signature.returns, bound | {"T": bound.get("T", types.STRING)})
    )
    if None in values and not function.takes_nulls:
        return None, result
    implementation = function.implementation(*wanted) if function.by_type else function.implementation
    return implementation(*values), result


def _parameter_type(pattern: Any, bound: Any, given: types.SqlType) -> types.SqlType:
    return types.as_decimal(given) if pattern == types.Primitive("DECIMAL") else filled(pattern, bound)


def converted(value: Any, wanted: types.SqlType | None) -> Any:
    """A number as one of a wider type."""
    if value is None:
        return None
    if isinstance(wanted, types.Decimal):
        return Decimal(value).quantize(Decimal(1).scaleb(-wanted.scale), context=Context(prec=100))
    return float(value) if wanted == types.DOUBLE else value
