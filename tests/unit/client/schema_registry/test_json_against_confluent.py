"""Felice's JSON serializers send the same requests as confluent_kafka's, and make and read the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from felice.client.serialization import SerializationError
from unit.client.schema_registry.libraries import (
    CONFLUENT,
    FACES,
    FELICE,
    Library,
    closed,
    outcome,
    same,
    settled,
)
from unit.client.schema_registry.scripted_registry import Registry

face = pytest.mark.parametrize("face", FACES)

USER = json.dumps(
    {
        "title": "User",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
    }
)
WITH_PARTS = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"user": {"$ref": "#/definitions/user"}},
        "definitions": {"user": {"type": "object", "properties": {"n": {"enum": ["a", None]}}}},
    }
)

DATA: dict[str, tuple[Any, Any]] = {
    "an object": (USER, {"name": "hä ☃", "age": 3}),
    "numbers": ('{"type": "array"}', [1, 1.5, 1e300, 10**30, True, None]),
    "a text": ('{"type": "string"}', "a"),
    "a wrong value": (USER, {"name": 5}),
    "a missing member": (USER, {"age": 5}),
    "a negative age": (USER, {"name": "n", "age": -1}),
    "parts of the schema": (WITH_PARTS, {"user": {"n": "a"}}),
    "a wrong part": (WITH_PARTS, {"user": {"n": "b"}}),
    "true": ("true", {"a": 1}),
    "false": ("false", {"a": 1}),
    "a meta-schema": ('{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "integer"}', 5),
    "a value that is no JSON": ("{}", {"a": b"b"}),
    "nothing": (USER, None),
    "a schema that is no JSON": ("{", {"a": 5}),
}


async def round_trip(library: Library, schema: Any, value: Any, **options: Any) -> Any:
    """Serialize and deserialize a value twice: the second time, caches answer."""
    client, context = library.client(), library.context(**options.pop("context", {}))
    reading = {"schema_str": None, "schema_registry_client": client, **options.pop("reading", {})}
    results: list[Any] = []
    try:
        serializer = await settled(library.JSONSerializer(schema, client, **options))
        deserializer = await settled(library.JSONDeserializer(**reading))
        for _ in range(2):
            data = await settled(serializer(value, context))
            results += [data, await settled(deserializer(data, context))]
    finally:
        await closed(client)
    return results


@face
@pytest.mark.parametrize(("schema", "value"), DATA.values(), ids=DATA.keys())
def test_data_is_written_and_read_alike(face: str, schema: str, value: Any) -> None:
    same(face, lambda library: round_trip(library, schema, value))


def registered(*schemas: tuple[str, str]) -> Callable[[Registry], None]:
    def prepare(registry: Registry) -> None:
        for subject, schema in schemas:
            registry.register(subject, {"schema": schema, "schemaType": "JSON"})

    return prepare


LATEST = {"auto.register.schemas": False, "use.latest.version": True}
CONFIGURATIONS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "unchecked": ({"validate": False}, []),
    "normalized": ({"normalize.schemas": True}, []),
    "looked up": ({"auto.register.schemas": False}, [("t-value", USER)]),
    "latest version": (LATEST, [("t-value", "{}"), ("t-value", USER)]),
    "latest version, unchecked": ({**LATEST, "validate": False}, [("t-value", USER)]),
    "a fixed id": ({"use.schema.id": 2}, [("t-value", "{}"), ("t-value", USER)]),
    "by record": ({"subject.name.strategy.type": "RECORD"}, []),
    "by topic and record": ({"subject.name.strategy.type": "TOPIC_RECORD"}, []),
    "by a function": ({"subject.name.strategy": lambda ctx, name: f"{ctx.field}/{name}"}, []),
}
BOTH = ("use.latest.version", "validate")


@face
@pytest.mark.parametrize("value", [{"name": "n", "age": 1}, {"name": 5}])
@pytest.mark.parametrize(("conf", "schemas"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_each_configuration_works_alike(
    face: str, conf: dict[str, Any], schemas: list[tuple[str, str]], value: Any
) -> None:
    names = {name: one for name, one in conf.items() if name in BOTH or name.startswith("subject")}
    same(
        face,
        lambda library: round_trip(library, USER, value, conf=conf, reading={"conf": names}),
        registered(*schemas),
    )


@face
def test_references_are_resolved_alike(face: str) -> None:
    def prepare(registry: Registry) -> None:
        base = {"schema": '{"type": "integer", "maximum": 9}', "schemaType": "JSON"}
        registry.register("digit", base)
        used = [{"name": "digit.json", "subject": "digit", "version": 1}]
        pair = '{"type": "array", "items": {"$ref": "digit.json"}}'
        registry.register("digits", {"schema": pair, "schemaType": "JSON", "references": used})

    def scenario_of(value: Any) -> Any:
        async def scenario(library: Library) -> Any:
            used = [library.SchemaReference("http://x/digits.json", "digits", 1)]
            text = '{"properties": {"d": {"$ref": "http://x/digits.json"}}}'
            # The inner reference is relative: it is looked up by its own name.
            return await round_trip(library, library.Schema(text, "JSON", used), value)

        return scenario

    same(face, scenario_of({"e": 1}), prepare)
    same(face, scenario_of({"d": "no array"}), prepare)


@face
@pytest.mark.parametrize("value", [{"d": 5}, {"d": 50}])
def test_a_reference_by_its_name_is_resolved_alike(face: str, value: Any) -> None:
    def prepare(registry: Registry) -> None:
        registry.register("digit", {"schema": '{"type": "integer", "maximum": 9}', "schemaType": "JSON"})

    async def scenario(library: Library) -> Any:
        used = [library.SchemaReference("digit.json", "digit", 1)]
        text = '{"properties": {"d": {"$ref": "digit.json"}}}'
        return await round_trip(library, library.Schema(text, "JSON", used), value)

    same(face, scenario, prepare)


@face
@pytest.mark.parametrize("value", [{"name": "n"}, {"name": "n", "age": "x"}])
def test_a_deserializer_with_its_own_schema_is_alike(face: str, value: Any) -> None:
    async def scenario(library: Library) -> Any:
        alone = {"schema_str": USER, "schema_registry_client": None}
        both = {"schema_str": USER}
        results = []
        for reading in (alone, both):
            results.append(await round_trip(library, "{}", value, reading=reading))
        return results

    same(face, scenario)


@face
def test_functions_of_the_application_are_called_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        options = {"to_dict": lambda obj, ctx: {"name": obj + ctx.topic}, "json_encode": json.dumps}
        reading = {"from_dict": lambda obj, ctx: (obj, ctx.topic), "json_decode": json.loads}
        return await round_trip(library, USER, "n", reading=reading, **options)

    same(face, scenario)


@face
def test_bytes_of_an_encoder_are_sent_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        return await round_trip(library, "{}", {"a": 1}, json_encode=lambda value: json.dumps(value).encode())

    same(face, scenario)


WRONG_WRITERS: list[dict[str, Any]] = [
    {"validate": 1},
    {"unknown": 1},
    {"validate.strict": True},
    *[LATEST | {"auto.register.schemas": True}],
]
WRONG_READERS: list[dict[str, Any]] = [
    {"schema_str": None},
    {"schema_str": 5},
    {"schema_str": USER, "from_dict": 5},
    {"schema_str": USER, "conf": {"validate": 1}},
    {"schema_str": USER, "conf": {"unknown": 1}},
]


@face
@pytest.mark.parametrize("conf", WRONG_WRITERS, ids=str)
def test_wrong_configurations_are_refused_alike(face: str, conf: dict[str, Any]) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.JSONSerializer(USER, None, conf=conf))

    assert same(face, scenario).error is not None


@face
@pytest.mark.parametrize("options", WRONG_READERS, ids=str)
def test_wrong_configurations_of_deserializers_are_refused_alike(face: str, options: Any) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.JSONDeserializer(**options))

    assert same(face, scenario).error is not None


@face
def test_references_without_a_registry_are_refused_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        schema = library.Schema("{}", "JSON", [library.SchemaReference("a", "a", 1)])
        await settled(library.JSONDeserializer(schema))

    assert same(face, scenario).error is not None


@face
def test_builders_build_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        conf = {"url": library.url}
        writing = library.JSONSerializerBuilder().set_schema_registry_config(conf).set_schema(USER)
        writing.set_to_dict(lambda obj, _: {"name": obj}).set_json_encode(
            lambda value: json.dumps(value, indent=1)
        )
        serializer, _ = await settled(writing.build({}, False))
        reading = (
            library.JSONDeserializerBuilder(conf)
            .set_json_decode(json.loads)
            .set_from_dict(lambda obj, _: obj["name"])
        )
        deserializer, _ = await settled(reading.build({}, True))
        data = await settled(serializer("n", library.context()))
        result = await settled(deserializer(data, library.context()))
        await closed(serializer)
        await closed(deserializer)
        return data, result

    assert same(face, scenario).result[1] == "n"


PREFIX = b"\x00\x00\x00\x00\x01"
DAMAGED = {
    "no JSON": PREFIX + b"{a",
    "too deep": PREFIX + b"[" * 200_000,
    "no UTF-8": PREFIX + b'"\xff"',
    "a long number": PREFIX + b"1" * 5000,
    "no id": b'{"a": 1}',
    "no data": PREFIX,
}


def read(data: bytes, schema: str) -> BaseException | None:
    async def scenario(library: Library) -> Any:
        client = library.client()
        try:
            return library.JSONDeserializer(None, schema_registry_client=client)(data, library.context())
        finally:
            await closed(client)

    return outcome(FELICE, "blocking", scenario, registered(("t-value", schema))).error


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_data_is_an_error_in_one_line(data: bytes) -> None:
    error = read(data, "{}")
    assert isinstance(error, SerializationError)
    assert "\n" not in str(error)


BAD_SCHEMAS = {
    "an unknown type": ('{"type": "nonsense"}', "not valid"),
    "a reference that is nowhere": ('{"$ref": "#/definitions/none"}', "refers to"),
    "a reference to another server": (
        '{"$ref": "http://127.0.0.1:9/schema"}',
        "refers to http://127.0.0.1:9/schema",
    ),
    "a reference to a file": ('{"$ref": "file:///etc/passwd"}', "refers to"),
    "a schema that refers to itself": ('{"$ref": "#"}', "nested too deep"),
}


@pytest.mark.parametrize(("schema", "reason"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS.keys())
def test_a_schema_that_cannot_check_data_is_an_error_in_one_line(schema: str, reason: str) -> None:
    error = read(PREFIX + b"5", schema)
    assert isinstance(error, SerializationError)
    assert reason in str(error)
    assert "\n" not in str(error)


def test_a_metaschema_of_json_schema_itself_is_known() -> None:
    schema = '{"$ref": "http://json-schema.org/draft-07/schema#"}'
    assert "nonsense" in str(read(PREFIX + b'{"type": "nonsense"}', schema))
    assert read(PREFIX + b'{"type": "string"}', schema) is None


def test_confluents_cases_are_not_vacuous() -> None:
    async def scenario(library: Library) -> Any:
        return await round_trip(library, USER, {"name": "n"})

    data = outcome(CONFLUENT, "blocking", scenario).result[0]
    assert data == PREFIX + b'{"name":"n"}'
