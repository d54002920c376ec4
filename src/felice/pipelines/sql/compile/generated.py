"""Functions over rows, written from expressions.

Keeps true: an expression that fails is null; a condition that fails is false. Each failure is reported, with the name
            of the column or clause.
How:        A function's text has a line for each column that it reads, and lines for each expression. Its names are
            constants, or were made here.
            The same lines can also be statements of an operator, without a function call for each record. The lines
            after a result with a condition are then in an `else`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from types import CodeType
from typing import Any, NamedTuple

from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.plan import EXPLODED, Field, Side
from felice.pipelines.sql.analysis.typing import TypedColumns
from felice.pipelines.sql.catalogue import HEADERS
from felice.pipelines.sql.compile.operators import MetadataOf
from felice.pipelines.sql.expressions.code import Code, Names, Report
from felice.pipelines.sql.expressions.coercion import converted
from felice.pipelines.sql.expressions.compiler import Compiler, Scope
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.syntax.tree import Call
from felice.pipelines.sql.types import SqlType


class Result(NamedTuple):
    """Ends a function with these results; with a condition, only where it is true."""

    results: str
    only_if: str = ""


Line = str | Result


class RowText:
    """The text of one function, while it is written.

    Without a layout, the function gets records as the first side's topic has them; with one, rows of these columns.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        layout: Sequence[Field] | None,
        functions: FunctionTable,
        users: Mapping[str, SqlType],
        report: Report,
        value_places: Sequence[int] | None = None,
    ) -> None:
        """`value_places` are the value columns that records have; None: all of their topic."""
        self.names = Names(report)
        self.head, self.lines = list[Line](), list[Line]()
        """The lines before the columns are read, and those after that."""
        self._layout = None if layout is None else {field: place for place, field in enumerate(layout)}
        self._value_places = value_places
        self._sides = Sides(sides, self._local)
        self._headers = [one.header for one in sides[0].source.of_role(HEADERS)]
        self._is_windowed = sides[0].source.window is not None
        self._functions, self._users = functions, users
        self._report = self.names.constant(report)
        self._columns: dict[tuple[str, str], Code] = {}

    def define(self, source: str, name: str, text: str, type_: SqlType, *, is_simple: bool = True) -> None:
        """Let a column stand for a piece of text. One that is not simple is computed once in an expression."""
        self._columns[source, name] = Code(text, type_, is_simple=is_simple)

    def code(self, given: Any) -> Code:
        """The code of an expression."""
        return self._compiler().code(given)

    def rows(self, given: Call) -> Code:
        """The code of the list of rows that a table function gives."""
        return self._compiler().rows(given)

    def _compiler(self) -> Compiler:
        scope: Scope = TypedColumns(self._sides, self._columns)
        return Compiler(scope, self._functions, self._users, self.names)

    def converted(self, given: Any, wanted: SqlType) -> Code:
        """The code of an expression in a wider type."""
        code = self.code(given)
        return converted(self.names, code, wanted) or code

    def assign(self, target: str, code: Code, label: str) -> None:
        """A line that sets a name; to null if the expression fails."""
        if not code.can_fail:
            self.lines.append(f"{target} = {code.text}")
            return
        told = self.names.constant(label)
        self.lines += [
            "try:",
            f"    {target} = {code.text}",
            "except Exception as error:",
            f"    {target} = None",
            f"    {self._report}({told}, error)",
        ]

    def skip_null_values(self, results: str) -> None:
        """Return these results for a record without value, before a column is read."""
        self.head.append(Result(results, "value is None"))

    def require(self, given: Any, label: str, otherwise: str) -> None:
        """Lines that return unless a condition is true."""
        self.assign("passes", self.code(given), label)
        self.give(otherwise, only_if="not passes")

    def give(self, results: str, *, only_if: str = "") -> None:
        """Return these results; with a condition, only where it is true."""
        self.lines.append(Result(results, only_if))

    def made(self, parameters: str, *, value_is_null: bool = False) -> Generated:
        """The function. Columns of a record without value are null with `value_is_null`."""
        used = list(self._sides.used)
        prelude = [f"{self._local(one)} = {self._text(one, value_is_null)}" for one in used]
        definitions = "".join(self.names.definitions)
        lines = (*self.head, *prelude, *definitions.splitlines(), *self.lines)
        return Generated(parameters, lines, self.names.constants)

    def _local(self, field: Field) -> str:
        return f"c_{field.side}_{field.kind}_{field.number}"

    def _text(self, field: Field, value_is_null: bool) -> str:
        """Where a column is."""
        if self._layout is not None:
            return f"value[{self._layout[field]}]"
        inner = "key.key" if self._is_windowed else "key"
        match field.kind:
            case "KEY":
                return f"None if key is None else {inner}[{field.number}]"
            case "VALUE":
                places = self._value_places
                text = f"value[{field.number if places is None else places.index(field.number)}]"
                return f"None if value is None else {text}" if value_is_null else text
            case "HEADERS":
                name = self._headers[field.number]
                function = self.names.constant(all_headers if name is None else last_header(name))
                return f"{function}(headers)"
            case "ROWTIME":
                return "timestamp"
            case "WINDOWSTART":
                return "None if key is None else key.window.start"
            case "WINDOWEND":
                return "None if key is None else key.window.end"
        part = "partition" if field.kind == "ROWPARTITION" else "offset"
        return f"getattr(metadata(), '{part}', None)"


