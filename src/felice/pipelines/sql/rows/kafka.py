"""KAFKA: one column, as Kafka's own serializers write it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from felice.pipelines.sql.rows.columns import BareFormat
from felice.pipelines.sql.types import BIGINT, BYTES, DOUBLE, INTEGER, STRING, SqlType
from felice.pipelines.streams.formats import FORMATS, Format

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

    def write_one(self, value: Any) -> bytes:
        """The bytes of the column's value."""
        return self._one.write(value)

    def read_one(self, data: bytes) -> Any:
        """The column's value."""
        return self._one.read(data)
