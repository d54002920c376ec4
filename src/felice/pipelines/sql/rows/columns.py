"""What the formats of rows have in common: columns, rows that are one bare value, and matching of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, TypeVar

from felice.dataclass import dataclass
from felice.pipelines.sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from felice.pipelines.streams.formats import Format

T = TypeVar("T")

Columns = tuple[tuple[str, SqlType], ...]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RowFormat(Format):
    """A format of rows, which are tuples of the columns' values. None is a record without value, or without key.

    What it needs to read and write is made when it is first used; only the fields travel to other processes. Formats
    that give each row the same bytes are equal: names of columns do not count where they are not written.
    """

    columns: Columns

    @property
    def has_names(self) -> bool:
        """Whether the names of columns are written."""
        return True

    def of_columns(self, places: tuple[int, ...]) -> RowFormat | None:
        """The format that reads the columns at these places only, as rows of them, and writes nothing; None if the
        format has no way to read less.

        It refuses the same bytes, but for those of other columns: their values are not looked at.
        """
        return None

    def _identity(self) -> tuple[Any, ...]:
        shown = self.columns if self.has_names else tuple(type_ for _, type_ in self.columns)
        others = [getattr(self, one.name) for one in fields(self) if one.compare and one.name != "columns"]
        return type(self), shown, *others

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowFormat) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


def at_places(columns: Columns, places: tuple[int, ...]) -> Columns:
    """The columns at some places."""
    return tuple(columns[place] for place in places)


class WholeFormat(RowFormat):
    """A format whose data has all columns, even if only some are read. Its last field is `read_places`."""

    read_places: tuple[int, ...] | None
    """The columns that are read; None: all."""

    def of_columns(self, places: tuple[int, ...]) -> RowFormat:
        """The format that reads these columns."""
        return replace(self, read_places=places)  # type: ignore[call-arg]  # a field of the classes below

    @property
    def places(self) -> tuple[int, ...]:
        """The places of the columns that are read."""
        return tuple(range(len(self.columns))) if self.read_places is None else self.read_places


class BareFormat(RowFormat):
    """A format of rows of one column, which is written without its name. Null is written as a null record."""

    @property
    def has_names(self) -> bool:
        """The name is not written."""
        return False

    def write_one(self, value: Any) -> bytes:
        """The bytes of a column's value that is not null."""
        raise NotImplementedError

    def read_one(self, data: bytes) -> Any:
        """The column's value; None if the bytes stand for null."""
        raise NotImplementedError

    @cached_property
    def write(self) -> Callable[[Row], bytes]:
        """Writes a row. Raises ValueError for null, which has no bytes."""
        write = self.write_one

        def write_row(value: Row) -> bytes:
            (one,) = value
            if one is None:
                raise ValueError("null has no bytes in this format")
            return write(one)

        return write_row

    @cached_property
    def writer(self) -> Callable[[Row], bytes | None]:
        """Writes a row; None for a row of null."""
        write = self.write_one
        return lambda value: None if value[0] is None else write(value[0])

    def read(self, data: bytes) -> Row | None:
        """The row of these bytes; None if they stand for null."""
        one = self.read_one(data)
        return None if one is None else (one,)

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The row of each."""
        read = self.read_one
        values = [None if one is None else read(one) for one in data]
        return [None if one is None else (one,) for one in values]


def types_in(type_: SqlType) -> Iterable[SqlType]:
    """A type and all types inside it."""
    yield type_
    for inner in parts_of(type_):
        yield from types_in(inner)


def parts_of(type_: SqlType) -> tuple[SqlType, ...]:
    """The types of which a type is made directly."""
    match type_:
        case Array(element):
            return (element,)
        case Map(key, value):
            return key, value
        case Struct():
            return tuple(field for _, field in type_.fields)
        case Primitive() | Decimal():
            return ()


def matching(given: Mapping[str, T], name: str) -> T | None:
    """The field of a column: the one of its name, else the one whose name in capitals is the column's; None if there
    is neither. So a column with small letters has only the field of its own name.
    """
    if name in given:
        return given[name]
    return {one.upper(): field for one, field in given.items()}.get(name)
