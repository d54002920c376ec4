"""Confluent's AvroConverter: Avro with the schema's id of a registry before it.

Keeps true:  schemas and data are read with the limits of `felice.client.schema_registry`.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from fastavro import parse_schema

from felice.client.schema_registry.avro_format import AvroFormat, ParsedAvro, decoded, encoded
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    one_of,
)
from felice.pipelines.connect.converters.avro_schemas import (
    Avro,
    avro_schema,
    avro_value,
    connect_schema,
    connect_value,
)
from felice.pipelines.connect.converters.registry import (
    REGISTRY,
    Read,
    RegistryConverter,
    Write,
    not_supported,
)
from felice.pipelines.connect.model.schema import Schema


class AvroConverter(RegistryConverter):
    """See the module."""

    label = "Avro"
    definitions: ClassVar = REGISTRY + ConfigDefinitions(
        [
            Definition(
                "connect.meta.data",
                Type.BOOLEAN,
                True,
                "Whether names and versions of Connect's schemas are in those of Avro: always.",
                Importance.LOW,
                lambda name, value: one_of("true")(name, str(value).lower()),
            ),
            *not_supported(
                "enhanced.avro.schema.support",
                "scrub.invalid.names",
                "discard.type.doc.default",
                "allow.optional.map.keys",
                "flatten.singleton.unions",
                "generalized.sum.type.support",
            ),
        ]
    )

    def _format(self) -> AvroFormat:
        return AvroFormat()

    def _text(self, schema: Schema) -> str:
        return json.dumps(avro_schema(schema), separators=(",", ":"))

    def _writer(self, schema: Schema, parsed: Any) -> Write:
        plain = _without_logical_types(parsed.schema)
        return lambda value: encoded(avro_value(schema, value), plain)

    def _reader(self, parsed: Any) -> Read:
        plain, schema = ParsedAvro(_without_logical_types(parsed.schema)), connect_schema(parsed.schema)
        return lambda data: (schema, connect_value(schema, decoded(data, plain, None)))


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
