"""Compiles expressions: checks their types, and writes the Python that computes them.

How:        Each expression becomes a piece of Python (`Code`) over names that a scope gives for columns. Pieces that
            are deep inside each other become functions, which are defined before they are used. `text_of_function`
            puts pieces into the text of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions import arithmetic
from felice.pipelines.sql.expressions.calls import call_code
from felice.pipelines.sql.expressions.casts import cast
from felice.pipelines.sql.expressions.code import DEEPEST, NULL, Code, Names, called, condition, over_values
from felice.pipelines.sql.expressions.coercion import converted, literal, told, unified
from felice.pipelines.sql.expressions.comparisons import among, between, compared, like
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.syntax.errors import SqlError
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
    left_chain,
    placed,
)
from felice.pipelines.sql.syntax.writer import expression_text
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    Array,
    Map,
    SqlType,
    Struct,
    text_of,
)

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")


class Scope(Protocol):
    """What names mean."""

    def column(self, given: Column) -> Code:
        """The code of a column. Raises `SqlError`."""


class Compiler:
    """Compiles expressions over one scope into the names of one generated function."""

    def __init__(
        self, scope: Scope, functions: FunctionTable, users: Mapping[str, SqlType], names: Names | None = None
    ) -> None:
        self.names = names or Names()
        self._scope, self._functions, self._users = scope, functions, users
        self._parameters: list[dict[str, Code]] = []
        """Those of the lambdas around the expression, the inner ones last."""

    def code(self, given: Expression) -> Code:
        """The code of an expression. Raises `SqlError`."""
        found = self._made(given)
        return self._function(found) if found.depth > DEEPEST else found

    def boolean(self, given: Expression, where: str) -> Code:
        """The code of a condition. Raises `SqlError` for another type."""
        return _boolean(self.code(given), given, where)

    def _made(self, given: Expression) -> Code:
        made = _MAKERS.get(type(given))
        assert made is not None, "each expression has a maker"
        return made(self, given)

    def _function(self, code: Code) -> Code:
        """The code as a function that is called."""
        name = self.names.new("f")
        parameters = [one.text for scope in self._parameters for one in scope.values()]
        listed = ", ".join(parameters)
        self.names.definitions.append(f"def {name}({listed}):\n    return {code.text}\n")
        return Code(
            f"{name}({listed})", code.type, can_be_null=code.can_be_null, can_fail=code.can_fail, depth=1
        )

    def literal(self, given: Literal) -> Code:
        """A literal."""
        value = given.value
        return NULL if value is None else literal(self.names, value, type_of_literal(value))

    def column(self, given: Column) -> Code:
        """A column, or the parameter of a lambda."""
        if given.source is None:
            for scope in reversed(self._parameters):
                if given.name in scope:
                    return scope[given.name]
        return self._scope.column(given)

    def field(self, given: Field) -> Code:
        """A field of a struct."""
        of = self.code(given.of)
        if not isinstance(of.type, Struct):
            raise SqlError(
                f"{expression_text(given.of)} is {told(of)}, and has no fields; expected a STRUCT",
                given.position,
            )
        names = [name for name, _ in of.type.fields]
        if given.name not in names:
            known = ", ".join(names) or "none"
            raise SqlError(
                f"the STRUCT {expression_text(given.of)} has no field {given.name}; it has {known}",
                given.position,
            )
        place = names.index(given.name)
        found = over_values(self.names, [of], lambda texts: f"{texts[0]}[{place}]", of.type.fields[place][1])
        return _nullable(found)

    def element(self, given: Element) -> Code:
        """An element of an array, or the value of a map's key."""
        of, index = self.code(given.of), self.code(given.index)
        if isinstance(of.type, Array):
            if index.type not in (INTEGER, BIGINT):
                raise SqlError(
                    f"the index of an ARRAY must be INTEGER, and is {told(index)} ({expression_text(given.index)})",
                    given.position,
                )
            return _nullable(called(self.names, _element, [of, index], of.type.element, can_fail=False))
        if isinstance(of.type, Map):
            key = converted(self.names, index, of.type.key)
            if key is None:
                raise SqlError(
                    f"the key of {expression_text(given.of)} must be {text_of(of.type.key)}, and is {told(index)}",
                    given.position,
                )
            return _nullable(
                over_values(self.names, [of, key], lambda texts: f"{texts[0]}.get({texts[1]})", of.type.value)
            )
        raise SqlError(
            f"{expression_text(given.of)} is {told(of)}, and has no elements; expected an ARRAY or a MAP",
            given.position,
        )

    def unary(self, given: Unary) -> Code:
        """A sign, or NOT."""
        operand = self.code(given.operand)
        if given.operator == "NOT":
            if operand.type not in (BOOLEAN, None):
                raise SqlError(
                    f"NOT: expected BOOLEAN, and got {told(operand)} ({expression_text(given.operand)})",
                    given.position,
                )
            return over_values(self.names, [operand], lambda texts: f"(not {texts[0]})", BOOLEAN)
        if operand.type is not None and not types.is_number(operand.type):
            raise SqlError(
                f"{given.operator}: expected a number, and got {told(operand)} ({expression_text(given.operand)})",
                given.position,
            )
        if given.operator == "+" or operand.type is None:
            return operand
        return self._wrapped(
            over_values(self.names, [operand], lambda texts: f"(-{texts[0]})", operand.type), operand.type
        )

    def binary(self, given: Binary) -> Code:
        """An operator between two values, or a chain of them: a long one is deep at its left side."""
        chain, first = left_chain(given)
        found = self.code(first)
        for one in chain:
            found = self._operator(one, found, self.code(one.right))
            if found.depth > DEEPEST:
                found = self._function(found)
        return found

    def _operator(self, given: Binary, left: Code, right: Code) -> Code:
        if given.operator in ("AND", "OR"):
            return self._logical(given, left, right)
        if given.operator in _COMPARISONS:
            return compared(self.names, given.operator, (left, right), (given.left, given.right))
        if given.operator == "||" or (given.operator == "+" and left.type == STRING == right.type):
            return self._concatenated(given, left, right)
        return self._arithmetic(given, left, right)

    def _logical(self, given: Binary, left: Code, right: Code) -> Code:
        sides = [
            _boolean(code, tree, given.operator) for code, tree in ((left, given.left), (right, given.right))
        ]
        if given.operator == "AND":
            stops = "not {0}"
        else:
            stops = "{0} or {0} is None" if left.can_be_null else "{0}"
        if not left.can_be_null and not right.can_be_null:
            return condition(f"{left.text} {given.operator.lower()} {right.text}", sides)
        name = left.text if left.is_simple else self.names.new("t")
        first = name if left.is_simple else f"({name} := {left.text})"
        text = stops.format(first, name) if "{0} or" not in stops else f"{first} or {name} is None"
        return Code(
            f"({name} if {text} else {right.text})",
            BOOLEAN,
            can_fail=left.can_fail or right.can_fail,
            depth=max(left.depth, right.depth) + 2,
        )

    def _concatenated(self, given: Binary, left: Code, right: Code) -> Code:
        for side, tree in ((left, given.left), (right, given.right)):
            if side.type not in (STRING, None):
                raise SqlError(
                    f"{given.operator}: expected STRING, and got {told(side)} ({expression_text(tree)}); use CAST",
                    tree.position,
                )
        return over_values(self.names, [left, right], lambda texts: f"({texts[0]} + {texts[1]})", STRING)

    def _arithmetic(self, given: Binary, left: Code, right: Code) -> Code:
        if left.type is None or right.type is None:
            raise SqlError(f"{given.operator} does not take NULL: {expression_text(given)}", given.position)
        result = types.arithmetic(given.operator, left.type, right.type)
        if result is None:
            raise SqlError(
                f"{given.operator} does not take {told(left)} ({expression_text(given.left)}) and {told(right)} "
                f"({expression_text(given.right)})",
                given.position,
            )
        if isinstance(result, types.Decimal):
            function: Any = arithmetic.decimal_function(given.operator, result)
            pair = [_as_decimal(self.names, one) for one in (left, right)]
            return called(self.names, function, pair, result)
        function = (arithmetic.OF_DOUBLES if result == DOUBLE else arithmetic.WHOLE).get(given.operator)
        if result == DOUBLE:
            left, right = (converted(self.names, one, DOUBLE) or one for one in (left, right))
        if function is None:
            found = over_values(
                self.names, [left, right], lambda texts: f"({texts[0]} {given.operator} {texts[1]})", result
            )
        else:
            found = called(self.names, function, [left, right], result, can_fail=result != DOUBLE)
        return self._wrapped(found, result)

    def _wrapped(self, found: Code, result: SqlType) -> Code:
        """A whole number that wraps around where Java's does."""
        if result not in (INTEGER, BIGINT):
            return found
        least, greatest = arithmetic.limits(result)
        wrap, name = self.names.constant(arithmetic.wrapper(result)), self.names.new("t")
        is_null = f"({name} := {found.text}) is None or " if found.can_be_null else ""
        inner = name if found.can_be_null else f"({name} := {found.text})"
        return Code(
            f"({name} if {is_null}{least} <= {inner} <= {greatest} else {wrap}({name}))",
            result,
            can_be_null=found.can_be_null,
            can_fail=found.can_fail,
            depth=found.depth + 2,
        )

    def is_null(self, given: IsNull) -> Code:
        """IS NULL."""
        operand = self.code(given.operand)
        return condition(f"{operand.text} is {'not ' if given.is_negated else ''}None", [operand])

    def between(self, given: Between) -> Code:
        """BETWEEN."""
        trees = (given.operand, given.low, given.high)
        return between(self.names, [self.code(one) for one in trees], trees, is_negated=given.is_negated)

    def among(self, given: In) -> Code:
        """IN."""
        trees = (given.operand, *given.choices)
        operand, *choices = (self.code(one) for one in trees)
        return among(self.names, operand, choices, trees, is_negated=given.is_negated)

    def like(self, given: Like) -> Code:
        """LIKE."""
        trees = (given.operand, given.pattern)
        codes = [self.code(one) for one in trees]
        return like(self.names, codes, trees, given.escape, is_negated=given.is_negated)

    def case(self, given: Case) -> Code:
        """CASE: values of one type, of which one is computed."""
        conditions = [self._when(given, when) for when, _ in given.branches]
        trees = [*(then for _, then in given.branches), given.otherwise or Literal(None)]
        found = unified(self.names, [self.code(one) for one in trees])
        if found is None:
            listed = ", ".join(f"{told(self.code(one))} ({expression_text(one)})" for one in trees)
            raise SqlError(f"the values of CASE must be of one type, and are {listed}", given.position)
        type_, values = found
        text, depth = values[-1].text, values[-1].depth
        fails = any(one.can_fail for one in (*conditions, *values))
        # The last branch is the innermost one, and a long row of branches becomes functions.
        for when, value in reversed(list(zip(conditions, values[:-1], strict=True))):
            text = f"({value.text} if {when.text} else {text})"
            depth = max(depth + 1, when.depth + 1, value.depth + 1)
            if depth > DEEPEST:
                text, depth = self._function(Code(text, type_, depth=depth)).text, 1
        return Code(text, type_, can_fail=fails, depth=depth)

    def _when(self, given: Case, when: Expression) -> Code:
        if given.operand is not None:
            return self.code(placed(Binary("=", given.operand, when), when.position))
        return self.boolean(when, "WHEN")

    def cast(self, given: Cast) -> Code:
        """CAST."""
        operand, wanted = self.code(given.operand), types.resolved(given.type, self._users)
        if operand.type is None:
            return Code("None", wanted, is_simple=True)
        function = cast(operand.type, wanted)
        if function is None:
            raise SqlError(
                f"CAST: {told(operand)} ({expression_text(given.operand)}) cannot be converted to {text_of(wanted)}",
                given.position,
            )
        return operand if operand.type == wanted else called(self.names, function, [operand], wanted)

    def array(self, given: ArrayOf) -> Code:
        """`ARRAY[…]`."""
        type_, codes = self._of_one_type(given.elements, "ARRAY", given)
        return _made(f"[{', '.join(one.text for one in codes)}]", Array(type_), codes)

    def map(self, given: MapOf) -> Code:
        """`MAP(…)`."""
        key, keys = self._of_one_type([one for one, _ in given.entries], "MAP", given)
        value, values = self._of_one_type([one for _, one in given.entries], "MAP", given)
        entries = (f"{one.text}: {other.text}" for one, other in zip(keys, values, strict=True))
        return _made(f"{{{', '.join(entries)}}}", Map(key, value), [*keys, *values])

    def _of_one_type(
        self, trees: Sequence[Expression], word: str, given: Expression
    ) -> tuple[SqlType, list[Code]]:
        codes = [self.code(one) for one in trees]
        if not codes:
            raise SqlError(f"{word} without values has no type; use CAST(NULL AS {word}<…>)", given.position)
        found = unified(self.names, codes)
        if found is None:
            listed = ", ".join(
                f"{told(one)} ({expression_text(tree)})" for one, tree in zip(codes, trees, strict=True)
            )
            raise SqlError(f"the values of {word} must be of one type, and are {listed}", given.position)
        if found[0] is None:
            raise SqlError(f"the type of {word} is not known: all of its values are NULL", given.position)
        return found[0], found[1]

    def struct(self, given: StructOf) -> Code:
        """`STRUCT(…)`."""
        names = [name for name, _ in given.fields]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise SqlError(f"a STRUCT has two fields {twice}", given.position)
        codes = [self.code(one) for _, one in given.fields]
        fields = tuple((name, one.type or STRING) for name, one in zip(names, codes, strict=True))
        return _made(f"({''.join(f'{one.text}, ' for one in codes)})", Struct(fields), codes)

    def call(self, given: Call) -> Code:
        """A call of a scalar function."""
        arguments: list[Code | Lambda] = []
        for one in given.arguments:
            if isinstance(one, Star):
                raise SqlError(f"{given.function} does not take *", one.position)
            arguments.append(one if isinstance(one, Lambda) else self._argument(given, one))
        return call_code(self.names, self._functions, given, arguments, self._lambda)

    def _argument(self, call: Call, given: Expression) -> Code:
        # `DATEADD(DAYS, 1, d)`: the unit is a word, not a column.
        if (
            isinstance(given, Column)
            and given.source is None
            and given.name in UNITS
            and call.function in WITH_UNITS
        ):
            return literal(self.names, given.name, STRING)
        return self.code(given)

    def _lambda(self, given: Lambda, parameter_types: Sequence[SqlType]) -> Code:
        taken = [name for name in given.parameters if given.parameters.count(name) > 1]
        if taken:
            raise SqlError(f"a lambda has two parameters {taken[0]}", given.position)
        parameters = {
            name: Code(self.names.new("p"), type_, is_simple=True)
            for name, type_ in zip(given.parameters, parameter_types, strict=True)
        }
        self._parameters.append(parameters)
        try:
            body = self.code(given.body)
        finally:
            self._parameters.pop()
        listed = ", ".join(one.text for one in parameters.values())
        return Code(
            f"(lambda {listed}: {body.text})",
            body.type,
            can_be_null=False,
            can_fail=body.can_fail,
            depth=body.depth + 1,
        )


