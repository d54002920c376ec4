"""Signatures of functions: their text, and whether they take the types of a call.

Keeps true: types of signatures are `SqlType`s, in which some primitives stand for several types: a capital letter
            stands for one type, the same one in the whole signature; ANY for each type; DECIMAL for each decimal type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.tokens import Kind
from felice.pipelines.sql.syntax.types import type_at
from felice.pipelines.sql.types import (
    BIGINT,
    DOUBLE,
    INTEGER,
    Array,
    Decimal,
    Map,
    Primitive,
    SqlType,
    Struct,
    common,
    resolved,
    text_of,
)

ANY, ANY_DECIMAL = Primitive("ANY"), Primitive("DECIMAL")
_SEVERAL = (ANY.name, ANY_DECIMAL.name)
_WIDENING = (INTEGER, BIGINT, ANY_DECIMAL, DOUBLE)
"""Each of them takes the values of those before it."""
_CAST, _VARIABLE, _ANY = 100, 1, 2
"""What a match costs: the cheapest function is called."""


@dataclass(frozen=True, slots=True)
class LambdaShape:
    """A lambda as a parameter: the types of its own parameters, and of its result."""

    parameters: tuple[SqlType, ...]
    result: SqlType


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function."""

    name: str
    type: SqlType | LambdaShape
    is_constant: bool = False
    is_many: bool = False
    """None or more arguments; of the last parameter only."""


@dataclass(frozen=True, slots=True)
class LambdaArgument:
    """A lambda as an argument: its type is found when the types of the other arguments are known."""

    count: int
    """How many parameters it has."""


Argument = SqlType | LambdaArgument | None
"""The type of an argument; None for NULL."""
Bound = Mapping[str, SqlType]
"""The types for which the capital letters stand."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and returns."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: SqlType
    text: str

    def parameter(self, number: int) -> Parameter | None:
        """The parameter of an argument; None after the last one."""
        if number < len(self.parameters):
            return self.parameters[number]
        return self.parameters[-1] if self.parameters and self.parameters[-1].is_many else None

    def match(self, arguments: Sequence[Argument]) -> tuple[int, dict[str, SqlType]] | None:
        """How little the types of a call fit, and what the letters stand for; None if the function does not take them.

        Letters that only occur in lambdas are not bound.
        """
        least = len(self.parameters) - (bool(self.parameters) and self.parameters[-1].is_many)
        if len(arguments) < least:
            return None
        cost, bound = 0, dict[str, SqlType]()
        for number, given in enumerate(arguments):
            parameter = self.parameter(number)
            if parameter is None:
                return None
            found = _cost(parameter.type, given, bound)
            if found is None:
                return None
            cost += found + parameter.is_many
        return cost, bound


def _cost(pattern: SqlType | LambdaShape, given: Argument, bound: dict[str, SqlType]) -> int | None:
    if isinstance(pattern, LambdaShape) or isinstance(given, LambdaArgument):
        is_lambda = isinstance(pattern, LambdaShape) and isinstance(given, LambdaArgument)
        return 0 if is_lambda and len(pattern.parameters) == given.count else None  # type: ignore[union-attr]
    if given is None:
        return 0
    if is_letter(pattern):
        return _bind(pattern.name, given, bound)  # type: ignore[union-attr]
    match pattern, given:
        case Array(element), Array(own):
            return _cost(element, own, bound)
        case Map(key, value), Map(own_key, own_value):
            costs = _cost(key, own_key, bound), _cost(value, own_value, bound)
            return None if costs[0] is None or costs[1] is None else costs[0] + costs[1]
    if pattern == ANY:
        return _ANY
    if pattern == given or (pattern == ANY_DECIMAL and isinstance(given, Decimal)):
        return 0
    if pattern == Struct(()) and isinstance(given, Struct):
        return 0
    steps = _place(pattern), _place(given)
    return _CAST + steps[0] - steps[1] if -1 < steps[1] < steps[0] else None


def _bind(name: str, given: SqlType, bound: dict[str, SqlType]) -> int | None:
    known = bound.get(name)
    wider = given if known is None else common(known, given)
    if wider is None:
        return None
    bound[name] = wider
    return _VARIABLE


def _place(given: SqlType) -> int:
    """The place of a type of numbers among those that become wider; -1 for others."""
    wide = ANY_DECIMAL if isinstance(given, Decimal) else given
    return _WIDENING.index(wide) if wide in _WIDENING else -1


def is_letter(pattern: SqlType) -> bool:
    """Whether it stands for a type."""
    return isinstance(pattern, Primitive) and len(pattern.name) == 1


def letters_of(pattern: SqlType) -> Iterator[str]:
    """The letters in a type of a signature."""
    match pattern:
        case Primitive(name) if len(name) == 1:
            yield name
        case Array(element):
            yield from letters_of(element)
        case Map(key, value):
            yield from letters_of(key)
            yield from letters_of(value)


def filled(pattern: SqlType, bound: Bound) -> SqlType:
    """The type of a signature with the types for which its letters stand. Raises KeyError for one that is not bound."""
    match pattern:
        case Primitive(name) if len(name) == 1:
            return bound[name]
        case Array(element):
            return Array(filled(element, bound))
        case Map(key, value):
            return Map(filled(key, bound), filled(value, bound))
        case Struct(fields):
            return Struct(tuple((name, filled(one, bound)) for name, one in fields))
    return pattern


@lru_cache(maxsize=4096)
def parsed(text: str) -> Signature:
    """The signature of a text. Raises `SqlError`."""
    cursor = Cursor(text)
    name = cursor.name("the name of a function")
    parameters = cursor.in_parentheses(lambda: _parameter(cursor)) if not _is_empty(cursor) else ()
    cursor.expect_sign("->")
    returns = _type(cursor)
    if cursor.next.kind is not Kind.END:
        raise cursor.refused("the end of the signature")
    return Signature(name, parameters, returns, text)


def _is_empty(cursor: Cursor) -> bool:
    if not cursor.after_next().is_sign(")"):
        return False
    cursor.expect_sign("(")
    cursor.expect_sign(")")
    return True


def _parameter(cursor: Cursor) -> Parameter:
    name = cursor.take().text
    shape = _lambda(cursor)
    type_ = shape or _type(cursor)
    is_constant = cursor.take_words("CONSTANT")
    return Parameter(name, type_, is_constant, cursor.take_words("MANY"))


def _lambda(cursor: Cursor) -> LambdaShape | None:
    if cursor.next.is_sign("("):
        parameters = cursor.in_parentheses(lambda: _type(cursor))
    elif cursor.after_next().is_sign("=>"):
        parameters = (_type(cursor),)
    else:
        return None
    cursor.expect_sign("=>")
    return LambdaShape(parameters, _type(cursor))


def _type(cursor: Cursor) -> SqlType:
    return resolved(type_at(cursor), _Patterns())


class _Patterns(dict[str, SqlType]):
    """The names that stand for several types, as if users had made them."""

    def get(self, name: str, default: object = None) -> SqlType | None:  # type: ignore[override]
        return Primitive(name) if len(name) == 1 or name in _SEVERAL else None


def told(arguments: Sequence[Argument]) -> str:
    """The types of a call as messages name them."""
    return ", ".join(
        "NULL" if one is None else "LAMBDA" if isinstance(one, LambdaArgument) else text_of(one)
        for one in arguments
    )
