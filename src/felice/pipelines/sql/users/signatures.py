"""Signatures of users' functions, from texts or from annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from felice.pipelines.sql.functions.signatures import ANY, ANY_DECIMAL, LambdaShape, Signature, parsed
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import Array, Map, SqlType, Struct, text_of
from felice.pipelines.sql.users.calls import UserFunctionError
from felice.pipelines.sql.users.values import type_of_annotation

Written = Callable[..., Any]


class Declared(NamedTuple):
    """A signature, and which of its parameters may be null."""

    signature: Signature
    nulls: list[bool]


def declared_function(
    function: Written, text: str | None, *, takes_nulls: bool, makes_rows: bool = False
) -> Declared:
    """The signature of a function; of a table function, if it `makes_rows`. Raises `UserFunctionError`."""
    if text is not None:
        signature = signature_of(text)
        _check_count(signature, function, len(signature.parameters))
        return Declared(signature, [takes_nulls] * len(signature.parameters))
    name = function.__name__
    parts, nulls = _parameters(name, function, list(inspect.signature(function).parameters.values()))
    returned = annotated(name, function, "return")[0]
    if makes_rows:
        if not isinstance(returned, Array):
            raise UserFunctionError(f"{name}: a table function returns a list, and not {text_of(returned)}")
        returned = returned.element
    signature = signature_of(f"{name}({parts}) -> {text_of(returned)}")
    return Declared(signature, [takes_nulls or one for one in nulls])


def declared_class(cls: Any, text: str | None, *, takes_nulls: bool) -> Declared:
    """The signature of an aggregate function; its constants may not be null. Raises `UserFunctionError`."""
    if text is not None:
        signature = signature_of(text)
        constants = sum(one.is_constant for one in signature.parameters)
        _check_count(signature, cls, constants)
        # `self` and the state are the first two.
        _check_count(signature, cls.add, 2 + len(signature.parameters) - constants)
        return Declared(signature, [takes_nulls] * len(signature.parameters))
    name = cls.__name__
    parts, nulls = _parameters(name, cls.add, list(inspect.signature(cls.add).parameters.values())[2:])
    signature = signature_of(f"{name}({parts}) -> {text_of(annotated(name, cls.result, 'return')[0])}")
    return Declared(signature, [takes_nulls or one for one in nulls])


def signature_of(text: str) -> Signature:
    """The signature of a text. Raises `UserFunctionError`."""
    try:
        signature = parsed(text)
    except SqlError as error:
        raise UserFunctionError(f"the signature {text!r}: {error}") from None
    if _has_pattern(signature.returns):
        raise UserFunctionError(
            f"{text}: the type of the result must be known, such as DECIMAL(10, 2), or be the letter of a parameter"
        )
    if any(isinstance(one.type, LambdaShape) for one in signature.parameters):
        raise UserFunctionError(f"{text}: users' functions do not take lambdas")
    return signature


def type_of(text: str) -> SqlType:
    """The type of a text, which may have the letters of a signature. Raises `UserFunctionError`."""
    return signature_of(f"STATE() -> {text}").returns


def _has_pattern(kind: SqlType) -> bool:
    match kind:
        case Array(element):
            return _has_pattern(element)
        case Map(key, value):
            return _has_pattern(key) or _has_pattern(value)
        case Struct(fields):
            return any(_has_pattern(one) for _, one in fields)
    return kind in (ANY, ANY_DECIMAL)


def _parameters(name: str, function: Written, own: Sequence[inspect.Parameter]) -> tuple[str, list[bool]]:
    """The text of parameters, and which of them may be null."""
    texts, nulls = list[str](), list[bool]()
    for one in own:
        kind, is_optional = annotated(name, function, one.name)
        many = " MANY" if one.kind is inspect.Parameter.VAR_POSITIONAL else ""
        texts.append(f"{one.name} {text_of(kind)}{many}")
        nulls.append(is_optional)
    return ", ".join(texts), nulls


def annotated(name: str, function: Written, of: str) -> tuple[SqlType, bool]:
    """The type of an annotation of a function, and whether it allows None. Raises `UserFunctionError`."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        raise UserFunctionError(f"{name}: the annotations of {function.__name__}: {error}") from None
    if of not in hints:
        what = "result" if of == "return" else f"parameter {of}"
        raise UserFunctionError(
            f"{name}: the {what} of {function.__name__} has no annotation; write one, or the signature as a text"
        )
    try:
        return type_of_annotation(hints[of])
    except TypeError as error:
        raise UserFunctionError(f"{name}: {error}") from None


def _check_count(signature: Signature, function: Written, count: int) -> None:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        raise UserFunctionError(
            f"{signature.text}: the Python of {function.__qualname__} does not take these arguments: {error}"
        ) from None
