"""Writes expressions, types and queries as canonical text, from which the parser makes the same tree."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from decimal import Decimal

from felice.pipelines.sql.syntax.cursor import RESERVED
from felice.pipelines.sql.syntax.tree import (
    ArrayOf,
    ArrayType,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Duration,
    Element,
    Expression,
    Field,
    In,
    IsNull,
    Join,
    Lambda,
    Like,
    Literal,
    MapOf,
    MapType,
    Query,
    Selected,
    Source,
    Star,
    StructOf,
    StructStar,
    StructType,
    Type,
    TypeName,
    Unary,
    Window,
    Within,
    left_chain,
)

_PLAIN = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)
_STRENGTH = {"OR": 1, "AND": 2, "NOT": 3, "||": 5, "+": 6, "-": 6, "*": 7, "/": 7, "%": 7}
_COMPARISON = 4
_SIGNED = 8
_WITH_SUFFIX = 9
_PRIMARY = 10
LONGEST_SHOWN = 300
"""The most characters of an expression in a message."""


def name_text(name: str) -> str:
    """A name, in quotes unless it means the same without."""
    if _PLAIN.fullmatch(name) and name not in RESERVED:
        return name
    return quoted(name)


def quoted(name: str) -> str:
    """A name in quotes."""
    return f"`{name.replace('`', '``')}`"


def string_text(value: str) -> str:
    """A text in single quotes."""
    return f"'{value.replace(chr(39), chr(39) * 2)}'"


def literal_text(value: str | int | Decimal | float | bool | None) -> str:
    """A literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text if "." in text else f"{text}."
    if isinstance(value, float):
        text = repr(value).upper()
        return text if "E" in text else f"{text}E0"
    return str(value)


def type_text(given: Type) -> str:
    """A type."""
    match given:
        case TypeName(name, parameters):
            told = f"({', '.join(map(str, parameters))})" if parameters else ""
            return name_text(name) + told
        case ArrayType(element):
            return f"ARRAY<{type_text(element)}>"
        case MapType(key, value):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case StructType(fields):
            return f"STRUCT<{', '.join(f'{name_text(name)} {type_text(one)}' for name, one in fields)}>"


def expression_text(given: Expression | Lambda | Star) -> str:
    """An expression, an argument of a function, or `*`."""
    return _text(given)[0]


def shown_text(given: Expression) -> str:
    """An expression as messages show it: short, and in parentheses if its outermost part is an operator."""
    if isinstance(given, Column) and given.source is not None and not _is_made(given.source):
        return f"{given.source}_{given.name}"
    text, strength = _text(given)
    if len(text) > LONGEST_SHOWN:
        text = f"{text[: LONGEST_SHOWN - 1]}…"
    return text if strength >= _WITH_SUFFIX or isinstance(given, Literal) else f"({text})"


def _is_made(source: str) -> bool:
    """Whether the analysis made it: its own names, of the results of aggregates, begin with a zero."""
    return source.startswith("\0")


def _text(given: Expression | Lambda | Star) -> tuple[str, int]:
    """The text, and how strongly its outermost operator binds."""
    match given:
        case Literal(value):
            is_negative = isinstance(value, int | float | Decimal) and literal_text(value).startswith("-")
            return literal_text(value), _SIGNED if is_negative else _PRIMARY
        case Column(name, source) if source is not None and _is_made(source):
            return f"KSQL_AGG_VARIABLE_{name}", _PRIMARY
        case Column(name, source):
            return (f"{name_text(source)}." if source is not None else "") + name_text(name), _PRIMARY
        case Star(source):
            return f"{name_text(source)}.*" if source is not None else "*", _PRIMARY
        case Field(of, name):
            return f"{_at_least(of, _WITH_SUFFIX)}->{name_text(name)}", _WITH_SUFFIX
        case Element(Column("ARRAY", None), index):
            # Without quotes, ARRAY[…] would create an array.
            return f"{quoted('ARRAY')}[{expression_text(index)}]", _WITH_SUFFIX
        case Element(of, index):
            return f"{_at_least(of, _WITH_SUFFIX)}[{expression_text(index)}]", _WITH_SUFFIX
        case Unary("NOT", operand):
            return f"NOT {_at_least(operand, _STRENGTH['NOT'])}", _STRENGTH["NOT"]
        case Unary(operator, operand):
            # Parentheses keep `- 1` from becoming the literal -1, and `--` from becoming a comment.
            return f"{operator}({expression_text(operand)})", _SIGNED
        case Binary():
            return _binary(given)
        case Lambda(parameters, body):
            names = ", ".join(map(name_text, parameters))
            return f"({names}) => {expression_text(body)}", 0
        case Call(function, arguments):
            return f"{name_text(function)}({_list(arguments)})", _PRIMARY
        case Cast(operand, type_):
            return f"CAST({expression_text(operand)} AS {type_text(type_)})", _PRIMARY
        case Case():
            return _case(given), _PRIMARY
        case ArrayOf(elements):
            return f"ARRAY[{_list(elements)}]", _PRIMARY
        case MapOf(entries):
            told = (f"{expression_text(key)} := {expression_text(value)}" for key, value in entries)
            return f"MAP({', '.join(told)})", _PRIMARY
        case StructOf(fields):
            told = (f"{name_text(name)} := {expression_text(value)}" for name, value in fields)
            return f"STRUCT({', '.join(told)})", _PRIMARY
        case _:
            return _predicate(given), _COMPARISON


