"""Avro: schemas, and data of one object without a file header; pure, with fastavro.

Keeps true:  data of the schema `bytes` has no length before it, as confluent_kafka writes it.
"""

from __future__ import annotations

import io
import json
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from fastavro.repository import AbstractSchemaRepository
from fastavro.schema import load_schema

from felice.client.schema_registry.avro_limits import Shape
from felice.client.schema_registry.deserializing import Deserializing, Written
from felice.client.schema_registry.framing import SchemaId
from felice.client.schema_registry.model import AVRO, Schema
from felice.client.schema_registry.parsing import References
from felice.client.schema_registry.serializing import Serializing, taken_flag
from felice.client.serialization import SerializationError

AvroSchema = str | list[Any] | dict[str, Any]
"""A schema as fastavro holds it when parsed: the name of a primitive type, a union, or another type."""


def schema_of(text: str) -> Schema:
    """The schema of an Avro text. A primitive type's name becomes an object, as registries want it."""
    text = text.strip()
    if not text:
        raise ValueError("the Avro schema is empty")
    return Schema(text if text[0] in "{[" else f'{{"type":{text}}}', AVRO)


class ParsedAvro:
    """A parsed schema, and the limits of its data."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.shape = Shape(schema)


class _Known(AbstractSchemaRepository):
    """The schemas that one schema refers to, by name. They stay unparsed: fastavro resolves each name once."""

    def __init__(self, root: AvroSchema, references: References) -> None:
        self._schemas: dict[str, AvroSchema] = {"": root}
        for name, text in references:
            schema = _loaded(text)
            self._schemas[name] = schema
            if isinstance(schema, dict) and "name" in schema:
                self._schemas[_full_name(schema)] = schema

    def load(self, name: AvroSchema) -> AvroSchema:
        """Return a schema by its name. Raises TypeError for a type that is not known, as fastavro does."""
        unknown = name.get("type") if isinstance(name, dict) else name
        if not isinstance(name, str) or name not in self._schemas:
            raise TypeError(
                f"the Avro schema has the type {unknown}, which is neither in it nor one of its references"
            )
        return self._schemas[name]


def _loaded(text: str) -> AvroSchema:
    try:
        schema: AvroSchema = json.loads(text)
    except RecursionError:
        raise SerializationError("the Avro schema is nested too deep") from None
    return schema


def _full_name(schema: dict[str, Any]) -> str:
    name, namespace = schema["name"], schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else str(name)


class AvroFormat:
    """How Avro's texts become parsed schemas."""

    schema_type = AVRO
    fmt: str | None = None

    def is_known(self, name: str) -> bool:
        """No schema is known without the registry."""
        return False

    def parse(self, text: str, references: References) -> ParsedAvro:
        """Parse a schema. Raises fastavro's errors, such as `SchemaParseException`."""
        root = _loaded(schema_of(text).schema_str or "")
        try:
            return ParsedAvro(load_schema("", repo=_Known(root, references)))
        except RecursionError:
            raise SerializationError("the Avro schema is nested too deep") from None


def name_of(parsed: AvroSchema | None) -> str | None:
    """The name that a subject may contain: that of the type, or the primitive type's; None for unions."""
    if not isinstance(parsed, dict):
        return None
    name: str | None = parsed.get("name") or (parsed["type"] if isinstance(parsed["type"], str) else None)
    return name


def is_bytes(parsed: AvroSchema | None) -> bool:
    """Whether the schema is `bytes`, with or without a logical type."""
    return parsed == "bytes" or (isinstance(parsed, dict) and parsed.get("type") == "bytes")


def encoded(value: Any, parsed: AvroSchema, *, strict: bool = False, allow_default: bool = False) -> bytes:
    """The data of an object. Raises fastavro's errors for an object that does not match the schema."""
    if is_bytes(parsed):
        return value if isinstance(value, bytes) else bytes(value.encode())
    out = io.BytesIO()
    schemaless_writer(out, parsed, value, strict=strict, strict_allow_default=allow_default)
    return out.getvalue()


def decoded(payload: bytes, writer: ParsedAvro, reader: AvroSchema | None, names: bool = False) -> Any:
    """The object of the data; with `names`, records in unions as (name, record).

    `reader` is None if it is the writer's schema. Raises `SerializationError` for data that cannot be read.
    """
    if is_bytes(writer.schema):
        return payload
    writer.shape.check(payload)
    try:
        return schemaless_reader(io.BytesIO(payload), writer.schema, reader, names)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise SerializationError(f"the Avro data cannot be read with its schema: {reason}") from error


class AvroSerializing(Serializing[ParsedAvro]):
    """The steps of an Avro serializer."""

    def __init__(self, schema: str | Schema | None, conf: dict[str, Any], *rest: Any, **options: Any) -> None:
        self._strict = taken_flag(conf, "validate.strict", False)
        self._allow_default = taken_flag(conf, "validate.strict.allow.default", False)
        own = schema_of(schema) if isinstance(schema, str) else schema
        super().__init__(AvroFormat(), own, conf, *rest, **options)

    def record_name(self, obj: Any) -> str | None:
        """The name of the serializer's own schema."""
        return None if self._own is None else name_of(self._own.schema)

    def encode(self, value: Any, parsed: ParsedAvro | None, schema: Schema | None) -> bytes:
        """Encode an object. Raises fastavro's errors if it does not match the schema."""
        assert parsed is not None
        return encoded(value, parsed.schema, strict=self._strict, allow_default=self._allow_default)


class AvroDeserializing(Deserializing[ParsedAvro]):
    """The steps of an Avro deserializer. `names` is confluent_kafka's `return_record_name`."""

    def __init__(
        self, schema: str | Schema | None, conf: dict[str, Any], names: bool, *rest: Any, **options: Any
    ) -> None:
        if schema is not None and not isinstance(schema, str | Schema):
            raise TypeError(f"the schema must be a str or a Schema, not {type(schema).__name__}")
        if not isinstance(names, bool):
            raise ValueError("return_record_name must be True or False")
        self._names = names
        own = schema_of(schema) if isinstance(schema, str) else schema
        super().__init__(AvroFormat(), own, conf, *rest, **options)

    def record_name(self, parsed: ParsedAvro, schema_id: SchemaId) -> str | None:
        """The name of the type that wrote a message."""
        return parsed.schema.get("name") if isinstance(parsed.schema, dict) else None

    def decode(
        self,
        payload: bytes,
        writer: Written[ParsedAvro] | None,
        reader: Written[ParsedAvro] | None,
        schema_id: SchemaId,
    ) -> Any:
        """Decode an object with the writer's schema, and convert it to the reader's."""
        assert writer is not None and reader is not None
        target = None if reader.parsed is writer.parsed else reader.parsed.schema
        return decoded(payload, writer.parsed, target, self._names)