UNITS = frozenset(
    one + plural
    for one in (
        "YEAR",
        "MONTH",
        "WEEK",
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "MILLISECOND",
        "MICROSECOND",
        "NANOSECOND",
    )
    for plural in ("", "S")
)
WITH_UNITS = frozenset(("DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB"))

_MAKERS: dict[type, Callable[[Compiler, Any], Code]] = {
    ArrayOf: Compiler.array,
    Between: Compiler.between,
    Binary: Compiler.binary,
    Call: Compiler.call,
    Case: Compiler.case,
    Cast: Compiler.cast,
    Column: Compiler.column,
    Element: Compiler.element,
    Field: Compiler.field,
    In: Compiler.among,
    IsNull: Compiler.is_null,
    Like: Compiler.like,
    Literal: Compiler.literal,
    MapOf: Compiler.map,
    StructOf: Compiler.struct,
    Unary: Compiler.unary,
}


def type_of_literal(value: object) -> SqlType:
    """The type of a literal that is not NULL."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        least, greatest = arithmetic.limits(INTEGER)
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


def _boolean(code: Code, given: Expression, where: str) -> Code:
    if code.type not in (BOOLEAN, None):
        raise SqlError(
            f"{where}: expected a boolean expression, and got {told(code)} ({expression_text(given)})",
            given.position,
        )
    return code


def _nullable(code: Code) -> Code:
    return Code(code.text, code.type, can_fail=code.can_fail, depth=code.depth)


def _made(text: str, type_: SqlType, parts: Sequence[Code]) -> Code:
    depth = max((one.depth for one in parts), default=0) + 1
    return Code(text, type_, can_be_null=False, can_fail=any(one.can_fail for one in parts), depth=depth)


def _as_decimal(names: Names, code: Code) -> Code:
    assert code.type is not None
    return converted(names, code, types.as_decimal(code.type)) or code


def _element(values: Sequence[Any], index: int) -> Any:
    """An element: the first one is 1, the last one -1. None outside."""
    place = index - 1 if index > 0 else len(values) + index
    return values[place] if index and 0 <= place < len(values) else None
