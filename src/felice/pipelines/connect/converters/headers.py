"""Converters of the values of headers."""

from __future__ import annotations

import logging
from typing import Any

from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.header_values import parsed, printed
from felice.pipelines.connect.model.schema import BYTES, STRING, Schema

_log = logging.getLogger("felice.connect.converters")


class HeaderConverter:
    """Converts the values of headers."""

    def to_header(self, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes of a header's value. Raises `DataError`."""
        raise NotImplementedError

    def from_header(self, topic: str, name: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The schema and the value of a header's bytes. Raises `DataError`."""
        raise NotImplementedError


class SimpleHeaderConverter(HeaderConverter):
    """Texts, from which the type is inferred: Kafka's default. Bytes that are no text stay bytes."""

    def to_header(self, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """The text of the value."""
        return None if value is None else printed(schema, value).encode(errors="surrogatepass")

    def from_header(self, topic: str, name: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The value of a text."""
        if data is None:
            return None, None
        if not data:
            return Schema(STRING), ""
        try:
            return parsed(data.decode(errors="replace"))
        except RecursionError:
            _log.warning("the header %s of topic %s nests too deeply and is passed on as bytes", name, topic)
            return Schema(BYTES), data


class ByConverter(HeaderConverter):
    """Any converter of values, for headers."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def to_header(self, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes that the converter makes."""
        return self._converter.to_bytes("", schema, value)

    def from_header(self, topic: str, name: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """The value that the converter makes."""
        return self._converter.from_bytes(topic, data)
