"""Functions that users write in Python.

    @udf("INITIALS(name STRING) -> STRING", description="The first letters of the words of a name.")
    def initials(name):
        return "".join(word[0] for word in name.split())

    @udtf()
    def letters(text: str) -> list[str]:
        return list(text)

    @udaf("PRODUCT(value DOUBLE) -> DOUBLE")
    class Product(Udaf):
        def initial(self):
            return 1.0

        def add(self, state, value):
            return state * value

        def merge(self, one, other):
            return one * other

Signatures are those of `felice.pipelines.sql.functions.table`. Without one the annotations say the types: bool, int (a
BIGINT), float, str, bytes, list[...] and dict[..., ...]; and the name in capitals is that of the function. A STRUCT is
a dict; DATE, TIME and TIMESTAMP are numbers, as `felice.pipelines.sql` says. What a function returns is checked.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from felice.pipelines.sql.functions.table import AGGREGATE, SCALAR, TABLE, Function, FunctionTable
from felice.pipelines.sql.users.calls import (
    Call,
    UserFunctionError,
    aggregate_factory,
    by_types,
    place_in,
    returned_rows,
)
from felice.pipelines.sql.users.signatures import annotated, declared_class, declared_function, type_of
from felice.pipelines.sql.users.values import returned_values

__all__ = [
    "ENTRY_POINTS",
    "Udaf",
    "UserFunctionError",
    "load_directory",
    "load_entry_points",
    "registered",
    "udaf",
    "udf",
    "udtf",
]

ENTRY_POINTS = "felice.sql.functions"
"""The group of entry points that name modules with functions."""
F = TypeVar("F", bound=Callable[..., Any])
_REGISTERED: dict[str, list[Function]] = defaultdict(list)
"""The functions of each module, by its name."""


def udf(
    signature: str | None = None,
    *,
    description: str = "",
    takes_nulls: bool = False,
    is_random: bool = False,
    author: str = "",
    table: FunctionTable | None = None,
) -> Callable[[F], F]:
    """Register a function of one row, in a table or for those who load its module.

    The result is null if an argument is null, and the Python is not called; unless it `takes_nulls`, or the annotation
    of that parameter allows None. A function `is_random` if two calls with equal arguments may differ. Raises
    `UserFunctionError`.
    """

    def register(function: F) -> F:
        known, nulls = declared_function(function, signature, takes_nulls=takes_nulls)
        implementation = by_types(Call(known.name, function), known, nulls, returned_values)
        made = Function(
            SCALAR,
            known,
            _described(function, description),
            (),
            implementation,
            takes_nulls=any(nulls),
            by_type=True,
            is_random=is_random,
            author=author,
        )
        _register(function, made, table)
        return function

    return register


def udtf(
    signature: str | None = None,
    *,
    description: str = "",
    takes_nulls: bool = False,
    author: str = "",
    table: FunctionTable | None = None,
) -> Callable[[F], F]:
    """Register a function that makes several rows of one: it returns a list of them, or yields them.

    Behind the arrow of the signature stands the type of a row. There are no rows for a null argument, unless it
    `takes_nulls`, or the annotation of that parameter allows None. Raises `UserFunctionError`.
    """

    def register(function: F) -> F:
        known, nulls = declared_function(function, signature, takes_nulls=takes_nulls, makes_rows=True)
        implementation = by_types(Call(known.name, function), known, nulls, returned_rows)
        made = Function(
            TABLE,
            known,
            _described(function, description),
            (),
            implementation,
            takes_nulls=True,
            by_type=True,
            author=author,
        )
        _register(function, made, table)
        return function

    return register


class Udaf:
    """A user's aggregate function. Its constructor takes the constants of a call.

    A class that also has `undo(state, *values)`, which takes a row away, works over tables, too. An object keeps
    nothing between two calls: the state is all that is kept.
    """

    def initial(self) -> Any:
        """The state before the first row."""
        raise NotImplementedError

    def add(self, state: Any, *values: Any) -> Any:
        """The state after a row."""
        raise NotImplementedError

    def merge(self, one: Any, other: Any) -> Any:
        """The state of two sessions that became one."""
        raise NotImplementedError

    def result(self, state: Any) -> Any:
        """The value of the function; without this method, the state."""
        return state


C = TypeVar("C", bound=type[Udaf])


def udaf(
    signature: str | None = None,
    *,
    state: str | None = None,
    description: str = "",
    takes_nulls: bool = False,
    author: str = "",
    table: FunctionTable | None = None,
) -> Callable[[C], C]:
    """Register an aggregate function. `state` is the type of states, if that is not the type of the result.

    Without a signature the annotations of `add`, `result` and `initial` say the types of values, result and states.
    Rows with a null value change nothing, unless it `takes_nulls`, or the annotation of that parameter allows None.
    Raises `UserFunctionError`.
    """

    def register(cls: C) -> C:
        known, nulls = declared_class(cls, signature, takes_nulls=takes_nulls)
        if state is not None:
            kept = type_of(state)
        else:
            kept = annotated(cls.__name__, cls.initial, "return")[0] if signature is None else known.returns
        factory = aggregate_factory(cls, known, nulls, kept)
        made = Function(AGGREGATE, known, _described(cls, description), (), factory, author=author)
        _register(cls, made, table)
        return cls

    return register


def _described(written: Any, description: str) -> str:
    return description or " ".join((inspect.getdoc(written) or "").partition("\n\n")[0].split())


def _register(written: Any, made: Function, table: FunctionTable | None) -> None:
    if table is None:
        _REGISTERED[written.__module__].append(made)
    else:
        _add(table, made)


def _add(table: FunctionTable, made: Function) -> None:
    try:
        table.add(made)
    except ValueError as error:
        raise UserFunctionError(str(error)) from None


def registered(*modules: str) -> FunctionTable:
    """The functions of modules that are imported already, by their names, and of modules inside them. Raises
    `UserFunctionError`.
    """
    return _table(map(_of_module, modules))


def _of_module(name: str) -> list[Function]:
    return [
        one
        for module, functions in _REGISTERED.items()
        if module == name or module.startswith(f"{name}.")
        for one in functions
    ]


def load_directory(path: str | Path) -> FunctionTable:
    """The functions of the .py files in a directory; each is imported for itself. Raises `UserFunctionError`."""
    directory = Path(path).resolve()
    if not directory.is_dir():
        raise UserFunctionError(f"there is no directory of functions {directory}")
    return _table(_from_file(file) for file in sorted(directory.glob("*.py")))


def load_entry_points() -> FunctionTable:
    """The functions of the modules that installed packages name. Raises `UserFunctionError`."""
    return _table(_from_entry_point(point.name, point.load) for point in entry_points(group=ENTRY_POINTS))


def _table(modules: Iterable[list[Function]]) -> FunctionTable:
    table = FunctionTable()
    for functions in modules:
        for one in functions:
            _add(table, one)
    return table


def _from_file(file: Path) -> list[Function]:
    name = f"felice_sql_functions.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        place = place_in(str(file), error.__traceback__)
        raise UserFunctionError(f"{place}: cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        # Another process does not find the module by its name: functions must travel with their code.
        del sys.modules[name]
        functions = _REGISTERED.pop(name, [])
    return functions


def _from_entry_point(name: str, load: Callable[[], Any]) -> list[Function]:
    try:
        module = load()
    except Exception as error:
        raise UserFunctionError(
            f"the entry point {name} of {ENTRY_POINTS} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, ModuleType):
        raise UserFunctionError(
            f"the entry point {name} of {ENTRY_POINTS} must name a module, and is {module!r}"
        )
    return _of_module(module.__name__)
