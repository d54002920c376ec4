"""Felice's Protobuf serializers send the same requests as confluent_kafka's, and make and read the same bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import json_format

from felice.client.schema_registry.protobuf import ProtobufDeserializer
from felice.client.schema_registry.protobuf_format import ProtobufFormat, index_path, schema_text
from felice.client.serialization import SerializationError
from unit.client.schema_registry.libraries import (
    FACES,
    FELICE,
    Library,
    closed,
    outcome,
    same,
    settled,
)
from unit.client.schema_registry.protobuf_types import POOL, kind, serialized
from unit.client.schema_registry.scripted_registry import Registry

face = pytest.mark.parametrize("face", FACES)

ORDER = {
    "id": 5,
    "buyer": {"name": "hä", "debt": {"cents": -5, "due": {"year": 2024}}},
    "lines": [{"price": {"cents": 1}}, {}],
    "at": "2024-01-02T03:04:05Z",
    "total": {"value": "AQ==", "scale": 2},
}
MESSAGES: dict[str, tuple[str, Any]] = {
    "the first type": ("Plain", {"text": "hä"}),
    "the second type": ("Second", {"text": "a"}),
    "an empty message": ("Plain", {}),
    "imports": ("shop.Order", ORDER),
    "a type beside it": ("shop.Receipt", {"id": 7}),
    "a nested type": ("shop.Order.Line", {"price": {"cents": 9}}),
    "a deeply nested type": ("shop.Order.Line.Deep", {"y": "AAEC"}),
    "the first nested type": ("shop.Order.Other", {"x": 1}),
    "a required field": ("Strict", {"a": 5}),
    "a missing required field": ("Strict", {}),
    "nothing": ("Plain", None),
}


async def round_trip(library: Library, name: str, value: Any, **options: Any) -> Any:
    """Serialize and deserialize a message twice: the second time, caches answer."""
    client, context = library.client(), library.context(**options.pop("context", {}))
    reading = {"schema_registry_client": client, **options.pop("reading", {})}
    message = None if value is None else json_format.ParseDict(value, kind(name)())
    results: list[Any] = []
    try:
        serializer = await settled(library.ProtobufSerializer(kind(name), client, **options))
        deserializer = await settled(library.ProtobufDeserializer(kind(name), **reading))
        for _ in range(2):
            data = await settled(serializer(message, context))
            back = await settled(deserializer(data, context))
            results += [data, back == message, str(back)]
    finally:
        await closed(client)
    return results


@face
@pytest.mark.parametrize(("name", "value"), MESSAGES.values(), ids=MESSAGES.keys())
def test_messages_are_written_and_read_alike(face: str, name: str, value: Any) -> None:
    found = same(face, lambda library: round_trip(library, name, value))
    assert found.error is not None or all(found.result[1::3])


def registered(subject: str, *files: str) -> Callable[[Registry], None]:
    def prepare(registry: Registry) -> None:
        for file in files:
            text = base64.b64encode(serialized(file)).decode()
            registry.register(subject, {"schema": text, "schemaType": "PROTOBUF"})

    return prepare


LATEST = {"auto.register.schemas": False, "use.latest.version": True}
CONFIGURATIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "normalized": ({"normalize.schemas": True}, []),
    "looked up": ({"auto.register.schemas": False}, ["plain.proto"]),
    "not found": ({"auto.register.schemas": False}, []),
    "latest version": (LATEST, ["strict.proto", "plain.proto"]),
    "a fixed id": ({"use.schema.id": 2}, ["strict.proto", "plain.proto"]),
    "by record": ({"subject.name.strategy.type": "RECORD"}, []),
    "by topic and record": ({"subject.name.strategy.type": "TOPIC_RECORD"}, []),
    "by a function": ({"subject.name.strategy": lambda ctx, name: f"{ctx.field}/{name}"}, []),
}


@face
@pytest.mark.parametrize(("conf", "files"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_each_configuration_works_alike(face: str, conf: dict[str, Any], files: list[str]) -> None:
    shared = {name: one for name, one in conf.items() if name == "use.latest.version" or "strategy" in name}
    same(
        face,
        lambda library: round_trip(library, "Plain", {"text": "t"}, conf=conf, reading={"conf": shared}),
        registered("t-value", *files),
    )


@face
@pytest.mark.parametrize(
    "conf",
    [
        {"skip.known.types": False},
        {"reference.subject.name.strategy": lambda ctx, file: f"{ctx.topic}/{file.name}"},
        {"normalize.schemas": True},
        {"auto.register.schemas": False},
    ],
    ids=lambda conf: next(iter(conf)),
)
def test_imported_files_are_registered_alike(face: str, conf: dict[str, Any]) -> None:
    same(face, lambda library: round_trip(library, "shop.Order", ORDER, conf=conf))


@face
@pytest.mark.parametrize("name", ["Plain", "shop.Order.Line.Deep"])
def test_ids_in_headers_are_alike(face: str, name: str) -> None:
    async def scenario(library: Library) -> Any:
        headers: list[Any] = []
        conf = {"schema.id.serializer": library.module().header_schema_id_serializer}
        result = await round_trip(library, name, {}, conf=conf, context={"headers": headers})
        return result, headers

    same(face, scenario)


@face
def test_a_deserializer_without_a_registry_is_alike(face: str) -> None:
    reading = {"schema_registry_client": None}
    same(face, lambda library: round_trip(library, "shop.Order", ORDER, reading=reading))


@face
def test_a_message_of_another_type_is_refused_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        serializer = await settled(library.ProtobufSerializer(kind("Plain"), None))
        await settled(serializer(kind("Second")(), library.context()))

    assert same(face, scenario).error is not None


WRONG: list[dict[str, Any]] = [
    {"skip.known.types": 1},
    {"use.deprecated.format": 1},
    {"use.deprecated.format": True},
    {"reference.subject.name.strategy": 1},
    {"unknown": 1},
    {"auto.register.schemas": True, "use.latest.version": True},
]


@face
@pytest.mark.parametrize("conf", WRONG, ids=str)
def test_wrong_configurations_are_refused_alike(face: str, conf: dict[str, Any]) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.ProtobufSerializer(kind("Plain"), None, conf=conf))

    assert same(face, scenario).error is not None


@face
def test_wrong_configurations_of_deserializers_are_refused_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.ProtobufDeserializer(kind("Plain"), {"use.deprecated.format": True}))

    assert same(face, scenario).error is not None


def test_an_unknown_property_of_a_deserializer_is_refused() -> None:
    # confluent_kafka ignores it.
    with pytest.raises(ValueError, match="unknown properties: spelling"):
        ProtobufDeserializer(kind("Plain"), {"spelling": 1})


@face
def test_builders_build_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        conf = {"url": library.url}
        writing = library.ProtobufSerializerBuilder(conf).set_message_type(kind("Plain"))
        serializer, _ = await settled(writing.build({}, False))
        reading = library.ProtobufDeserializerBuilder().set_schema_registry_config(conf)
        reading.set_message_type(kind("Plain")).set_deserializer_config({"use.latest.version": True})
        deserializer, _ = await settled(reading.build({}, True))
        data = await settled(serializer(kind("Plain")(text="t"), library.context()))
        result = await settled(deserializer(data, library.context()))
        await closed(serializer)
        await closed(deserializer)
        return data, str(result)

    assert 'text: "t"' in same(face, scenario).result[1]


@face
def test_a_builder_without_a_message_type_is_refused_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.ProtobufSerializerBuilder().build({}, False))

    assert same(face, scenario).error is not None


PREFIX = b"\x00\x00\x00\x00\x01"
DAMAGED = {
    "no id": b"\x08\x05",
    "no indexes": PREFIX,
    "indexes that do not end": PREFIX + b"\xff" * 20,
    "many indexes": PREFIX + b"\xfe\xff\xff\xff\x0f",
    "negative indexes": PREFIX + b"\x01",
    "an index that does not exist": PREFIX + b"\x02\x20",
    "a nested index that does not exist": PREFIX + b"\x04\x00\x00",
    "a negative index": PREFIX + b"\x02\x01",
    "a cut message": PREFIX + b"\x00\x0a\x05ab",
    "no UTF-8": PREFIX + b"\x00\x0a\x01\xff",
}


def read(data: bytes, text: str | None = None) -> BaseException | None:
    def prepare(registry: Registry) -> None:
        schema = text if text is not None else base64.b64encode(serialized("plain.proto")).decode()
        registry.register("t-value", {"schema": schema, "schemaType": "PROTOBUF"})

    async def scenario(library: Library) -> Any:
        client = library.client()
        try:
            reader = library.ProtobufDeserializer(kind("Plain"), schema_registry_client=client)
            return reader(data, library.context())
        finally:
            await closed(client)

    return outcome(FELICE, "blocking", scenario, prepare).error


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_data_is_an_error_in_one_line(data: bytes) -> None:
    error = read(data)
    assert isinstance(error, SerializationError)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text", ['syntax = "proto3";', "", "AAAA", base64.b64encode(serialized("shop/order.proto")).decode()]
)
def test_a_schema_that_is_no_descriptor_is_an_error_in_one_line(text: str) -> None:
    error = read(PREFIX + b"\x00", text)
    assert isinstance(error, SerializationError)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("shop.Order", [0]),
        ("shop.Receipt", [1]),
        ("shop.Order.Other", [0, 0]),
        ("shop.Order.Line", [0, 1]),
        ("shop.Order.Line.Deep", [0, 1, 0]),
    ],
)
def test_the_indexes_of_a_type_lead_back_to_it(name: str, path: list[int]) -> None:
    assert index_path(kind(name).DESCRIPTOR) == path
    files = ["shop/money.proto", "shop/person.proto"]
    used = [(file, base64.b64encode(serialized(file)).decode()) for file in files]
    parsed = ProtobufFormat().parse(schema_text(POOL.FindFileByName("shop/order.proto")), used)
    assert parsed.message(path).full_name == name
