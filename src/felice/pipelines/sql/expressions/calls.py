"""Calls of functions: which function takes the arguments, and the Python that calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from felice.pipelines.sql import types
from felice.pipelines.sql.expressions.code import Code, Names, called
from felice.pipelines.sql.expressions.coercion import converted
from felice.pipelines.sql.functions.signatures import (
    Argument,
    LambdaArgument,
    LambdaShape,
    Parameter,
    Signature,
    filled,
    is_letter,
    letters_of,
    told,
)
from felice.pipelines.sql.functions.table import SCALAR, Function, FunctionTable
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.tree import Call, Lambda
from felice.pipelines.sql.types import Array, Map, Primitive, SqlType, Struct

CompileLambda = Callable[[Lambda, Sequence[SqlType]], Code]
"""Makes the code of a lambda whose parameters have these types. `type` is that of its body."""
_MOST_NAMED = 8
UNITS = frozenset(
    one + plural
    for one in ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND")
    for plural in ("", "S")
)
WITH_UNITS = frozenset(("DATEADD", "DATESUB", "TIMEADD", "TIMESUB", "TIMESTAMPADD", "TIMESTAMPSUB"))
"""Functions whose first argument is a word, as in `DATEADD(DAYS, 1, d)`, and these words."""


class Chosen(NamedTuple):
    """A function, with the types for which the letters of its signature stand."""

    function: Function
    bound: dict[str, SqlType]


def chosen(functions: FunctionTable, name: str, arguments: Sequence[Argument], position: Position) -> Chosen:
    """The function that takes these types. Raises `SqlError`."""
    known = functions.named(name)
    if not known:
        near = get_close_matches(name, functions.names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SqlError(f"can't find any functions with the name '{name}'{hint}", position)
    matches = [(match, one) for one in known if (match := one.signature.match(arguments)) is not None]
    if not matches:
        listed = "\n".join(one.signature.text for one in known[:_MOST_NAMED])
        raise SqlError(
            f"function '{name}' does not accept parameters ({told(arguments)}).\nValid alternatives are:\n{listed}",
            position,
        )
    (_, bound), function = min(matches, key=lambda match: match[0][0])
    return Chosen(function, bound)


def argument_of(given: Code | Lambda) -> Argument:
    """The type of an argument."""
    return LambdaArgument(len(given.parameters)) if isinstance(given, Lambda) else given.type


def call_code(
    names: Names,
    functions: FunctionTable,
    call: Call,
    arguments: Sequence[Code | Lambda],
    compile_lambda: CompileLambda,
    kind: str = SCALAR,
) -> Code:
    """The code of a call of a function of this kind. Raises `SqlError`, also for a function of another kind."""
    types_ = [argument_of(one) for one in arguments]
    function, bound = chosen(functions, call.function, types_, call.position)
    if function.kind != kind:
        raise SqlError(
            f"the {function.kind.lower()} function {call.function} cannot be used here: "
            f"expected a {kind.lower()} function",
            call.position,
        )
    codes, bound = _given(names, function.signature, call, arguments, bound, compile_lambda)
    shown = [
        None if isinstance(one, Lambda) else code.type for one, code in zip(arguments, codes, strict=True)
    ]
    result = result_type(function, bound, shown, codes, call.position)
    implementation = function.implementation(*shown) if function.by_type else function.implementation
    if function.takes_nulls:
        name = names.constant(implementation)
        text = f"{name}({', '.join(one.text for one in codes)})"
        depth = max((one.depth for one in codes), default=0) + 1
        return Code(text, result, can_fail=True, depth=depth)
    found = called(names, implementation, codes, result)
    return Code(found.text, result, can_fail=True, depth=found.depth)


def result_type(
    function: Function,
    bound: Mapping[str, SqlType],
    given: Sequence[SqlType | None],
    codes: Sequence[Code],
    position: Position | None = None,
) -> SqlType:
    """The type of a function's results. Raises `SqlError`."""
    if function.result_type is None:
        return filled(function.signature.returns, bound)
    literals = [code.constant if code.is_literal else None for code in codes]
    try:
        return function.result_type(given, literals)  # type: ignore[arg-type]
    except SqlError as error:
        raise SqlError(f"{function.name}: {error.reason}", position) from None


def _given(
    names: Names,
    signature: Signature,
    call: Call,
    arguments: Sequence[Code | Lambda],
    bound: dict[str, SqlType],
    compile_lambda: CompileLambda,
) -> tuple[list[Code], dict[str, SqlType]]:
    """The arguments in the types of the parameters. Lambdas come last: their types depend on the others."""
    bound = _with_unknown(signature, bound, arguments)
    codes: dict[int, Code] = {}
    for number, one in sorted(enumerate(arguments), key=lambda pair: isinstance(pair[1], Lambda)):
        parameter = signature.parameter(number)
        assert parameter is not None, "the signature takes so many arguments"
        if isinstance(one, Lambda):
            shape = parameter.type
            assert isinstance(shape, LambdaShape)
            code = compile_lambda(one, [filled(type_, bound) for type_ in shape.parameters])
            bound = bound | _bound_by_result(shape, code, bound, one)
        else:
            code = _argument(names, one, parameter, bound, call)
        codes[number] = code
    return [codes[number] for number in range(len(arguments))], bound


def _with_unknown(
    signature: Signature, bound: dict[str, SqlType], arguments: Sequence[Code | Lambda]
) -> dict[str, SqlType]:
    """Letters for which only NULLs were given stand for texts."""
    letters = {
        letter
        for number in range(len(arguments))
        if (one := signature.parameter(number)) is not None and not isinstance(one.type, LambdaShape)
        for letter in letters_of(one.type)
    }
    return dict.fromkeys(letters, types.STRING) | bound


def _bound_by_result(
    shape: LambdaShape, code: Code, bound: Mapping[str, SqlType], given: Lambda
) -> dict[str, SqlType]:
    if not is_letter(shape.result):
        if code.type not in (shape.result, None):
            expected, got = types.text_of(shape.result), types.text_of(code.type)
            raise SqlError(f"the lambda must return {expected}, and returns {got}", given.position)
        return {}
    letter = shape.result.name  # type: ignore[union-attr]
    known = bound.get(letter)
    if known is not None and code.type is not None and types.common(known, code.type) != known:
        expected, got = types.text_of(known), types.text_of(code.type)
        raise SqlError(f"the lambda must return {expected}, and returns {got}", given.position)
    return {letter: known or code.type or types.STRING}


def _argument(
    names: Names, code: Code, parameter: Parameter, bound: Mapping[str, SqlType], call: Call
) -> Code:
    if parameter.is_constant and not code.is_literal:
        raise SqlError(f"{call.function}: the argument {parameter.name} must be a literal", call.position)
    pattern = parameter.type
    assert not isinstance(pattern, LambdaShape)
    if code.type is None:
        return code
    wanted = parameter_type(pattern, bound, code.type)
    return converted(names, code, wanted) or code


def parameter_type(pattern: SqlType, bound: Mapping[str, SqlType], given: SqlType) -> SqlType:
    """The type in which an argument is given to the function."""
    match pattern, given:
        case Primitive("ANY"), _:
            return given
        case Primitive("DECIMAL"), _:
            return types.as_decimal(given)
        case Primitive(name), _ if is_letter(pattern):
            return bound.get(name, given)
        case Array(element), Array(own):
            return Array(parameter_type(element, bound, own))
        case Map(key, value), Map(own_key, own_value):
            return Map(parameter_type(key, bound, own_key), parameter_type(value, bound, own_value))
        case Struct(()), Struct():
            return given
    return pattern
