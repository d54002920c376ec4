"""Compiles expressions: checks their types, and writes the Python that computes them.

How:        Each expression becomes a piece of Python (`Code`) over names that a scope gives for columns. Pieces that
            are deep inside each other become functions, which are defined before they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions import arithmetic
from felice.pipelines.sql.expressions.calls import UNITS, WITH_UNITS, call_code
from felice.pipelines.sql.expressions.casts import cast
from felice.pipelines.sql.expressions.code import (
    DEEPEST,
    NULL,
    Code,
    Names,
    attempted,
    attempting,
    called,
    condition,
    made,
    over_values,
)
from felice.pipelines.sql.expressions.coercion import (
    as_decimal,
    converted,
    listed,
    literal,
    told,
    type_of_literal,
    unified,
)
from felice.pipelines.sql.expressions.comparisons import COMPARISONS, among, between, compared, like
from felice.pipelines.sql.expressions.refusals import (
    check_boolean,
    different_values,
    no_arithmetic,
    no_condition,
    no_elements,
    without_type,
)
from felice.pipelines.sql.functions.table import SCALAR, TABLE, FunctionTable
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
from felice.pipelines.sql.syntax.writer import shown_text
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
    first_repeated,
    text_of,
)

LONGEST_CHAIN = 8
"""Longer chains of operators, and rows of branches, become lines of a function: Python's parser has a limit."""


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
        return self._shallow(self._made(given))

    def boolean(self, given: Expression, clause: str) -> Code:
        """The code of a clause's condition. Raises `SqlError`, which names the clause."""
        try:
            code = self.code(given)
        except SqlError as error:
            raise SqlError(f"error in {clause} expression: {error.reason}", error.position) from None
        return check_boolean(code, given, clause)

    def _made(self, given: Expression) -> Code:
        make = _MAKERS.get(type(given))
        assert make is not None, "each expression has a maker"
        return make(self, given)

    def _shallow(self, code: Code) -> Code:
        return self._function(code) if code.depth > DEEPEST else code

    def _function(self, code: Code, lines: Sequence[str] = ()) -> Code:
        """The code as a function that is called, with lines before it."""
        name = self.names.new("f")
        parameters = [one.text for scope in self._parameters for one in scope.values()]
        listed = ", ".join(parameters)
        body = "".join(f"    {line}\n" for line in (*lines, f"return {code.text}"))
        self.names.definitions.append(f"def {name}({listed}):\n{body}")
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
            raise SqlError(f"expected STRUCT type, got: {told(of)} ({shown_text(given.of)})", given.position)
        names = [name for name, _ in of.type.fields]
        if given.name not in names:
            known = ", ".join(names) or "none"
            raise SqlError(
                f"could not find field '{given.name}' in '{shown_text(given.of)}'. The STRUCT has {known}",
                given.position,
            )
        place = names.index(given.name)
        found = over_values(self.names, [of], lambda texts: f"{texts[0]}[{place}]", of.type.fields[place][1])
        return replace(found, can_be_null=True)

    def element(self, given: Element) -> Code:
        """An element of an array, or the value of a map's key."""
        of, index = self.code(given.of), self.code(given.index)
        if isinstance(of.type, Array):
            if index.type not in (INTEGER, BIGINT):
                raise SqlError(
                    f"the index of an ARRAY must be INTEGER, and is {told(index)} ({shown_text(given.index)})",
                    given.position,
                )
            found = called(self.names, _element, [of, index], of.type.element, can_fail=False)
            return replace(found, can_be_null=True)
        if isinstance(of.type, Map):
            key = converted(self.names, index, of.type.key)
            if key is None:
                raise SqlError(
                    f"the key of {shown_text(given.of)} must be {text_of(of.type.key)}, and is {told(index)}",
                    given.position,
                )
            return replace(
                over_values(
                    self.names, [of, key], lambda texts: f"{texts[0]}.get({texts[1]})", of.type.value
                ),
                can_be_null=True,
            )
        raise no_elements(given, of)

    def unary(self, given: Unary) -> Code:
        """A sign, or NOT."""
        operand = self.code(given.operand)
        if given.operator == "NOT":
            if operand.type not in (BOOLEAN, None):
                raise SqlError(
                    f"NOT: expected BOOLEAN, and got {told(operand)} ({shown_text(given.operand)})",
                    given.position,
                )
            return over_values(self.names, [operand], lambda texts: f"(not {texts[0]})", BOOLEAN)
        if operand.type is not None and not types.is_number(operand.type):
            raise SqlError(
                f"{given.operator}: expected a number, and got {told(operand)} ({shown_text(given.operand)})",
                given.position,
            )
        if given.operator == "+" or operand.type is None:
            return operand
        value = self._present(operand)
        if isinstance(operand.type, types.Decimal):
            return called(self.names, arithmetic.EXACT.minus, [value], operand.type, can_fail=False)
        return self._wrapped(
            over_values(self.names, [value], lambda texts: f"(-{texts[0]})", operand.type), operand.type
        )

    def _present(self, operand: Code) -> Code:
        """An operand of arithmetic. In a lambda a null is an error, as in ksqlDB: it makes the whole result null."""
        if not self._parameters or not operand.can_be_null:
            return operand
        return replace(operand, can_be_null=False, can_fail=True)

    def binary(self, given: Binary) -> Code:
        """An operator between two values, or a chain of them: a long one is deep at its left side."""
        chain, first = left_chain(given)
        found, lines = self.code(first), list[str]()
        for number, one in enumerate(chain):
            if number % LONGEST_CHAIN == LONGEST_CHAIN - 1:
                name = self.names.new("t")
                lines.append(f"{name} = {found.text}")
                found = replace(found, text=name, is_simple=True, depth=0)
            found = self._operator(one, found, self.code(one.right))
        return self._function(found, lines) if lines else found

    def _operator(self, given: Binary, left: Code, right: Code) -> Code:
        if given.operator in ("AND", "OR"):
            return self._logical(given, left, right)
        if given.operator in COMPARISONS:
            return compared(self.names, given.operator, (left, right), (given.left, given.right))
        if given.operator == "||" or (given.operator == "+" and left.type == STRING == right.type):
            return self._concatenated(given, left, right)
        return self._arithmetic(given, left, right)

    def _logical(self, given: Binary, left: Code, right: Code) -> Code:
        sides = [
            check_boolean(code, tree, given.operator)
            for code, tree in ((left, given.left), (right, given.right))
        ]
        if not left.can_be_null and not right.can_be_null:
            return condition(f"{left.text} {given.operator.lower()} {right.text}", sides)
        name = left.text if left.is_simple else self.names.new("t")
        first = name if left.is_simple else f"({name} := {left.text})"
        if given.operator == "AND":
            stops = f"not {first}"
        else:
            stops = f"{first} or {name} is None" if left.can_be_null else first
        return Code(
            f"({name} if {stops} else {right.text})",
            BOOLEAN,
            can_fail=left.can_fail or right.can_fail,
            depth=max(left.depth, right.depth) + 2,
        )

    def _concatenated(self, given: Binary, left: Code, right: Code) -> Code:
        for side, tree in ((left, given.left), (right, given.right)):
            if side.type not in (STRING, None):
                raise SqlError(
                    f"{given.operator}: expected STRING, and got {told(side)} ({shown_text(tree)}); use CAST",
                    tree.position,
                )
        return over_values(self.names, [left, right], lambda texts: f"({texts[0]} + {texts[1]})", STRING)

    def _arithmetic(self, given: Binary, left: Code, right: Code) -> Code:
        kinds = left.type, right.type
        result = None if None in kinds else types.arithmetic(given.operator, *kinds)  # type: ignore[arg-type]
        if result is None:
            raise no_arithmetic(given, left, right)
        left, right = self._present(left), self._present(right)
        if isinstance(result, types.Decimal):
            function: Any = arithmetic.decimal_function(given.operator, result)
            pair = [as_decimal(self.names, one) for one in (left, right)]
            return called(self.names, function, pair, result, can_fail=given.operator in arithmetic.WHOLE)
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
        if operand.is_literal:
            return literal(self.names, (operand.constant is None) != given.is_negated, BOOLEAN)
        return condition(f"{operand.text} is {'not ' if given.is_negated else ''}None", [operand])

    def between(self, given: Between) -> Code:
        """BETWEEN."""
        trees = (given.operand, given.low, given.high)
        codes = [self.code(one) for one in trees]
        return between(self.names, codes, trees, self._type_of, is_negated=given.is_negated)

    def among(self, given: In) -> Code:
        """IN."""
        trees = (given.operand, *given.choices)
        codes = [self.code(one) for one in trees]
        return among(self.names, codes, trees, self._type_of, is_negated=given.is_negated)

    def like(self, given: Like) -> Code:
        """LIKE."""
        trees = (given.operand, given.pattern)
        codes = [self.code(one) for one in trees]
        return like(self.names, codes, trees, given.escape, is_negated=given.is_negated)

    def case(self, given: Case) -> Code:
        """CASE: values of one type, of which one is computed."""
        conditions = [self._when(given, when) for when, _ in given.branches]
        trees = [*(then for _, then in given.branches), given.otherwise or Literal(None)]
        codes = [self.code(one) for one in trees]
        found = unified(self.names, codes)
        if found is None:
            raise different_values(given, codes)
        if found[0] is None:
            raise SqlError(
                "invalid Case expression. All case branches have NULL type; use CAST(NULL AS …)",
                given.position,
            )
        type_, values = found
        fails = any(one.can_fail for one in (*conditions, *values))
        pairs = list(zip(conditions, values[:-1], strict=True))
        if len(pairs) > LONGEST_CHAIN:
            lines = [f"if {when.text}: return {value.text}" for when, value in pairs]
            return self._function(Code(values[-1].text, type_, can_fail=fails), lines)
        text = "".join(f"{value.text} if {when.text} else " for when, value in pairs) + values[-1].text
        depth = max(one.depth for one in (*conditions, *values)) + len(pairs)
        return Code(f"({text})", type_, can_fail=fails, depth=depth)

    def _when(self, given: Case, when: Expression) -> Code:
        if given.operand is not None:
            return self.code(placed(Binary("=", given.operand, when), when.position))
        code = self.code(when)
        if code.type not in (BOOLEAN, None):
            raise no_condition(when, code)
        return code

    def cast(self, given: Cast) -> Code:
        """CAST."""
        operand, wanted = self.code(given.operand), types.resolved(given.type, self._users)
        if operand.type is None:
            return Code("None", wanted, is_simple=True)
        function = cast(operand.type, wanted)
        if function is None:
            raise SqlError(
                f"cast of {told(operand)} to {text_of(wanted)} is not supported ({shown_text(given.operand)})",
                given.position,
            )
        if operand.type == wanted:
            return operand
        function = attempting(self.names, function, f"CAST AS {text_of(wanted)}")
        found = called(self.names, function, [operand], wanted, can_fail=False)
        return attempted(self.names, replace(found, can_be_null=True), "CAST")

    def array(self, given: ArrayOf) -> Code:
        """`ARRAY[…]`."""
        if not given.elements:
            raise SqlError(
                "array constructor cannot be empty. Please supply at least one element", given.position
            )
        type_, codes = self._listed(given.elements, "array item")
        if type_ is None:
            raise without_type("an array with all NULL elements", given)
        return made(f"[{', '.join(one.text for one in codes)}]", Array(type_), codes)

    def map(self, given: MapOf) -> Code:
        """`MAP(…)`."""
        if not given.entries:
            raise SqlError(
                "map constructor cannot be empty. Please supply at least one key value pair", given.position
            )
        key, keys = self._listed([one for one, _ in given.entries], "map key")
        value, values = self._listed([one for _, one in given.entries], "map value")
        if key is None or value is None:
            raise without_type(f"a map with all NULL {'keys' if key is None else 'values'}", given)
        entries = (f"{one.text}: {other.text}" for one, other in zip(keys, values, strict=True))
        return made(f"{{{', '.join(entries)}}}", Map(key, value), [*keys, *values])

    def _listed(self, trees: Sequence[Expression], what: str) -> tuple[SqlType | None, list[Code]]:
        """Parts of a value, in their common type. A part that fails is null."""
        type_, codes = listed(self.names, [self.code(one) for one in trees], trees, self._type_of)
        return type_, [self._shallow(attempted(self.names, one, what)) for one in codes]

    def _type_of(self, given: Expression) -> SqlType | None:
        return self.code(given).type

    def struct(self, given: StructOf) -> Code:
        """`STRUCT(…)`."""
        names = [name for name, _ in given.fields]
        if twice := first_repeated(names):
            raise SqlError(f"a STRUCT has two fields {twice}", given.position)
        codes = [attempted(self.names, self.code(one), "struct field") for _, one in given.fields]
        fields = tuple((name, one.type or STRING) for name, one in zip(names, codes, strict=True))
        return made(f"({''.join(f'{one.text}, ' for one in codes)})", Struct(fields), codes)

    def call(self, given: Call) -> Code:
        """A call of a scalar function."""
        return self._called(given, SCALAR)

    def rows(self, given: Call) -> Code:
        """The list of rows of a call of a table function. Raises `SqlError`."""
        return self._called(given, TABLE)

    def _called(self, given: Call, kind: str) -> Code:
        arguments: list[Code | Lambda] = []
        for one in given.arguments:
            if isinstance(one, Star):
                raise SqlError(f"{given.function} does not take *", one.position)
            arguments.append(one if isinstance(one, Lambda) else self._argument(given, one))
        return call_code(self.names, self._functions, given, arguments, self._lambda, kind)

    def _argument(self, call: Call, given: Expression) -> Code:
        # `DATEADD(DAYS, 1, d)`: the unit is a word, not a column.
        if (
            isinstance(given, Column)
            and given.source is None
            and given.name in UNITS
            and call.function in WITH_UNITS
        ):
            return literal(self.names, given.name, STRING)
        code = self.code(given)
        if isinstance(given, Call):
            return attempted(self.names, code, given.function)
        return attempted(self.names, code, given.name) if isinstance(given, Field) else code

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


def _element(values: Sequence[Any], index: int) -> Any:
    """An element: the first one is 1, the last one -1. None outside."""
    place = index - 1 if index > 0 else len(values) + index
    return values[place] if index and 0 <= place < len(values) else None
