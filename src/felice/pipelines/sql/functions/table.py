"""The table of functions: names, signatures, documents, examples, and the Python that computes them.

Keeps true: a function changes none of its arguments and returns new lists and dicts. It is a pure function of its
            arguments, but for those that `is_random` names.
How:        A module of functions registers them with the decorators `scalar`, `aggregate` and `table_function`. A
            signature is a text: `SUBSTRING(text STRING, start INTEGER, length INTEGER) -> STRING`. In it a capital
            letter is any type, the same one at each place; ANY is any type; DECIMAL is each decimal type; `T => U` is a
            lambda. After a type, MANY means none or more arguments (of the last parameter), and CONSTANT an argument
            that must be a literal. Several signatures may have one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from felice.dataclass import dataclass
from felice.pipelines.sql.functions.signatures import Signature, parsed
from felice.pipelines.sql.types import SqlType

Examples = Sequence[tuple[str, str]]
"""Expressions, and what each is equal to: `("UCASE('a')", "'A'")`. Each is a test."""
SCALAR, AGGREGATE, TABLE = "SCALAR", "AGGREGATE", "TABLE"
Settings = Mapping[str, str]
"""The settings of a query, such as `ksql.functions.collect_list.limit`."""


class AggregateError(Exception):
    """A state that cannot be computed. It stops the query: without the row each later result would be wrong."""


class Aggregate(Protocol):
    """An aggregate function with its types, constants and settings. States are values that are never changed.

    The methods that make a state raise `AggregateError`.
    """

    state_type: SqlType
    """The type of states: they are kept in its values."""

    def initial(self) -> Any:
        """The state before the first row."""

    def add(self, state: Any, *values: Any) -> Any:
        """The state after a row. `values` are the arguments that are no constants; before them the row's number, if
        the function `is_ordered`. Later rows have greater numbers.
        """

    def merge(self, one: Any, other: Any) -> Any:
        """The state of two sessions that became one."""

    def result(self, state: Any) -> Any:
        """The value of the function."""


def state_itself(state: Any) -> Any:
    """The `result` of functions whose states are their values: they are used without a call."""
    return state


Texts = Mapping[str, str]
"""Python expressions that replace methods of an aggregate function, by the names of the methods. They save a call for
each row. They use `{state}` and the arguments `{0}`, `{1}` and so on. A function may have them as `texts`.
"""


class Undoing(Aggregate, Protocol):
    """An aggregate function that also takes rows away, as aggregations of tables must: others have no `undo`."""

    def undo(self, state: Any, *values: Any) -> Any:
        """The state without a row that was added."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function with one signature."""

    kind: str
    signature: Signature
    description: str
    examples: Examples
    implementation: Callable[..., Any]
    """Of a scalar or table function: takes the arguments, or their types if it is `by_type`. Of an aggregate: takes
    the types of all arguments (as they are given to it, so of the parameters), the values of the constants and the
    `Settings`, and returns an `Aggregate`; it raises `SqlError` for constants and settings that it does not take.
    """
    takes_nulls: bool = False
    """Without it, a call with a null argument is null, and the Python is not called."""
    by_type: bool = False
    """The implementation takes the types of the arguments (None for lambdas) and returns the function."""
    result_type: Callable[[Sequence[SqlType], Sequence[Any]], SqlType] | None = None
    """The type of the result, from the types of the arguments and the values of literals (None for others), where the
    signature cannot say it: that of a decimal.
    """
    is_ordered: bool = False
    """An aggregate that depends on the order of rows."""
    is_random: bool = False
    """Two calls with equal arguments may differ."""
    author: str = ""

    @property
    def name(self) -> str:
        """In capitals."""
        return self.signature.name


class FunctionTable:
    """Functions by name."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Function]] = {}

    def __iter__(self) -> Iterator[Function]:
        for name in sorted(self._functions):
            yield from self._functions[name]

    def add(self, function: Function) -> None:
        """One more. Raises ValueError for a signature that is there already."""
        known = self._functions.setdefault(function.name, [])
        if any(one.kind != function.kind for one in known):
            raise ValueError(f"{function.name} is a function of another kind already")
        if same := [one for one in known if _taken(one.signature) == _taken(function.signature)]:
            raise ValueError(f"{function.signature.text}: there is {same[0].signature.text} already")
        known.append(function)

    def copy(self) -> FunctionTable:
        """A table of its own with the same functions."""
        made = FunctionTable()
        made.add_all(self)
        return made

    def add_all(self, other: FunctionTable) -> None:
        """Those of another table, too. Raises ValueError for a signature that is there already."""
        for function in other:
            self.add(function)

    def named(self, name: str) -> list[Function]:
        """The functions of a name; empty if there is none."""
        return self._functions.get(name, [])

    def names(self) -> list[str]:
        """All names, in order."""
        return sorted(self._functions)


def _taken(signature: Signature) -> list[tuple[object, bool]]:
    return [(one.type, one.is_many) for one in signature.parameters]


BUILT_IN = FunctionTable()
"""The functions that are always there. `functions.built_in()` loads the modules that fill it."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def scalar(signature: str, description: str, *examples: tuple[str, str], **given: Any) -> Decorator:
    """Register a function of one row. `given` are fields of `Function`.

    @scalar("UCASE(text STRING) -> STRING", "The text in capitals.", ("UCASE('a')", "'A'"))
    def upper_case(text: str) -> str:
        return text.upper()
    """
    return _registering(SCALAR, signature, description, examples, given)


def table_function(signature: str, description: str, *examples: tuple[str, str], **given: Any) -> Decorator:
    """Register a function that makes several rows of one: it returns a list, whose elements have the type after the
    arrow.
    """
    return _registering(TABLE, signature, description, examples, given)


def aggregate(signature: str, description: str, **given: Any) -> Decorator:
    """Register an aggregate function: a class or function that makes an `Aggregate`, as `Function` says."""
    return _registering(AGGREGATE, signature, description, (), given)


def _registering(
    kind: str, signature: str, description: str, examples: Examples, given: dict[str, Any]
) -> Decorator:
    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        BUILT_IN.add(Function(kind, parsed(signature), description, examples, implementation, **given))
        return implementation

    return register
