"""Decoders by schema id need the registry once, and no consumer."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from felice.client.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    header_schema_id_serializer,
)
from felice.client.schema_registry.avro import AvroSerializer
from felice.client.schema_registry.decoding import Decoders, async_decoder_of, decoder_of, split
from felice.client.schema_registry.json_schema import JSONSerializer
from felice.client.schema_registry.protobuf import ProtobufSerializer
from felice.client.serialization import MessageField, SerializationContext, SerializationError
from unit.client.schema_registry.protobuf_types import kind, serialized
from unit.client.schema_registry.scripted_registry import Registry, served

COLOR = '{"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}'
CAR = '{"type": "record", "name": "Car", "fields": [{"name": "c", "type": "Color"}]}'


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with served(registry) as url, SchemaRegistryClient({"url": url}) as client:
        yield client


def context(headers: Any = None) -> SerializationContext:
    return SerializationContext("t", MessageField.VALUE, headers)


def written(client: SchemaRegistryClient) -> dict[str, tuple[bytes, Any]]:
    """Data of each format with the value that it holds."""
    client.register_schema("color", Schema(COLOR))
    car = Schema(CAR, "AVRO", [SchemaReference("Color", "color", 1)])
    line = kind("shop.Order.Line")(price={"cents": 5})
    return {
        "AVRO": (AvroSerializer(client, car)({"c": "BLUE"}, context()) or b"", {"c": "BLUE"}),
        "JSON": (JSONSerializer('{"type": "object"}', client)({"a": 1}, context()) or b"", {"a": 1}),
        "PROTOBUF": (ProtobufSerializer(kind("shop.Order.Line"), client)(line, context()) or b"", line),
    }


def test_values_of_all_formats_are_decoded_by_one_object(client: SchemaRegistryClient) -> None:
    data = written(client)
    client.clear_caches()
    decoders = Decoders(client)
    for kind_, (value, expected) in data.items():
        found = decoders(value)
        assert str(found) == str(expected), kind_
    assert decoders(None) is None


def test_a_decoder_asks_the_registry_no_more(client: SchemaRegistryClient, registry: Registry) -> None:
    data, _ = written(client)["AVRO"]
    client.clear_caches()
    schema_id, payload = split(data)
    decoder = decoder_of(client, schema_id)
    before = len(registry.seen)
    assert [decoder.decode(payload) for _ in range(3)] == [{"c": "BLUE"}] * 3
    assert len(registry.seen) == before
    assert decoder.schema.references == [SchemaReference("Color", "color", 1)]


def test_a_decoder_is_made_by_a_guid(client: SchemaRegistryClient) -> None:
    headers: list[Any] = []
    conf = {"schema.id.serializer": header_schema_id_serializer}
    payload = AvroSerializer(client, '"string"', conf=conf)("hä", context(headers))
    guid, rest = split(headers[0][1])
    assert isinstance(guid, str)
    assert rest == b""
    assert decoder_of(client, guid).decode(payload or b"") == "hä"


def test_protobufs_indexes_may_be_given(client: SchemaRegistryClient, registry: Registry) -> None:
    text = base64.b64encode(serialized("plain.proto")).decode()
    registry.register("p", {"schema": text, "schemaType": "PROTOBUF"})
    decoder = decoder_of(client, 1)
    assert decoder.decode(b"\x0a\x01a", [1]).DESCRIPTOR.name == "Second"
    assert decoder.decode(b"\x02\x02\x0a\x01a").DESCRIPTOR.name == "Second"
    assert decoder.decode(b"\x00\x0a\x01a").text == "a"


def test_asyncio_makes_decoders_too(registry: Registry) -> None:
    registry.register("s", {"schema": '"long"'})

    async def decoded(url: str) -> Any:
        async with AsyncSchemaRegistryClient({"url": url}) as client:
            return (await async_decoder_of(client, 1)).decode(b"\x0a")

    with served(registry) as url:
        assert asyncio.run(decoded(url)) == 5


def test_an_unknown_id_is_the_registrys_error(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        decoder_of(client, 77)
    assert caught.value.error_code == 40403


def test_an_unknown_type_of_schemas_is_refused(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.register("s", {"schema": "x", "schemaType": "XML"})
    with pytest.raises(SerializationError, match="type XML"):
        decoder_of(client, 1)


def test_a_schema_with_rules_has_no_decoder(client: SchemaRegistryClient, registry: Registry) -> None:
    rule = {"name": "hide", "type": "ENCRYPT", "mode": "WRITEREAD", "kind": "TRANSFORM"}
    registry.register("s", {"schema": '"string"', "ruleSet": {"domainRules": [rule]}})
    with pytest.raises(SerializationError, match="hide"):
        decoder_of(client, 1)


@pytest.mark.parametrize("data", [b"", b"\x05", b"\x00\x00", b"\x01" + b"a" * 15, json.dumps({}).encode()])
def test_data_without_an_id_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        split(data)
