"""Formats whose schemas are in a registry: Confluent's header, a reader for each schema, one schema to write with.

    data = 0, the schema's id (4 bytes, big-endian), what the type of schemas makes of it

Keeps true:  bytes are read with the schema that wrote them. All processes write with one schema: the one whose id the
             format has, or the one of its columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.errors import FormatError, OutsideError
from felice.pipelines.sql.rows.columns import Row, RowFormat, at_places
from felice.pipelines.sql.rows.registry import RegisteredText, Registry
from felice.pipelines.streams.formats import Format

_HEADER = struct.Struct(">BI")
_MOST_READERS = 1000
"""Schemas whose readers are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class SchemaFormat(RowFormat):
    """A format with a registry. Formats that differ only in their subject are equal: an id belongs to a schema."""

    registry: Registry
    subject: str | None = field(compare=False)
    """Where the schema of the columns is registered; None until the topic is known."""
    is_bare: bool
    """Whether a row is written as the value of its single column."""
    full_name: str | None
    schema_id: int | None

    @property
    def has_names(self) -> bool:
        """The name of a bare value is not written."""
        return not self.is_bare

    def own_schema(self) -> tuple[str, str]:
        """The type and text of the schema of the columns."""
        raise NotImplementedError

    def writer_of(self, schema: RegisteredText) -> Callable[[Any], bytes]:
        """The function that writes rows (bare: the column's values) with a schema, without header."""
        raise NotImplementedError

    def reader_of(self, schema: RegisteredText) -> Callable[[bytes], Any]:
        """The function that reads what was written with a schema, without header."""
        raise NotImplementedError

    def of_topic(self, topic: str, part: str) -> Format:
        """The format with the topic's subject, unless it has one."""
        return self if self.subject is not None else replace(self, subject=f"{topic}-{part}")

    def of_columns(self, places: tuple[int, ...]) -> RowFormat | None:
        """The format of these columns: data is divided by the schema that wrote it."""
        return None if self.is_bare else replace(self, columns=at_places(self.columns, places))

    def placed_by(self, data: bytes) -> bytes | None:
        """Not known: writers with another version of the schema give an equal key other bytes."""
        return None

    @cached_property
    def _write(self) -> Callable[[Any], bytes]:
        try:
            schema = self._schema_to_write()
            encode = self.writer_of(schema)
        except (ValueError, ImportError) as error:
            # Of the schema or the installation: no record is at fault.
            raise OutsideError(f"the format {self.name} cannot be used: {error}") from error
        header = _HEADER.pack(0, schema.id)
        return lambda value: header + encode(value)

    def register(self, *, if_absent: bool = False) -> None:
        """Register the schema of the columns; with `if_absent` only if the subject has none.

        Raises ValueError for columns that the schema cannot have. A schema with an id is registered already.
        """
        if self.schema_id is not None:
            if not if_absent:
                self.writer_of(self.registry.by_id(self.schema_id))
            return
        if self.subject is None:
            return
        if not (if_absent and self.registry.latest(self.subject)):
            type_, text = self.own_schema()
            self.registry.register(self.subject, type_, text)

    def _schema_to_write(self) -> RegisteredText:
        if self.schema_id is not None:
            return self.registry.by_id(self.schema_id)
        if self.subject is None:
            raise ValueError("its subject is not known")
        type_, text = self.own_schema()
        return RegisteredText(self.registry.register(self.subject, type_, text), type_, text)

    @cached_property
    def _readers(self) -> dict[int, Callable[[bytes], Any]]:
        return {}

    def write(self, value: Row) -> bytes:
        """The bytes of a row. Raises ValueError for null in place of a bare value, which has none."""
        if not self.is_bare:
            return self._write(value)
        if value[0] is None:
            raise ValueError("null has no bytes in this format")
        return self._write(value[0])

    @property
    def writer(self) -> Callable[[Row], bytes | None]:
        """Writes a row; None for a bare null."""
        return self._written if self.is_bare else self.write

    def _written(self, value: Row) -> bytes | None:
        return None if value[0] is None else self._write(value[0])

    def read(self, data: bytes) -> Row | None:
        """The row of these bytes. Raises ValueError for bytes that are not of its schema, or do not fit the columns."""
        if len(data) < _HEADER.size or data[0]:
            raise FormatError("the data does not begin with 0 and the id of a schema")
        _, number = _HEADER.unpack_from(data)
        read = self._readers.get(number) or self._reader(number)
        found = read(data[_HEADER.size :])
        if not self.is_bare:
            return found  # type: ignore[no-any-return]
        return None if found is None else (found,)

    def _reader(self, number: int) -> Callable[[bytes], Any]:
        schema = self.registry.by_id(number)
        try:
            made = self.reader_of(schema)
        except ImportError as error:
            raise OutsideError(f"the format {self.name} cannot be used: {error}") from error
        if len(self._readers) < _MOST_READERS:
            self._readers[number] = made
        return made


def expect_type(schema: RegisteredText, type_: str) -> None:
    """Raise ValueError if a schema is of another type."""
    if schema.type != type_:
        raise FormatError(f"the schema {schema.id} is of type {schema.type}; expected {type_}")
