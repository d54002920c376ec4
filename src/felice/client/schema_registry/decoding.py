"""Decoders by schema id, for programs that have bytes and a registry but no consumer: Spark, streams, tools.

    decoder = decoder_of(registry, 5)            # asks the registry once
    decoder.decode(payload)                      # asks nothing

Keeps true:  a decoder needs the registry only until it is made. It may be kept for ever: an id's schema never changes.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from typing import Any

from felice.client.schema_registry.caches import SERIALIZED, Cache
from felice.client.schema_registry.framing import SchemaId, read_indexes
from felice.client.schema_registry.model import AVRO, JSON, PROTOBUF, RuleMode, Schema
from felice.client.schema_registry.parsing import Format, Parser
from felice.client.schema_registry.rules import refuse_domain_rules, refuse_encoding_rules
from felice.client.schema_registry.steps import Ask, Step, Steps, run, run_async
from felice.client.serialization import SerializationError
from felice.dataclass import dataclass

Decode = Callable[[bytes, list[int] | None], Any]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the data of one schema.

    `read(payload, message_indexes)` is the format's function. `decode` is what programs call.
    """

    schema: Schema
    read: Decode

    def decode(self, payload: bytes, message_indexes: list[int] | None = None) -> Any:
        """Decode data without its schema id. Raises `SerializationError` for data that cannot be read.

        Avro gives Python's values (records as dicts), JSON its values, unchecked, and Protobuf a message. A Protobuf
        payload begins with its message indexes unless they are given, as those of a header are.
        """
        return self.read(payload, message_indexes)


def decoder_steps(schema_id: int | str, subject: str | None = None) -> Steps[Decoder]:
    """Make the decoder of an id, or of a GUID, as steps. Raises `SerializationError` for an unknown type of schemas."""
    schema = yield from _fetched(schema_id, subject, None)
    kind = schema.schema_type or AVRO
    if kind == PROTOBUF:
        schema = yield from _fetched(schema_id, subject, SERIALIZED)
    refuse_domain_rules(schema, RuleMode.READ)
    refuse_encoding_rules(schema, RuleMode.READ)
    form, decode = _format(kind)
    parsed = yield from Parser(form).parsed(schema)
    return Decoder(schema, lambda payload, indexes: decode(parsed, payload, indexes))


def _fetched(schema_id: int | str, subject: str | None, fmt: str | None) -> Steps[Schema]:
    by_guid = isinstance(schema_id, str)
    asked = (
        Ask("get_schema_by_guid", schema_id, fmt) if by_guid else Ask("get_schema", schema_id, subject, fmt)
    )
    schema: Schema = yield asked
    return schema


def _format(kind: str) -> tuple[Format[Any], Callable[[Any, bytes, list[int] | None], Any]]:
    """A type of schemas, and how its parsed schema decodes data. The library of the type is imported now."""
    if kind == AVRO:
        from felice.client.schema_registry import avro_format

        return avro_format.AvroFormat(), lambda parsed, payload, _: avro_format.decoded(payload, parsed, None)
    if kind == JSON:
        from felice.client.schema_registry import json_format

        return json_format.JsonFormat(), lambda _parsed, payload, _: json_format.decoded(payload)
    if kind == PROTOBUF:
        from felice.client.schema_registry import protobuf_format

        return protobuf_format.ProtobufFormat(), _decoded_message
    raise SerializationError(f"schemas of the type {kind} are not known")


def _decoded_message(parsed: Any, payload: bytes, indexes: list[int] | None) -> Any:
    from felice.client.schema_registry import protobuf_format

    if indexes is None:
        stream = io.BytesIO(payload)
        indexes, payload = read_indexes(stream), stream.read()
    return protobuf_format.decoded(payload, protobuf_format.message_class(parsed.message(indexes)))


def _performed(registry: Any, step: Step) -> Any:
    assert isinstance(step, Ask)
    return getattr(registry, step.method)(*step.arguments, **step.keywords)


def decoder_of(registry: Any, schema_id: int | str, subject: str | None = None) -> Decoder:
    """Make the decoder of an id (int) or GUID (str) with a blocking client of a registry.

    `subject` is needed only for an id of another context. Raises `SchemaRegistryError` if there is no such schema.
    """
    return run(decoder_steps(schema_id, subject), lambda step: _performed(registry, step))


async def async_decoder_of(registry: Any, schema_id: int | str, subject: str | None = None) -> Decoder:
    """As `decoder_of`, with asyncio's client."""

    async def perform(step: Step) -> Any:
        answer = _performed(registry, step)
        return await answer if inspect.isawaitable(answer) else answer

    return await run_async(decoder_steps(schema_id, subject), perform)


def parsed_of(registry: Any, schema: Schema) -> Any:
    """The parsed form of a schema with those that it refers to, which a blocking client fetches.

    Its format decides of what class it is. Raises `SchemaRegistryError` if a reference leads to nothing, and
    `SerializationError` for a schema that cannot be parsed.
    """
    form, _ = _format(schema.schema_type or AVRO)
    return run(Parser(form).parsed(schema), lambda step: _performed(registry, step))


def split(data: bytes) -> tuple[int | str, bytes]:
    """Split the value of a message into the id or GUID of its schema, and the rest.

    The rest of a Protobuf message begins with its message indexes. Raises `SerializationError` for data without an id.
    """
    schema_id = SchemaId(AVRO)
    payload = schema_id.from_bytes(io.BytesIO(data)).read()
    if schema_id.id is not None:
        return schema_id.id, payload
    return str(schema_id.guid), payload


class Decoders:
    """Decodes values of messages with their ids, of every type of schemas, with a blocking client of a registry."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._known: Cache[int | str, Decoder] = Cache()

    def of(self, schema_id: int | str) -> Decoder:
        """Return the decoder of an id or GUID. Asks the registry if it is not known."""
        known = self._known.get(schema_id)
        if known is None:
            known = decoder_of(self._registry, schema_id)
            self._known.put(schema_id, known)
        return known

    def __call__(self, data: bytes | None) -> Any:
        """Decode a value; None for None."""
        if data is None:
            return None
        schema_id, payload = split(data)
        return self.of(schema_id).decode(payload)
