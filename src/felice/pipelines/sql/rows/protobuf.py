"""PROTOBUF: rows as messages, with schemas of a registry. PROTOBUF_NOSR: the same without header and registry.

Keeps true:  a message is read as the type that wrote it, and its fields go to the columns of their names, without
             regard to case; other fields are ignored.
             Null is not written. So a number, text, boolean, list or map comes back as 0, "", false or empty, unless
             the schema tells absent fields from these (OPTIONAL, WRAPPER). A STRUCT, DECIMAL, DATE, TIME or TIMESTAMP
             comes back as null.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from felice.dataclass import dataclass
from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows.columns import Row, WholeFormat, at_places
from felice.pipelines.sql.rows.registry import PROTOBUF, RegisteredText
from felice.pipelines.sql.rows.schema_format import SchemaFormat, expect_type

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


@dataclass(frozen=True, slots=True, eq=False)
class ProtobufFormat(SchemaFormat):
    """Rows as messages after the id of their schema and the place of their type in it."""

    name = "PROTOBUF"
    nullable: str | None

    def own_schema(self) -> tuple[str, str]:
        """The type and text of the schema of the columns."""
        from felice.pipelines.sql.rows.protobuf_schema import schema_of

        return PROTOBUF, schema_of(self.columns, self.full_name, self.nullable)

    def writer_of(self, schema: RegisteredText) -> Callable[[Any], bytes]:
        """The function that writes rows with a schema."""
        from felice.client.schema_registry.framing import indexes_to_bytes
        from felice.pipelines.sql.rows.protobuf_schema import message_of, parsed, path_of
        from felice.pipelines.sql.rows.protobuf_values import writer

        expect_type(schema, PROTOBUF)
        message = message_of(parsed(schema.text, schema.references), self.full_name)
        head, write = indexes_to_bytes(path_of(message)), writer(message, self.columns)
        return lambda row: head + write(row)

    def reader_of(self, schema: RegisteredText) -> Callable[[bytes], Any]:
        """The function that reads what was written with a schema."""
        from felice.client.schema_registry.framing import read_indexes
        from felice.client.serialization import SerializationError
        from felice.pipelines.sql.rows.protobuf_schema import parsed
        from felice.pipelines.sql.rows.protobuf_values import reader

        expect_type(schema, PROTOBUF)
        file = parsed(schema.text, schema.references)
        readers: dict[tuple[int, ...], Callable[[bytes], Row]] = {}

        def read(data: bytes) -> Row:
            stream = io.BytesIO(data)
            try:
                path = tuple(read_indexes(stream))
                if path not in readers:
                    readers[path] = reader(file.message(list(path)), self.columns)
            except SerializationError as error:
                raise FormatError(str(error)) from None
            return readers[path](stream.read())

        return read


@dataclass(frozen=True, slots=True, eq=False)
class ProtobufNoSrFormat(WholeFormat):
    """Rows as messages of the type that the columns make."""

    name = "PROTOBUF_NOSR"
    nullable: str | None
    read_places: tuple[int, ...] | None = None

    @cached_property
    def _message(self) -> Descriptor:
        from felice.pipelines.sql.rows.protobuf_schema import message_of, parsed, schema_of

        return message_of(parsed(schema_of(self.columns, None, self.nullable), ()), None)

    @cached_property
    def write(self) -> Callable[[Row], bytes]:
        """Writes a row."""
        from felice.pipelines.sql.rows.protobuf_values import writer

        return writer(self._message, self.columns)

    @cached_property
    def read(self) -> Callable[[bytes], Row]:
        """Reads a row."""
        from felice.pipelines.sql.rows.protobuf_values import reader

        return reader(self._message, at_places(self.columns, self.places))
