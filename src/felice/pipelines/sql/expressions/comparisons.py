"""Comparisons, BETWEEN, IN and LIKE.

Keeps true: they are never null. A comparison with null is false, and so are BETWEEN, IN and LIKE of null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.casts import cast
from felice.pipelines.sql.expressions.code import Code, Names, called, condition, over_values
from felice.pipelines.sql.expressions.coercion import (
    MOMENTS,
    TypeOf,
    coerced_literal,
    converted,
    listed,
    literal,
    told,
)
from felice.pipelines.sql.expressions.moments import date_of, time_of, timestamp_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column, Expression, Literal, placed
from felice.pipelines.sql.syntax.writer import shown_text
from felice.pipelines.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, STRING, TIME, TIMESTAMP, SqlType

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
COMPARISONS = tuple(_WORDS)
"""The operators that compare."""
_OF_TEXTS: dict[SqlType, Callable[[str], int]] = {DATE: date_of, TIME: time_of, TIMESTAMP: timestamp_of}
TIMES = ("ROWTIME", "WINDOWSTART", "WINDOWEND")
"""Columns of milliseconds, which are compared with texts of timestamps."""
LONGEST_LIKE = 10_000
"""The most characters of a pattern of LIKE."""


def compared(names: Names, operator: str, sides: Sequence[Code], trees: Sequence[Expression]) -> Code:
    """`left operator right`. Raises `SqlError`."""
    position = trees[1].position
    if any(one.type is None for one in sides) and operator != "IS DISTINCT FROM":
        one, other = map(told, sides)
        raise SqlError(
            f"comparison with NULL not supported: {one} {operator} {other}\nUse 'IS NULL' or 'IS NOT NULL' instead.",
            position,
        )
    first, second = (
        _as_milliseconds(names, code, tree, beside)
        for code, tree, beside in zip(sides, trees, reversed(trees), strict=True)
    )
    try:
        pair = _comparable(names, operator, (first, second))
    except ValueError as error:
        raise SqlError(f"{_pair(operator, trees)}: {error}", position) from None
    if pair is None:
        one, other = (f"{shown_text(tree)} ({told(code)})" for code, tree in zip(sides, trees, strict=True))
        raise SqlError(f"cannot compare {one} to {other} with {_WORDS[operator]}.", position)
    if operator == "IS DISTINCT FROM":
        return _distinct(pair)
    sign = _PYTHON[operator]
    return over_values(
        names,
        pair,
        lambda texts: f"({texts[0]} {sign} {texts[1]})",
        BOOLEAN,
        if_null="False",
    )


def _distinct(pair: Sequence[Code]) -> Code:
    return condition(f"{pair[0].text} != {pair[1].text}", pair)


def _pair(operator: str, trees: Sequence[Expression]) -> str:
    return f"{shown_text(trees[0])} {operator} {shown_text(trees[1])}"


def _as_milliseconds(names: Names, code: Code, tree: Expression, beside: Expression) -> Code:
    """A literal text beside the time of a record or the bound of a window as this time."""
    is_time = isinstance(beside, Column) and beside.name in TIMES
    if not is_time or not code.is_literal or code.type != STRING:
        return code
    try:
        return literal(names, timestamp_of(code.constant), BIGINT)
    except ValueError as error:
        raise SqlError(f"failed to parse timestamp {shown_text(tree)}: {error}", tree.position) from None


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
    return called(names, cast(STRING, wanted), [code], wanted)


def between(
    names: Names, codes: Sequence[Code], trees: Sequence[Expression], type_of: TypeOf, *, is_negated: bool
) -> Code:
    """`operand [NOT] BETWEEN low AND high`. Raises `SqlError`."""
    for code, tree in zip(codes, trees, strict=True):
        if code.type is None:
            raise SqlError(f"comparison with NULL not supported: BETWEEN ({shown_text(tree)})", tree.position)
    times = [_as_milliseconds(names, code, tree, trees[0]) for code, tree in zip(codes, trees, strict=True)]
    shown = [
        placed(Literal(one.constant), tree.position) if one.is_literal else tree
        for one, tree in zip(times, trees, strict=True)
    ]
    wanted, made = listed(names, times, shown, type_of)
    if not (types.is_number(wanted) or wanted in (STRING, BYTES, *MOMENTS)):  # type: ignore[arg-type]
        raise SqlError(
            f"BETWEEN cannot compare {told(codes[0])} ({shown_text(trees[0])}): such values have no order",
            trees[0].position,
        )
    found = over_values(
        names,
        made,
        lambda texts: f"({texts[1]} <= {texts[0]} <= {texts[2]})",
        BOOLEAN,
        if_null="False",
    )
    return condition(f"not {found.text}", [found]) if is_negated else found


def among(
    names: Names, codes: Sequence[Code], trees: Sequence[Expression], type_of: TypeOf, *, is_negated: bool
) -> Code:
    """`operand [NOT] IN (…)`: the operand is the first of `codes`. NULLs are equal to nothing. Raises `SqlError`."""
    given = [(code, tree) for code, tree in zip(codes[1:], trees[1:], strict=True) if code.type is not None]
    shown = [codes[0], *(code for code, _ in given)]
    _, (operand, *choices) = listed(names, shown, [trees[0], *(tree for _, tree in given)], type_of)
    if all(one.is_literal for one in choices):
        found = _in_constants(names, operand, choices)
    else:
        values = "".join(f"{one.text}, " for one in choices)
        found = over_values(
            names,
            [operand],
            lambda texts: f"({texts[0]} in ({values}))",
            BOOLEAN,
            if_null="False",
        )
        found = condition(found.text, [found, *choices])
    return condition(f"not {found.text}", [found]) if is_negated else found


def _in_constants(names: Names, operand: Code, choices: Sequence[Code]) -> Code:
    values: Any = [one.constant for one in choices]
    try:
        values = frozenset(values)
    except TypeError:
        values = tuple(values)
    name = names.constant(values)
    return over_values(names, [operand], lambda texts: f"({texts[0]} in {name})", BOOLEAN, if_null="False")


def like(
    names: Names, codes: Sequence[Code], trees: Sequence[Expression], escape: str | None, *, is_negated: bool
) -> Code:
    """`operand [NOT] LIKE pattern`. Raises `SqlError`."""
    for code, tree in zip(codes, trees, strict=True):
        if code.type not in (STRING, None):
            raise SqlError(f"LIKE: expected STRING, and got {told(code)} ({shown_text(tree)})", tree.position)
    operand, pattern = codes
    if pattern.is_literal and pattern.constant is not None:
        matches = names.constant(_matcher(pattern.constant, escape))
        found = over_values(
            names,
            [operand],
            lambda texts: f"{matches}({texts[0]})",
            BOOLEAN,
            if_null="False",
        )
    else:
        made = names.constant(lambda text, given: _matcher(given, escape)(text))
        found = over_values(
            names,
            codes,
            lambda texts: f"{made}({', '.join(texts)})",
            BOOLEAN,
            if_null="False",
        )
    return condition(f"not {found.text}", [found]) if is_negated else found


@lru_cache(maxsize=256)
def _matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """The function that says whether a text matches. Its time grows with the product of both lengths at most."""
    if len(pattern) > LONGEST_LIKE:
        raise ValueError(
            f"a pattern of LIKE has at most {LONGEST_LIKE} characters, and this one {len(pattern)}"
        )
    if escape is None and "_" not in pattern and "%" not in pattern[1:-1]:
        return _simple_matcher(pattern)
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


def _simple_matcher(pattern: str) -> Callable[[str], bool]:
    """Of a pattern with `%` at its ends only."""
    text = pattern.strip("%")
    if pattern == text:
        return lambda given: given == text
    if not pattern.startswith("%"):
        return lambda given: given.startswith(text)
    if not pattern.endswith("%"):
        return lambda given: given.endswith(text)
    return lambda given: text in given


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
