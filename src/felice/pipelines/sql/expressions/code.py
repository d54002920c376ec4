"""A piece of Python that computes an expression, and the names in it.

Keeps true: nothing of a statement is in the text but numbers that were parsed, and names that were made here: texts,
            functions and tables are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from decimal import Decimal
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.types import BOOLEAN, SqlType

DEEPEST = 24
"""How many parentheses a piece has inside each other before it becomes a function: Python's parser has a limit."""


@dataclass(frozen=True, slots=True)
class Code:
    """A Python expression. `type` is None for NULL."""

    text: str
    type: SqlType | None
    can_be_null: bool = True
    can_fail: bool = False
    depth: int = 0
    is_simple: bool = False
    """A name or a number: it costs nothing to write it twice."""
    constant: Any = None
    """The value of a literal, for functions that need it."""
    is_literal: bool = False

    def typed(self, type_: SqlType) -> Code:
        """The same value, taken as of another type."""
        return replace(self, type=type_)


NULL = Code("None", None, is_simple=True, is_literal=True)


Report = Callable[[str, BaseException], None]
"""Takes the name of what failed, and the error."""


def no_report(what: str, error: BaseException) -> None:
    """Forgets failures: where only types are checked, and where no log is kept."""


@dataclass(slots=True)
class Names:
    """The names of one generated function: constants by name, and functions that are defined before it."""

    report: Report = no_report
    """Takes what failed inside an expression that goes on, with null in its place."""
    constants: dict[str, Any] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)
    _numbers: int = 0
    _known: dict[tuple[type, Any, str], str] = field(default_factory=dict)

    def constant(self, value: Any) -> str:
        """The name of a value."""
        try:
            # Equal decimals of other scales, and 0.0 and -0.0, are other constants.
            key = type(value), value, repr(value) if isinstance(value, float | Decimal) else ""
            if (name := self._known.get(key)) is not None:
                return name
        except TypeError:  # It cannot be hashed.
            key = None
        name = self.new("k")
        self.constants[name] = value
        if key is not None:
            self._known[key] = name
        return name

    def new(self, kind: str) -> str:
        """A name that is not used yet."""
        self._numbers += 1
        return f"{kind}{self._numbers}"


def called(
    names: Names, function: Any, arguments: Sequence[Code], result: SqlType, *, can_fail: bool = True
) -> Code:
    """A call that is null if an argument is null."""
    name = names.constant(function)
    return over_values(
        names, arguments, lambda texts: f"{name}({', '.join(texts)})", result, can_fail=can_fail
    )


def over_values(
    names: Names,
    operands: Sequence[Code],
    text_of: Any,
    result: SqlType,
    *,
    can_fail: bool = False,
    if_null: str = "None",
) -> Code:
    """A piece over values that are not null. If one is null, it is `if_null`.

    `text_of` takes the texts of the values. Operands are computed from left to right until one is null.
    """
    conditions, texts = list[str](), list[str]()
    for one in operands:
        if not one.can_be_null:
            texts.append(f"{one.text}" if one.is_simple else f"({one.text})")
        elif one.is_simple:
            conditions.append(f"{one.text} is None")
            texts.append(one.text)
        else:
            name = names.new("t")
            conditions.append(f"({name} := {one.text}) is None")
            texts.append(name)
    text = text_of(texts)
    if conditions:
        text = f"({if_null} if {' or '.join(conditions)} else {text})"
    return Code(
        text,
        result,
        can_be_null=bool(conditions) and if_null == "None",
        can_fail=can_fail or any(one.can_fail for one in operands),
        depth=max((one.depth for one in operands), default=0) + 3,
    )


def condition(text: str, operands: Sequence[Code], *, can_fail: bool = False) -> Code:
    """A boolean piece that is never null."""
    return Code(
        f"({text})",
        BOOLEAN,
        can_be_null=False,
        can_fail=can_fail or any(one.can_fail for one in operands),
        depth=max((one.depth for one in operands), default=0) + 2,
    )


def made(text: str, type_: SqlType, parts: Sequence[Code]) -> Code:
    """A piece that makes a value of parts, which may be null."""
    depth = max((one.depth for one in parts), default=0) + 1
    return Code(text, type_, can_be_null=False, can_fail=any(one.can_fail for one in parts), depth=depth)


def attempted(names: Names, code: Code, what: str) -> Code:
    """The value, or null if it cannot be computed: as a part of another value, or as a function's argument."""
    if not code.can_fail:
        return code
    report = names.report

    def attempt(compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except Exception as error:
            report(what, error)
            return None

    name = names.constant(attempt)
    return replace(
        code, text=f"{name}(lambda: {code.text})", can_be_null=True, can_fail=False, depth=code.depth + 2
    )


def attempting(names: Names, function: Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
    """The same function, which gives null for a value that it cannot take."""
    report = names.report

    def attempt(value: Any) -> Any:
        try:
            return function(value)
        except Exception as error:
            report(what, error)
            return None

    return attempt
