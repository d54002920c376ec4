"""KAFKA: one column, as Kafka's own serializers write it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from felice.pipelines.sql.rows.columns import BareFormat
from felice.pipelines.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, SqlType
from felice.pipelines.streams.formats import FORMATS, Format
from felice.pipelines.streams.formats import STRING as STRING_FORMAT

_SERIALIZERS: dict[SqlType, str] = {
    INTEGER: "int",
    BIGINT: "long",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
}
TYPES = tuple(_SERIALIZERS)
"""The types that the format has."""


class KafkaFormat(BareFormat):
    """One column of one of `TYPES`."""

    name = "KAFKA"

    @cached_property
    def _one(self) -> Format:
        ((_, type_),) = self.columns
        return FORMATS[_SERIALIZERS[type_]]

    @cached_property
    def write_one(self) -> Callable[[Any], bytes]:
        """Writes the column's value."""
        return self._one.write

    def written(self, value: str) -> tuple[str, dict[str, Any]]:
        """Text is encoded without a call of Python's own functions."""
        if self._one is not STRING_FORMAT:
            return super().written(value)
        return f"None if {value}[0] is None else {{encode}}({value}[0])", {"encode": str.encode}

    @cached_property
    def read_one(self) -> Callable[[bytes], Any]:
        """Reads the column's value."""
        return self._one.read

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The row of each."""
        if self._one is STRING_FORMAT:
            return [None if one is None else (one.decode(),) for one in data]
        return [None if one is None else (one,) for one in self._one.decode_all(data)]