def _binary(given: Binary) -> tuple[str, int]:
    chain, first = left_chain(given)
    text, strength = _text(first)
    parts = deque([text])
    for one in chain:
        own = _STRENGTH.get(one.operator, _COMPARISON)
        # A comparison has no comparison as an operand; the other operators bind to the left.
        if strength < (own + 1 if own == _COMPARISON else own):
            parts.appendleft("(")
            parts.append(")")
        parts.append(f" {one.operator} {_at_least(one.right, own + 1)}")
        strength = own
    return "".join(parts), strength


def _predicate(given: IsNull | Between | In | Like) -> str:
    operand, negation = _at_least(given.operand, _COMPARISON + 1), "NOT " if given.is_negated else ""
    match given:
        case IsNull():
            return f"{operand} IS {negation}NULL"
        case Between(_, low, high):
            limits = f"{_at_least(low, _COMPARISON + 1)} AND {_at_least(high, _COMPARISON + 1)}"
            return f"{operand} {negation}BETWEEN {limits}"
        case In(_, choices):
            return f"{operand} {negation}IN ({_list(choices)})"
        case Like(_, pattern, escape):
            told = "" if escape is None else f" ESCAPE {string_text(escape)}"
            return f"{operand} {negation}LIKE {_at_least(pattern, _COMPARISON + 1)}{told}"


def _case(given: Case) -> str:
    words = ["CASE"]
    if given.operand is not None:
        words.append(expression_text(given.operand))
    for when, then in given.branches:
        words += ["WHEN", expression_text(when), "THEN", expression_text(then)]
    if given.otherwise is not None:
        words += ["ELSE", expression_text(given.otherwise)]
    return " ".join([*words, "END"])


def _at_least(given: Expression, strength: int) -> str:
    text, own = _text(given)
    return text if own >= strength else f"({text})"


def _list(given: Iterable[Expression | Lambda | Star]) -> str:
    return ", ".join(map(expression_text, given))


def query_text(query: Query) -> str:
    """A query, on one line."""
    return " ".join(_clauses(query))


def _clauses(query: Query) -> Iterator[str]:
    yield f"SELECT {', '.join(map(_selected, query.columns))}"
    yield f"FROM {_source(query.source)}"
    yield from map(_join, query.joins)
    if query.window is not None:
        yield f"WINDOW {_window(query.window)}"
    if query.where is not None:
        yield f"WHERE {expression_text(query.where)}"
    for words, grouped in (("GROUP BY", query.group_by), ("PARTITION BY", query.partition_by)):
        if grouped:
            yield f"{words} {_list(grouped)}"
    if query.having is not None:
        yield f"HAVING {expression_text(query.having)}"
    if query.emit is not None:
        yield f"EMIT {query.emit}"
    if query.limit is not None:
        yield f"LIMIT {query.limit}"


def _selected(given: Selected | Star | StructStar) -> str:
    match given:
        case Star():
            return expression_text(given)
        case StructStar(of):
            return f"{_at_least(of, _WITH_SUFFIX)}->*"
        case Selected(expression, alias):
            return expression_text(expression) + ("" if alias is None else f" AS {name_text(alias)}")


def _source(given: Source) -> str:
    return name_text(given.name) + ("" if given.alias is None else f" AS {name_text(given.alias)}")


def _join(given: Join) -> str:
    within = "" if given.within is None else f" {_within(given.within)}"
    return f"{given.kind} JOIN {_source(given.source)}{within} ON {expression_text(given.condition)}"


def _within(given: Within) -> str:
    grace = "" if given.grace is None else f" GRACE PERIOD {_duration(given.grace)}"
    return f"WITHIN ({_duration(given.before)}, {_duration(given.after)}){grace}"


def _window(given: Window) -> str:
    parts = [_duration(given.size) if given.kind == "SESSION" else f"SIZE {_duration(given.size)}"]
    for words, length in (
        ("ADVANCE BY", given.advance),
        ("RETENTION", given.retention),
        ("GRACE PERIOD", given.grace),
    ):
        if length is not None:
            parts.append(f"{words} {_duration(length)}")
    return f"{given.kind} ({', '.join(parts)})"


def _duration(given: Duration) -> str:
    return f"{given.count} {given.unit}"
