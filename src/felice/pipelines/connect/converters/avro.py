"""Confluent's AvroConverter: Avro with the schema's id of a registry before it.

Keeps true:  each schema is registered once, and each id is asked for once, while it is among the last ones.
             Schemas and data are read with the limits of `felice.client.schema_registry`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastavro import parse_schema

from felice.client.schema_registry.avro_format import ParsedAvro, decoded, encoded
from felice.client.schema_registry.caches import Cache
from felice.client.serialization import SerializationError
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    invalid,
    one_of,
)
from felice.pipelines.connect.converters.avro_schemas import (
    Avro,
    avro_schema,
    avro_value,
    connect_schema,
    connect_value,
)
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.registry import REGISTRY, Registry
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import STRING, Schema

_HEAD = struct.Struct(">bI")


def _lacking(name: str, value: Any) -> None:
    if value is not None:
        raise invalid(name, value, "the option is not supported by this converter")


class AvroConverter(Converter):
    """See the module."""

    definitions: ClassVar = REGISTRY + ConfigDefinitions(
        [
            Definition(
                "schemas.cache.config", Type.INT, 1000, "The number of schemas that are kept.", Importance.LOW
            ),
            Definition(
                "connect.meta.data",
                Type.BOOLEAN,
                True,
                "Whether names and versions of Connect's schemas are in those of Avro: always.",
                Importance.LOW,
                lambda name, value: one_of("true")(name, str(value).lower()),
            ),
            *(
                Definition(name, Type.STRING, None, "Not supported.", Importance.LOW, _lacking)
                for name in (
                    "enhanced.avro.schema.support",
                    "scrub.invalid.names",
                    "discard.type.doc.default",
                    "allow.optional.map.keys",
                    "flatten.singleton.unions",
                    "generalized.sum.type.support",
                )
            ),
        ]
    )

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._registry = Registry(config, "AVRO")
        capacity = max(1, config["schemas.cache.config"])
        self._written: Cache[tuple[str, Schema], tuple[int, Any]] = Cache(capacity)
        self._read: Cache[int, tuple[Any, Schema]] = Cache(capacity)

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The data of a value, with its schema's id. None is a tombstone."""
        if value is None:
            return None
        if schema is None:
            if not isinstance(value, str):
                raise DataError(f"a {type(value).__name__} without a schema cannot be written as Avro")
            schema = Schema(STRING)
        known = self._written.get((topic, schema))
        if known is None:
            known = self._registered(topic, schema)
            self._written.put((topic, schema), known)
        number, parsed = known
        try:
            data = encoded(avro_value(schema, value), parsed)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"the value cannot be written as Avro: {error}") from error
        return _HEAD.pack(0, number) + data

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The schema and the value."""
        if data is None:
            return None, None
        if len(data) < _HEAD.size or data[0] != 0:
            raise DataError(
                f"the data of topic {topic} has no schema's id: it was not written with a schema registry"
            )
        (_, number) = _HEAD.unpack_from(data)
        known = self._read.get(number)
        if known is None:
            found = self._registry.parsed(number).schema
            known = ParsedAvro(_without_logical_types(found)), connect_schema(found)
            self._read.put(number, known)
        parsed, schema = known
        try:
            value = decoded(data[_HEAD.size :], parsed, None)
        except SerializationError as error:
            raise DataError(f"the data of topic {topic} with the schema {number}: {error}") from error
        return schema, connect_value(schema, value)

    def _registered(self, topic: str, schema: Schema) -> tuple[int, Any]:
        text = json.dumps(avro_schema(schema), separators=(",", ":"))
        field = "key" if self.is_key else "value"
        number, parsed = self._registry.registered(topic, field, schema.name, text)
        return number, _without_logical_types(parsed.schema)


def _without_logical_types(avro: Avro) -> Any:
    """The schema, parsed so that fastavro takes the plain values below logical types."""
    return parse_schema(stripped(avro))


def stripped(avro: Avro) -> Avro:
    """The schema without logical types."""
    if isinstance(avro, list):
        return [stripped(one) for one in avro]
    if isinstance(avro, dict):
        return {
            name: stripped(one) if name in ("type", "items", "values", "fields") else one
            for name, one in avro.items()
            if name != "logicalType" and not name.startswith("__fastavro")
        }
    return avro
