"""The columns of a query's sources: what names mean, and what `*` stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from felice.pipelines.sql.analysis.declarations import PSEUDO
from felice.pipelines.sql.analysis.plan import Field, Side
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.catalogue import HEADERS, KEY, VALUE, SourceInfo, near
from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column
from felice.pipelines.sql.syntax.writer import expression_text, name_text

WINDOW_BOUNDS = ("WINDOWSTART", "WINDOWEND")


def check_bounds(given: Any) -> None:
    """Raise `SqlError` for a bound of the windows that an aggregation makes, where it is not known yet."""
    for one in parts_of(given):
        if isinstance(one, Column) and one.name in WINDOW_BOUNDS:
            raise SqlError(
                f"Window bounds column {name_text(one.name)} can only be used in the SELECT clause of windowed "
                "aggregations and can not be passed to aggregate functions",
                one.position,
            )


def fields_of(number: int, source: SourceInfo) -> Iterator[Field]:
    """The columns of a side, with its pseudo columns."""
    for kind in (KEY, VALUE, HEADERS):
        for place, one in enumerate(source.of_role(kind)):
            yield Field(number, one.name, one.type, kind, place)
    for name, type_ in PSEUDO.items():
        if source.window is not None or name not in WINDOW_BOUNDS:
            yield Field(number, name, type_, name, 0)


class Sides:
    """The sources of a query. As a scope, `text_of` gives the Python of a column."""

    def __init__(self, sides: Sequence[Side], text_of: Callable[[Field], str] = lambda field: "_") -> None:
        self.sides = tuple(sides)
        self._text_of = text_of
        self._fields: dict[str, list[Field]] = {}
        self.used: dict[Field, None] = {}
        """The columns that were looked up, in order."""
        for number, side in enumerate(sides):
            for field in fields_of(number, side.source):
                self._fields.setdefault(field.name, []).append(field)

    def column(self, given: Column) -> Code:
        """The code of a column. Raises `SqlError`."""
        field = self.field(given)
        self.used[field] = None
        return Code(self._text_of(field), field.type, is_simple=True)

    def field(self, given: Column) -> Field:
        """The column that is meant. Raises `SqlError`."""
        found = self._fields.get(given.name, [])
        if given.source is not None:
            number = self.side_named(given.source, given)
            found = [one for one in found if one.side == number]
        if len(found) == 1:
            return found[0]
        if not found:
            raise SqlError(
                f"column '{expression_text(given)}' cannot be resolved{self._hint(given)}", given.position
            )
        choices = ", ".join(self.qualified(one) for one in found)
        raise SqlError(
            f"column '{expression_text(given)}' is ambiguous. Could be any of: {choices}", given.position
        )

    def side_named(self, name: str, given: Column) -> int:
        """The number of the side that the query calls so. Raises `SqlError`."""
        for number, side in enumerate(self.sides):
            if side.alias == name:
                return number
        known = [side.alias for side in self.sides]
        raise SqlError(
            f"column '{expression_text(given)}' cannot be resolved: '{name}' is not a valid stream/table name or "
            f"alias{near(name, known)}",
            given.position,
        )

    def qualified(self, field: Field) -> str:
        """A column with its side, for messages."""
        return f"{name_text(self.sides[field.side].alias)}.{name_text(field.name)}"

    def is_clashing(self, name: str) -> bool:
        """Whether several sides have a column of this name."""
        return len(self._fields.get(name, ())) > 1

    def has(self, name: str) -> bool:
        """Whether a side has a column of this name."""
        return name in self._fields

    def names(self) -> Iterator[str]:
        """The names of the columns of all sides."""
        return (one.name for side in self.sides for one in side.source.columns)

    def all_of(self, number: int, *, with_bounds: bool, is_whole: bool = False) -> list[Field]:
        """What `*` stands for in a side: its key's columns, its values and headers, and the bounds of windows if the
        query shows them. All that a row has, if it is whole: values, pseudo columns, keys and bounds.
        """
        fields = list(fields_of(number, self.sides[number].source))
        if is_whole:
            kinds = (
                VALUE,
                HEADERS,
                *(name for name in PSEUDO if name not in WINDOW_BOUNDS),
                KEY,
                *WINDOW_BOUNDS,
            )
            return [one for kind in kinds for one in fields if one.kind == kind]
        keys = [one for one in fields if one.kind == KEY]
        bounds = [one for one in fields if one.kind in WINDOW_BOUNDS] if with_bounds else []
        return keys + bounds + [one for one in fields if one.kind in (VALUE, HEADERS)]

    def _hint(self, given: Column) -> str:
        return near(given.name, [name for name in self._fields if name not in PSEUDO])
