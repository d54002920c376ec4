"""Parses expressions, by the strength with which their operators bind.

From weak to strong: OR; AND; NOT; one comparison, BETWEEN, IN, LIKE or IS; `||`; `+` and `-`; `*`, `/` and `%`; a sign;
then what follows a value: `[index]` and `->field`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import isinf
from typing import TypeVar

from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.errors import Position, SqlSyntaxError
from felice.pipelines.sql.syntax.tokens import Kind
from felice.pipelines.sql.syntax.tree import (
    ArrayOf,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Element,
    Expression,
    Field,
    In,
    IsNull,
    Lambda,
    Like,
    Literal,
    MapOf,
    Star,
    StructOf,
    Unary,
    placed,
)
from felice.pipelines.sql.syntax.types import type_at

K = TypeVar("K")
_COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
_STRENGTHS = {"||": 1, "+": 2, "-": 2, "*": 3, "/": 3, "%": 3}
"""How strongly the operators between values bind."""
_GREATEST_INTEGER = 1 << 63
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}


def expression_at(cursor: Cursor) -> Expression:
    """The expression that comes next."""
    with cursor.nested():
        found = _conjunction(cursor)
        while cursor.next.is_word("OR"):
            position = cursor.take().position
            found = placed(Binary("OR", found, _conjunction(cursor)), position)
        return found


def literal_at(cursor: Cursor) -> Literal:
    """The literal that comes next: a text, a number with or without a sign, TRUE, FALSE or NULL."""
    position = cursor.position
    sign = cursor.take_sign("-", "+")
    found = _literal(cursor, is_negative=sign == "-")
    if found is None or (sign is not None and not _is_number(found)):
        raise cursor.refused("a literal")
    return placed(found, position)


def _conjunction(cursor: Cursor) -> Expression:
    found = _negation(cursor)
    while cursor.next.is_word("AND"):
        position = cursor.take().position
        found = placed(Binary("AND", found, _negation(cursor)), position)
    return found


def _negation(cursor: Cursor) -> Expression:
    position = cursor.position
    if not cursor.take_words("NOT"):
        return _predicate(cursor)
    cursor.count_part()
    with cursor.nested():
        return placed(Unary("NOT", _negation(cursor)), position)


def _predicate(cursor: Cursor) -> Expression:
    operand = _value(cursor)
    position = cursor.position
    if sign := cursor.take_sign(*_COMPARISONS):
        operator = "<>" if sign == "!=" else sign
        return placed(Binary(operator, operand, _value(cursor)), position)
    if cursor.take_words("IS"):
        return placed(_is(cursor, operand), position)
    is_negated = cursor.next.is_word("NOT") and cursor.after_next().is_word("BETWEEN", "IN", "LIKE")
    if is_negated:
        cursor.take()
    if cursor.take_words("BETWEEN"):
        low = _value(cursor)
        cursor.expect_words("AND")
        return placed(Between(operand, low, _value(cursor), is_negated), position)
    if cursor.take_words("IN"):
        return placed(In(operand, cursor.in_parentheses(lambda: expression_at(cursor)), is_negated), position)
    if cursor.take_words("LIKE"):
        pattern = _value(cursor)
        return placed(Like(operand, pattern, _escape(cursor), is_negated), position)
    return operand


def _is(cursor: Cursor, operand: Expression) -> Expression:
    is_negated = cursor.take_words("NOT")
    if cursor.take_words("NULL"):
        return IsNull(operand, is_negated)
    if cursor.take_words("DISTINCT", "FROM"):
        distinct = Binary("IS DISTINCT FROM", operand, _value(cursor))
        return Unary("NOT", distinct) if is_negated else distinct
    raise cursor.refused("NULL", "DISTINCT FROM", *([] if is_negated else ["NOT"]))


def _escape(cursor: Cursor) -> str | None:
    if not cursor.take_words("ESCAPE"):
        return None
    position, escape = cursor.position, cursor.string("a character in single quotes")
    if len(escape) != 1:
        raise SqlSyntaxError(f"expected a single character after ESCAPE, and got {escape!r}", position)
    return escape


def _value(cursor: Cursor, at_least: int = 1) -> Expression:
    """A value, with the operators after it that bind at least so strongly."""
    found = _signed(cursor)
    while (strength := _strength(cursor)) >= at_least:
        token = cursor.take()
        found = placed(Binary(token.text, found, _value(cursor, strength + 1)), token.position)
    return found


def _strength(cursor: Cursor) -> int:
    return _STRENGTHS.get(cursor.next.text, 0) if cursor.next.kind is Kind.SIGN else 0


def _signed(cursor: Cursor) -> Expression:
    cursor.count_part()
    position = cursor.position
    sign = cursor.take_sign("-", "+")
    if sign is None:
        return _with_suffixes(cursor)
    if cursor.next.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE) and sign == "-":
        number = _literal(cursor, is_negative=True)
        assert number is not None
        return placed(number, position)
    with cursor.nested():
        return placed(Unary(sign, _signed(cursor)), position)


def _with_suffixes(cursor: Cursor) -> Expression:
    found = _primary(cursor)
    while True:
        position = cursor.position
        if cursor.take_sign("["):
            found = placed(Element(found, expression_at(cursor)), position)
            cursor.expect_sign("]")
        elif cursor.next.is_sign("->") and not cursor.after_next().is_sign("*"):
            cursor.take()
            cursor.count_part()
            found = placed(Field(found, cursor.name("a field")), position)
        else:
            return found


def _primary(cursor: Cursor) -> Expression:
    position = cursor.position
    if (literal := _literal(cursor)) is not None:
        return placed(literal, position)
    if cursor.take_sign("("):
        inner = expression_at(cursor)
        cursor.expect_sign(")")
        return inner
    if cursor.take_words("CASE"):
        return placed(_case(cursor), position)
    if cursor.take_words("CAST"):
        return placed(_cast(cursor), position)
    following = cursor.after_next()
    if following.is_sign("[") and cursor.take_words("ARRAY"):
        return placed(_array(cursor), position)
    if following.is_sign("(") and cursor.take_words("MAP"):
        return placed(MapOf(_assigned(cursor, lambda: expression_at(cursor))), position)
    if following.is_sign("(") and cursor.take_words("STRUCT"):
        return placed(StructOf(_assigned(cursor, lambda: cursor.name("a field"))), position)
    return placed(_named(cursor), position)


def _named(cursor: Cursor) -> Expression:
    name = cursor.name("an expression")
    if cursor.take_sign("("):
        return Call(name.upper(), _arguments(cursor))
    if cursor.next.is_sign(".") and not cursor.after_next().is_sign("*"):
        cursor.take()
        return Column(cursor.name("a column"), name)
    return Column(name)


def _literal(cursor: Cursor, *, is_negative: bool = False) -> Literal | None:
    """The literal that comes next; None if something else comes."""
    token, sign = cursor.next, -1 if is_negative else 1
    if token.kind is Kind.TEXT:
        return Literal(cursor.take().value)
    if token.kind is Kind.INTEGER:
        return Literal(_integer(sign * int(cursor.take().text), token.position))
    if token.kind is Kind.DECIMAL:
        number = Decimal(cursor.take().text)
        # Arithmetic would round it, and a zero has no sign.
        return Literal(number.copy_negate() if is_negative and number else number)
    if token.kind is Kind.DOUBLE:
        return Literal(_double(cursor.take().text, token.position, is_negative=is_negative))
    if token.is_word(*_CONSTANTS):
        return Literal(_CONSTANTS[cursor.take().value])
    return None


def _integer(number: int, position: Position) -> int:
    if not -_GREATEST_INTEGER <= number < _GREATEST_INTEGER:
        raise SqlSyntaxError(
            f"invalid numeric literal: {number} is outside the range of BIGINT; with a point it is a DECIMAL",
            position,
        )
    return number


def _double(text: str, position: Position, *, is_negative: bool) -> float:
    number = -float(text) if is_negative else float(text)
    if isinf(number):
        told = f"-{text}" if is_negative else text
        raise SqlSyntaxError(f"number overflows DOUBLE: {told}; the greatest one is about 1.8E308", position)
    return number


def _is_number(literal: Literal) -> bool:
    return isinstance(literal.value, int | Decimal | float) and not isinstance(literal.value, bool)


def _case(cursor: Cursor) -> Case:
    operand = None if cursor.next.is_word("WHEN") else expression_at(cursor)
    branches = []
    while cursor.take_words("WHEN"):
        when = expression_at(cursor)
        cursor.expect_words("THEN")
        branches.append((when, expression_at(cursor)))
    if not branches:
        raise cursor.refused("WHEN")
    otherwise = expression_at(cursor) if cursor.take_words("ELSE") else None
    if not cursor.take_words("END"):
        raise cursor.refused("END", *(["WHEN", "ELSE"] if otherwise is None else []))
    return Case(operand, tuple(branches), otherwise)


def _cast(cursor: Cursor) -> Cast:
    cursor.expect_sign("(")
    operand = expression_at(cursor)
    cursor.expect_words("AS")
    found = Cast(operand, type_at(cursor))
    cursor.expect_sign(")")
    return found


def _array(cursor: Cursor) -> ArrayOf:
    cursor.expect_sign("[")
    elements = () if cursor.next.is_sign("]") else cursor.list_of(lambda: expression_at(cursor))
    cursor.expect_sign("]")
    return ArrayOf(elements)


def _assigned(cursor: Cursor, key: Callable[[], K]) -> tuple[tuple[K, Expression], ...]:
    """`(key := value, …)`, or `()`."""

    def entry() -> tuple[K, Expression]:
        found = key()
        cursor.expect_sign(":=")
        return found, expression_at(cursor)

    cursor.expect_sign("(")
    entries = () if cursor.next.is_sign(")") else cursor.list_of(entry)
    cursor.expect_sign(")")
    return entries


def _arguments(cursor: Cursor) -> tuple[Expression | Lambda | Star, ...]:
    """Arguments to the closing parenthesis, which is taken, too."""
    position = cursor.position
    if cursor.take_sign(")"):
        return ()
    if cursor.take_sign("*"):
        cursor.expect_sign(")")
        return (placed(Star(), position),)
    found = cursor.list_of(lambda: _argument(cursor))
    cursor.expect_sign(")")
    return found


def _argument(cursor: Cursor) -> Expression | Lambda:
    position, parameters = cursor.position, _parameters(cursor)
    if parameters is None:
        return expression_at(cursor)
    return placed(Lambda(parameters, expression_at(cursor)), position)


def _parameters(cursor: Cursor) -> tuple[str, ...] | None:
    """The parameters of a lambda with the arrow after them; None if something else comes."""
    if cursor.after_next().is_sign("=>"):
        found: tuple[str, ...] = (cursor.name("the parameter of a lambda"),)
    elif cursor.next.is_sign("(") and _is_list_before_arrow(cursor):
        found = cursor.in_parentheses(lambda: cursor.name("the parameter of a lambda"))
    else:
        return None
    cursor.expect_sign("=>")
    return found


def _is_list_before_arrow(cursor: Cursor) -> bool:
    count = 1
    while cursor.after_next(count).kind in (Kind.NAME, Kind.QUOTED):
        if not cursor.after_next(count + 1).is_sign(","):
            return cursor.after_next(count + 1).is_sign(")") and cursor.after_next(count + 2).is_sign("=>")
        count += 2
    return False
