"""Calls of users' Python, with values converted by type.

Keeps true: an error names the function, and the file and the line that raised, or where the function begins if it
            returned a wrong value.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.functions.signatures import Signature, filled
from felice.pipelines.sql.functions.table import Aggregate, AggregateError, Settings
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import STRING, SqlType, text_of
from felice.pipelines.sql.users.values import Conversion, given_values, returned_values

Returned = Callable[[SqlType], Conversion]


class UserFunctionError(ValueError):
    """A user's function that cannot be registered, that raised, or that returned a value of another type."""


@dataclass(frozen=True, slots=True)
class Call:
    """A user's Python that is called."""

    name: str
    """Of the function in SQL."""
    function: Callable[..., Any]
    error: type[Exception] = UserFunctionError

    def __call__(self, convert: Conversion, *values: Any) -> Any:
        """What the function returns, converted. Raises `error`."""
        try:
            found = self.function(*values)
            # An iterator runs the user's Python, too.
            found = list(found) if isinstance(found, Iterator) else found
        except Exception as error:
            place = _place_of(error.__traceback__)
            raise self.error(f"{self.name}: {type(error).__name__}: {error} ({place})") from error
        try:
            return convert(found)
        except TypeError as error:
            raise self.error(f"{self.name}: wrong value returned: {error} ({self._place()})") from None

    def _place(self) -> str:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return "" if code is None else f"{code.co_filename}, line {code.co_firstlineno}"


def _place_of(trace: TracebackType | None) -> str:
    """The place in the user's file that was running: in it, or in what it called, the error was raised."""
    own = None if trace is None else trace.tb_next
    return "in the call itself" if own is None else place_in(own.tb_frame.f_code.co_filename, own)


def place_in(file: str, trace: TracebackType | None) -> str:
    """The line of a file that was running when an error was raised."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return file if line is None else f"{file}, line {line}"


def bound_by(signature: Signature, types: Sequence[SqlType | None]) -> Mapping[str, SqlType]:
    """What the letters of a signature stand for; STRING if only NULLs were given."""
    match = signature.match(types)
    assert match is not None, "the function was chosen for these types"
    return defaultdict(lambda: STRING, match[1])


def by_types(
    call: Call, signature: Signature, nulls: Sequence[bool], returned: Returned
) -> Callable[..., Any]:
    """The implementation of a function `by_type`. `nulls` says which parameters may be null."""

    def of_types(*types: SqlType | None) -> Callable[..., Any]:
        given = [given_values(STRING if one is None else one) for one in types]
        convert = returned(filled(signature.returns, bound_by(signature, types)))
        # Arguments after the last parameter belong to it: it is MANY.
        required = [number for number in range(len(types)) if not nulls[min(number, len(nulls) - 1)]]

        def compute(*values: Any) -> Any:
            if any(values[number] is None for number in required):
                return convert(None)
            return call(convert, *(of(one) for of, one in zip(given, values, strict=True)))

        return compute

    return of_types


def returned_rows(element: SqlType) -> Conversion:
    """The function that makes the rows of a table function of a list, which raises TypeError."""
    each = returned_values(element)

    def convert(rows: Any) -> list[Any]:
        if rows is None:
            return []
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            raise TypeError(f"expected a list of {text_of(element)}, and got {rows!r}")
        return list(map(each, rows))

    return convert


class UserAggregate:
    """A user's aggregate function as one of SQL. Its errors stop the query."""

    def __init__(
        self,
        name: str,
        user: Any,
        values: Sequence[tuple[SqlType, bool]],
        state: SqlType,
        result: SqlType,
    ) -> None:
        """`values` are the types of values, and whether these may be null: if others are, the state stays as it is."""
        self.state_type = state
        self._name, self._user = name, user
        self._given = [given_values(kind) for kind, _ in values]
        self._required = [number for number, (_, may_be_null) in enumerate(values) if not may_be_null]
        self._given_state, self._kept = given_values(state), returned_values(state)
        self._result = returned_values(result)

    def _call(self, method: str, convert: Conversion, *values: Any) -> Any:
        return Call(self._name, getattr(self._user, method), AggregateError)(convert, *values)

    def initial(self) -> Any:
        """The user's first state."""
        return self._call("initial", self._kept)

    def add(self, state: Any, *values: Any) -> Any:
        """The user's next state."""
        return self._changed("add", state, values)

    def _changed(self, method: str, state: Any, values: Sequence[Any]) -> Any:
        if any(values[number] is None for number in self._required):
            return state
        own = (of(one) for of, one in zip(self._given, values, strict=True))
        return self._call(method, self._kept, self._given_state(state), *own)

    def merge(self, one: Any, other: Any) -> Any:
        """The user's state of both."""
        return self._call("merge", self._kept, self._given_state(one), self._given_state(other))

    def result(self, state: Any) -> Any:
        """The user's result."""
        return self._call("result", self._result, self._given_state(state))


class UndoingUserAggregate(UserAggregate):
    """One whose user's class has `undo`."""

    def undo(self, state: Any, *values: Any) -> Any:
        """The user's state without a row."""
        return self._changed("undo", state, values)


def aggregate_factory(
    cls: Any, signature: Signature, nulls: Sequence[bool], state: SqlType
) -> Callable[[Sequence[SqlType], Sequence[Any], Settings], Aggregate]:
    """The implementation of an aggregate function that a user wrote as a class. `nulls` is as in `by_types`."""
    adapter = UndoingUserAggregate if hasattr(cls, "undo") else UserAggregate

    def factory(types: Sequence[SqlType], constants: Sequence[Any], _: Settings) -> Aggregate:
        bound = bound_by(signature, types)
        user = Call(signature.name, cls, SqlError)(lambda made: made, *constants)
        values = [
            (kind, nulls[min(number, len(nulls) - 1)])
            for number, kind in enumerate(types)
            if (parameter := signature.parameter(number)) is not None and not parameter.is_constant
        ]
        return adapter(signature.name, user, values, filled(state, bound), filled(signature.returns, bound))

    return factory
