"""Comparisons, BETWEEN, IN and LIKE.

Keeps true: they are never null. A comparison with null is false, and so are BETWEEN, IN and LIKE of null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.code import Code, Names, condition, over_values
from felice.pipelines.sql.expressions.coercion import MOMENTS, coerced_literal, converted, told
from felice.pipelines.sql.expressions.moments import DAY_MS, date_of, time_of, timestamp_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Expression
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import BOOLEAN, BYTES, DATE, DOUBLE, STRING, TIME, TIMESTAMP, SqlType

_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = {
    "=": "EQUAL",
    "<>": "NOT_EQUAL",
    "<": "LESS_THAN",
    "<=": "LESS_THAN_OR_EQUAL",
    ">": "GREATER_THAN",
    ">=": "GREATER_THAN_OR_EQUAL",
    "IS DISTINCT FROM": "IS_DISTINCT_FROM",
}
_OF_TEXTS: dict[SqlType, Callable[[str], int]] = {DATE: date_of, TIME: time_of, TIMESTAMP: timestamp_of}
LONGEST_LIKE = 10_000
"""The most characters of a pattern of LIKE."""


def compared(names: Names, operator: str, sides: Sequence[Code], trees: Sequence[Expression]) -> Code:
    """`left operator right`. Raises `SqlError`."""
    position = trees[1].position
    if any(one.type is None for one in sides) and operator != "IS DISTINCT FROM":
        raise SqlError(
            f"a comparison with NULL is always false: {_pair(operator, trees)}; use IS NULL or IS NOT NULL",
            position,
        )
    try:
        pair = _comparable(names, operator, sides)
    except ValueError as error:
        raise SqlError(f"{_pair(operator, trees)}: {error}", position) from None
    if pair is None:
        one, other = (
            f"{told(code)} ({expression_text(tree)})" for code, tree in zip(sides, trees, strict=True)
        )
        raise SqlError(f"operator {_WORDS[operator]} cannot compare {one} with {other}", position)
    if operator == "IS DISTINCT FROM":
        return _distinct(pair)
    sign = _PYTHON[operator]
    return over_values(
        names,
        pair,
        lambda texts: f"({texts[0]} {sign} {texts[1]})",
        BOOLEAN,
        if_null="False",
        can_be_null=False,
    )


def _distinct(pair: Sequence[Code]) -> Code:
    return condition(f"{pair[0].text} != {pair[1].text}", pair)


def _pair(operator: str, trees: Sequence[Expression]) -> str:
    return f"{expression_text(trees[0])} {operator} {expression_text(trees[1])}"


def _comparable(names: Names, operator: str, sides: Sequence[Code]) -> tuple[Code, Code] | None:
    one, other = sides
    if one.type is None or other.type is None:
        return one, other
    is_ordered = operator not in ("=", "<>", "IS DISTINCT FROM")
    if types.is_number(one.type) and types.is_number(other.type):
        return _numbers(names, one, other)
    if one.type == other.type:
        return (one, other) if not is_ordered or one.type in (STRING, BYTES, *MOMENTS) else None
    if {one.type, other.type} == {DATE, TIMESTAMP}:
        return _as_timestamp(names, one), _as_timestamp(names, other)
    if one.type == STRING and other.type in MOMENTS:
        return _moment(names, one, other.type), other
    if other.type == STRING and one.type in MOMENTS:
        return one, _moment(names, other, one.type)
    return None


def _numbers(names: Names, one: Code, other: Code) -> tuple[Code, Code] | None:
    if DOUBLE not in (one.type, other.type):
        return one, other
    pair = converted(names, one, DOUBLE), converted(names, other, DOUBLE)
    assert pair[0] is not None and pair[1] is not None, "a double holds each number"
    return pair[0], pair[1]


def _as_timestamp(names: Names, code: Code) -> Code:
    if code.type != DATE:
        return code
    return over_values(names, [code], lambda texts: f"({texts[0]} * {DAY_MS})", TIMESTAMP)


def _moment(names: Names, code: Code, wanted: SqlType) -> Code:
    """A text as a date, a time or a timestamp."""
    if code.is_literal:
        found = coerced_literal(names, code, wanted)
        assert found is not None, "literal texts are read as moments"
        return found
    name = names.constant(_OF_TEXTS[wanted])
    return over_values(names, [code], lambda texts: f"{name}({texts[0]})", wanted, can_fail=True)


def between(names: Names, codes: Sequence[Code], trees: Sequence[Expression], *, is_negated: bool) -> Code:
    """`operand [NOT] BETWEEN low AND high`. Raises `SqlError`."""
    operand, low, high = codes
    if any(one.type is None for one in codes):
        raise SqlError("BETWEEN does not take NULL", trees[0].position)
    limits = [
        _beside(names, operand, one, tree, "BETWEEN")
        for one, tree in zip((low, high), trees[1:], strict=True)
    ]
    if not (types.is_number(operand.type) or operand.type in (STRING, BYTES, *MOMENTS)):  # type: ignore[arg-type]
        raise SqlError(
            f"BETWEEN does not take {told(operand)} ({expression_text(trees[0])})", trees[0].position
        )
    found = over_values(
        names,
        [operand, *limits],
        lambda texts: f"({texts[1]} <= {texts[0]} <= {texts[2]})",
        BOOLEAN,
        if_null="False",
        can_be_null=False,
    )
    return condition(f"not {found.text}", [found]) if is_negated else found


def among(
    names: Names, operand: Code, choices: Sequence[Code], trees: Sequence[Expression], *, is_negated: bool
) -> Code:
    """`operand [NOT] IN (…)`. The first of `trees` is that of the operand. Raises `SqlError`."""
    if operand.type is None:
        raise SqlError("IN does not take NULL at its left side", trees[0].position)
    wanted = [
        one if one.type is None else _beside(names, operand, one, tree, "IN")
        for one, tree in zip(choices, trees[1:], strict=True)
    ]
    given = [one for one in wanted if one.type is not None]
    if all(one.is_literal for one in given):
        found = _in_constants(names, operand, given)
    else:
        listed = ", ".join(one.text for one in given)
        found = over_values(
            names,
            [operand],
            lambda texts: f"({texts[0]} in [{listed}])",
            BOOLEAN,
            if_null="False",
            can_be_null=False,
        )
        found = condition(found.text, [found, *given])
    return condition(f"not {found.text}", [found]) if is_negated else found


def _in_constants(names: Names, operand: Code, choices: Sequence[Code]) -> Code:
    values: Any = [one.constant for one in choices]
    try:
        values = frozenset(values)
    except TypeError:
        values = tuple(values)
    name = names.constant(values)
    return over_values(
        names, [operand], lambda texts: f"({texts[0]} in {name})", BOOLEAN, if_null="False", can_be_null=False
    )


def _beside(names: Names, operand: Code, code: Code, tree: Expression, word: str) -> Code:
    """A value beside the operand of IN or BETWEEN."""
    assert operand.type is not None
    if code.type == operand.type:
        return code
    try:
        found = coerced_literal(names, code, operand.type)
    except ValueError as error:
        raise SqlError(
            f"{word}: {expression_text(tree)} is no {told(operand)}: {error}", tree.position
        ) from None
    if found is None and code.type is not None and types.common(operand.type, code.type) is not None:
        found = code if types.is_number(operand.type) else converted(names, code, operand.type)
    if found is None:
        raise SqlError(
            f"{word}: expected {told(operand)}, and got {told(code)} ({expression_text(tree)})", tree.position
        )
    return found


def like(
    names: Names, codes: Sequence[Code], trees: Sequence[Expression], escape: str | None, *, is_negated: bool
) -> Code:
    """`operand [NOT] LIKE pattern`. Raises `SqlError`."""
    for code, tree in zip(codes, trees, strict=True):
        if code.type not in (STRING, None):
            raise SqlError(
                f"LIKE: expected STRING, and got {told(code)} ({expression_text(tree)})", tree.position
            )
    operand, pattern = codes
    if pattern.is_literal and pattern.constant is not None:
        matches = names.constant(_matcher(pattern.constant, escape))
        found = over_values(
            names,
            [operand],
            lambda texts: f"{matches}({texts[0]})",
            BOOLEAN,
            if_null="False",
            can_be_null=False,
        )
    else:
        made = names.constant(lambda text, given: _matcher(given, escape)(text))
        found = over_values(
            names,
            codes,
            lambda texts: f"{made}({', '.join(texts)})",
            BOOLEAN,
            if_null="False",
            can_be_null=False,
        )
    return condition(f"not {found.text}", [found]) if is_negated else found


@lru_cache(maxsize=256)
def _matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """The function that says whether a text matches. Its time grows with the product of both lengths at most."""
    if len(pattern) > LONGEST_LIKE:
        raise ValueError(
            f"a pattern of LIKE has at most {LONGEST_LIKE} characters, and this one {len(pattern)}"
        )
    (first, size), *parts = _parts(pattern, escape)
    if not parts:
        return lambda text: first.fullmatch(text) is not None
    *middle, (last, last_size) = parts

    def matches(text: str) -> bool:
        # Each part at the first place where it is found, and the last one at the end.
        if first.match(text) is None:
            return False
        at = size
        for part, _ in middle:
            found = part.search(text, at)
            if found is None:
                return False
            at = found.end()
        return len(text) - last_size >= at and last.fullmatch(text, len(text) - last_size) is not None

    return matches


def _parts(pattern: str, escape: str | None) -> list[tuple[re.Pattern[str], int]]:
    """What is between the signs `%`: expressions without repetition, with their lengths."""
    texts: list[list[str]] = [[]]
    characters = iter(pattern)
    for one in characters:
        if one == escape:
            texts[-1].append(re.escape(next(characters, one)))
        elif one == "%":
            texts.append([])
        else:
            texts[-1].append("." if one == "_" else re.escape(one))
    return [(re.compile("".join(text), re.DOTALL), len(text)) for text in texts]
