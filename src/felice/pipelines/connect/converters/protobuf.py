"""Confluent's ProtobufConverter: the id of a schema in a registry, then the message indexes, then the message."""

from __future__ import annotations

import io
from typing import Any, ClassVar

from google.protobuf.descriptor import Descriptor

from felice.client.schema_registry.framing import indexes_to_bytes, read_indexes
from felice.client.schema_registry.protobuf_format import (
    ParsedFile,
    ProtobufFormat,
    decoded,
    message_class,
    text_of_file,
)
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
)
from felice.pipelines.connect.converters.protobuf_schemas import Nullables, connect_schema, protobuf_file
from felice.pipelines.connect.converters.protobuf_values import connect_value, fill
from felice.pipelines.connect.converters.registry import (
    REGISTRY,
    Read,
    RegistryConverter,
    Write,
    not_supported,
)
from felice.pipelines.connect.model.schema import Schema

_FIRST = indexes_to_bytes([0])
"""The place of a message that we write: the first of its file."""


class ProtobufConverter(RegistryConverter):
    """See the module. Without one of the options for nullables, a null of a plain member becomes its zero, as there."""

    label = "Protobuf"
    definitions: ClassVar = REGISTRY + ConfigDefinitions(
        [
            Definition(
                "optional.for.nullables",
                Type.BOOLEAN,
                False,
                "Whether members that may be null have the keyword optional.",
                Importance.LOW,
            ),
            Definition(
                "wrapper.for.nullables",
                Type.BOOLEAN,
                False,
                "Whether members that may be null are wrapped.",
                Importance.LOW,
            ),
            *not_supported(
                "enhanced.protobuf.schema.support",
                "flatten.unions",
                "flatten.single.field.wrappers",
                "format.dates.as.string",
                "generate.index.for.unions",
                "generate.struct.for.nulls",
                "generalized.sum.type.support",
                "int.for.enums",
                "scrub.invalid.names",
                "wrapper.for.raw.primitives",
            ),
        ]
    )

    def _format(self) -> ProtobufFormat:
        return ProtobufFormat()

    @property
    def _nullables(self) -> Nullables:
        return Nullables(self.config["optional.for.nullables"], self.config["wrapper.for.nullables"])

    def _text(self, schema: Schema) -> str:
        return text_of_file(protobuf_file(schema, self._nullables))

    def _writer(self, schema: Schema, parsed: ParsedFile) -> Write:
        kind = message_class(parsed.message([0]))

        def write(value: Any) -> bytes:
            schema.check(value)
            message = kind()
            fill(message, schema, value)
            return _FIRST + bytes(message.SerializeToString(deterministic=True))

        return write

    def _reader(self, parsed: ParsedFile) -> Read:
        nullables = self._nullables
        known: dict[Descriptor, Schema] = {}

        def read(data: bytes) -> tuple[Schema, Any]:
            rest = io.BytesIO(data)
            descriptor = parsed.message(read_indexes(rest))
            schema = known.get(descriptor)
            if schema is None:
                schema = known[descriptor] = connect_schema(descriptor, nullables)
            message = decoded(rest.read(), message_class(descriptor))
            return schema, connect_value(schema, message)

        return read
