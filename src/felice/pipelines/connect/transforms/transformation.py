"""What a transformation is, and what most of them share: a record's key or value, with its schema or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from felice.pipelines.connect.configuration.definitions import ConfigDefinitions
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.record import ConnectRecord
from felice.pipelines.connect.model.schema import Schema, Struct

KEY, VALUE = "key", "value"
"""The parts of a record. Kafka's classes end with $Key or $Value."""

_CAPACITY = 16
"""The schemas whose new forms are kept, as in Kafka."""

R = TypeVar("R", bound=ConnectRecord)


class Transformation:
    """Changes records one by one. A class with `definitions`, made with their values and perhaps a part."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()
    has_parts: ClassVar[bool] = True
    """Whether there are two of it: for keys and for values."""

    def __init__(self, config: Mapping[str, Any], part: str = VALUE) -> None:
        self.config = config
        self.part = part

    def apply(self, record: R) -> R | None:
        """The changed record, or None to drop it. Raises `DataError`."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives up what the transformation holds."""

    # Of the part

    def schema_of(self, record: ConnectRecord) -> Schema | None:
        """The schema of the part."""
        return record.key_schema if self.part == KEY else record.value_schema

    def value_of(self, record: ConnectRecord) -> Any:
        """The value of the part."""
        return record.key if self.part == KEY else record.value

    def with_part(self, record: R, schema: Schema | None, value: Any) -> R:
        """The record with another part."""
        if self.part == KEY:
            return replace(record, key_schema=schema, key=value)
        return replace(record, value_schema=schema, value=value)


class SchemaCache:
    """The new forms of the schemas that were met last."""

    def __init__(self, make: Callable[[Schema], Schema]) -> None:
        self._make = make
        self._known: dict[Schema, Schema] = {}

    def __call__(self, schema: Schema) -> Schema:
        """The new form of a schema."""
        found = self._known.get(schema)
        if found is None:
            if len(self._known) >= _CAPACITY:
                del self._known[next(iter(self._known))]
            found = self._known[schema] = self._make(schema)
        return found


def require_map(value: Any, purpose: str) -> dict[Any, Any]:
    """The value, which must be a dict. Raises `DataError`."""
    if not isinstance(value, dict):
        kind = "null" if value is None else type(value).__name__
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {kind}")
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """The value, which must be a struct. Raises `DataError`."""
    if not isinstance(value, Struct):
        kind = "null" if value is None else type(value).__name__
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {kind}")
    return value


def basics(schema: Schema, **changes: Any) -> Schema:
    """A schema with the name, version, doc and parameters of another one, required, and with these changes."""
    kept = Schema(schema.type, False, schema.name, schema.version, schema.doc, parameters=schema.parameters)
    return replace(kept, **changes)