def all_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The value of a column HEADERS."""
    return list(headers)


@lru_cache(maxsize=256)
def last_header(name: str) -> Callable[[Sequence[tuple[str, bytes | None]]], bytes | None]:
    """The function for the value of a column HEADER('name')."""

    def find(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
        return next((value for key, value in reversed(headers) if key == name), None)

    return find


def exploded_rows(lists: Sequence[Sequence[Any] | None]) -> Iterator[tuple[Any, ...]]:
    """The results of table functions side by side: the shorter ones are filled with null."""
    return zip_longest(*((one or ()) for one in lists))


def write_explosion(text: RowText, exploded: Sequence[tuple[Call, SqlType]]) -> str:
    """Lines that compute the lists of table functions, and the expression of their rows.

    In each row, `e0`, `e1`, … are the values of the functions.
    """
    for number, (call, type_) in enumerate(exploded):
        text.assign(f"l{number}", text.rows(call), call.function)
        text.define(EXPLODED, str(number), f"e{number}", type_)
    rows = text.names.constant(exploded_rows)
    return f"{rows}(({''.join(f'l{number}, ' for number in range(len(exploded)))}))"


class Generated:
    """A function by its text and constants. Called with a function that says where records were read, it returns the
    function that takes them. It travels to other processes as its text: a function without a module would be pickled
    with all that it refers to.
    """

    def __init__(self, parameters: str, lines: Sequence[Line], constants: Mapping[str, Any]) -> None:
        self._parameters, self._lines, self._constants = parameters, lines, dict(constants)

    def __call__(self, metadata: MetadataOf = lambda: None) -> Any:
        """The function."""
        made: dict[str, Any] = {
            "__name__": __name__
        }  # The module of the function, or pickle would look for one.
        lines = _nested(self._lines, "return ")
        body = _block([f"def run({self._parameters}):", *_block(lines), "return run"])
        exec(_code("\n".join([f"def make(metadata, {', '.join(self._constants)}):", *body])), made)
        return made["make"](metadata, *self._constants.values())

    def statement(self, targets: str, metadata: MetadataOf) -> tuple[str, dict[str, Any]] | None:
        """The text that assigns the results to targets, with its names in braces; None if the text must be a function.

        A function inside the text would use variables of the steps around it, which makes these variables slower.
        """
        lines = _nested(self._lines, f"{targets} = ")
        if any(_FUNCTION.search(line) for line in lines):
            return None
        text = "\n".join(lines).replace("{", "{{").replace("}", "}}")
        names = self._constants | {"metadata": metadata}
        return _CONSTANT.sub(r"{\g<0>}", text), names


_CONSTANT = re.compile(r"\b(?:k[0-9]+|metadata)\b")
_FUNCTION = re.compile(r"\b(?:def|lambda|for)\b")


def _nested(lines: Sequence[Line], end: str) -> list[str]:
    """The lines as Python code. `end` is the text before a result. The lines after a result do not run then."""
    made = list[str]()
    for place, line in enumerate(lines):
        if isinstance(line, str):
            made.append(line)
            continue
        result = f"{end}{line.results}"
        if not line.only_if:
            return [*made, result]
        return [
            *made,
            f"if {line.only_if}:",
            f"    {result}",
            "else:",
            *_block(_nested(lines[place + 1 :], end)),
        ]
    return made


def _block(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines] or ["    pass"]


@lru_cache(maxsize=4096)
def _code(text: str) -> CodeType:
    return compile(text, "<rows of a query>", "exec")
