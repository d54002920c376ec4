"""Kafka's converters of single values: text, bytes, boolean and numbers, as Kafka's serializers write them."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from felice.pipelines.connect.configuration.definitions import ConfigDefinitions, Definition, Importance, Type
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    Struct,
)

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT = Schema(STRING, optional=True)


class StringConverter(Converter):
    """Text. Any other value is written as Java prints it: dicts and structs with braces."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "converter.encoding",
                Type.STRING,
                "UTF-8",
                "The encoding.",
                Importance.HIGH,
                width="MEDIUM",
                display_name="Encoding",
            )
        ]
    )

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._encoding = config["converter.encoding"]
        try:
            "".encode(self._encoding)
        except LookupError:
            raise DataError(f"unknown encoding {self._encoding}") from None
        self._is_utf8 = codecs.lookup(self._encoding).name == "utf-8"

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The text of a value."""
        if value is None:
            return None
        try:
            return printed(value).encode(self._encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize to a string: {error}") from None

    def to_column(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> pa.Array:
        """The texts of many values."""
        if not self._is_utf8 or not all(type(value) is str for value in values):
            return super().to_column(topic, schema, values)
        import pyarrow as pa

        return pa.array(values, pa.string()).cast(pa.binary())

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The text."""
        text = None if data is None else data.decode(self._encoding, errors="replace")
        return _TEXT, text

    def from_column(
        self, topic: str, data: Sequence[bytes | None]
    ) -> tuple[Sequence[Schema | None], Sequence[Any]]:
        """The texts of many values."""
        encoding = self._encoding
        texts = [None if one is None else one.decode(encoding, "replace") for one in data]
        return [_TEXT] * len(texts), texts


def printed(value: Any) -> str:
    """A value as Java prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, Struct):
        return f"Struct{{{','.join(f'{name}={printed(one)}' for name, one in value.items() if one is not None)}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{printed(key)}={printed(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(printed, value))}]"
    return str(value)


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The same bytes."""
        if schema is not None and schema.type != BYTES:
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type.upper()}")
        if value is not None and not isinstance(value, bytes):
            raise DataError(
                f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}"
            )
        return value

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The same bytes."""
        return Schema(BYTES, optional=True), data


class _NumberConverter(Converter):
    kind: ClassVar[str]
    layout: ClassVar[struct.Struct]
    label: ClassVar[str]

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The number in network order; None for None."""
        if value is None:
            return None
        expected = float if self.kind in (FLOAT32, FLOAT64) else int
        if type(value) is not expected:
            raise DataError(f"Failed to serialize to {self.label}: {type(value).__name__} {value!r:.80}")
        try:
            return self.layout.pack(value)
        except (struct.error, OverflowError) as error:
            raise DataError(f"Failed to serialize to {self.label}: {error}") from None

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The number."""
        schema = Schema(self.kind, optional=True)
        if data is None:
            return schema, None
        if len(data) != self.layout.size:
            raise DataError(
                f"Failed to deserialize {self.label}: Size of data received is not {self.layout.size}"
            )
        return schema, self.layout.unpack(data)[0]


class ShortConverter(_NumberConverter):
    """Numbers of 16 bits."""

    kind, layout, label = INT16, struct.Struct(">h"), "short"


class IntegerConverter(_NumberConverter):
    """Numbers of 32 bits."""

    kind, layout, label = INT32, struct.Struct(">i"), "integer"


class LongConverter(_NumberConverter):
    """Numbers of 64 bits."""

    kind, layout, label = INT64, struct.Struct(">q"), "long"


class FloatConverter(_NumberConverter):
    """Floating-point numbers of 32 bits."""

    kind, layout, label = FLOAT32, struct.Struct(">f"), "float"


class DoubleConverter(_NumberConverter):
    """Floating-point numbers of 64 bits."""

    kind, layout, label = FLOAT64, struct.Struct(">d"), "double"


class BooleanConverter(Converter):
    """A byte, 0 or 1."""

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """A byte; None for None."""
        if value is None:
            return None
        if schema is not None and schema.type != BOOLEAN:
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type.upper()}")
        if type(value) is not bool:
            raise DataError(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")
        return b"\1" if value else b"\0"

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """Whether the byte is 1."""
        schema = Schema(BOOLEAN, optional=True)
        if data is None:
            return schema, None
        if data not in (b"\0", b"\1"):
            raise DataError("Failed to deserialize boolean: expected one byte, 0 or 1")
        return schema, data == b"\1"
