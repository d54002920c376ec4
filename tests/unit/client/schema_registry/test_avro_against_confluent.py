"""Felice's Avro serializers send the same requests as confluent_kafka's, and make and read the same bytes."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from felice.client.schema_registry import Schema
from felice.client.serialization import SerializationError
from unit.client.schema_registry.libraries import (
    CONFLUENT,
    FACES,
    FELICE,
    Library,
    Outcome,
    closed,
    outcome,
    same,
    settled,
)
from unit.client.schema_registry.scripted_registry import Registry

face = pytest.mark.parametrize("face", FACES)

USER = json.dumps(
    {
        "type": "record",
        "namespace": "ns",
        "name": "User",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": ["null", "int"], "default": None},
        ],
    }
)
LOGICAL = json.dumps(
    {
        "type": "record",
        "name": "L",
        "fields": [
            {"name": "d", "type": {"type": "int", "logicalType": "date"}},
            {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "lts", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
            {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
)
UTC = datetime.UTC
LOGICAL_VALUE = {
    "d": datetime.date(2024, 2, 29),
    "t": datetime.time(1, 2, 3, 4000),
    "ts": datetime.datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
    "lts": datetime.datetime(2024, 1, 2, 3, 4, 5),
    "u": uuid.UUID(int=5),
    "n": decimal.Decimal("-12.34"),
}
TREE = json.dumps(
    {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "v", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
            {"name": "c", "type": {"type": "array", "items": "T"}},
            {"name": "m", "type": {"type": "map", "values": ["null", "double", "T"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        ],
    }
)
LEAF = {"v": "B", "c": [], "m": {}, "f": b"ab"}

DATA: dict[str, tuple[str, Any]] = {
    "a record": (USER, {"name": "ä", "age": 3}),
    "a default": (USER, {"name": ""}),
    "logical types": (LOGICAL, LOGICAL_VALUE),
    "a recursive record": (TREE, {"v": "A", "c": [LEAF], "m": {"x": None, "y": 0.5, "z": LEAF}, "f": b"xy"}),
    "a string": ('"string"', "hä"),
    "a long": ('"long"', -(2**63)),
    "an int without quotes": ('{"type": "int"}', 7),
    "bytes": ('"bytes"', b"raw"),
    "bytes of a text": ('{"type": "bytes"}', "raw"),
    "a union": ('["null", "string", "long"]', 5),
    "a tagged union": (f'["null", {USER}]', ("ns.User", {"name": "x", "age": None})),
    "an array": ('{"type": "array", "items": "boolean"}', [True, False]),
    "nothing": ('"string"', None),
    "a wrong value": (USER, {"name": 5}),
    "a missing field": (USER, {}),
    "a value of another type": ('"long"', "five"),
    "a schema that is no JSON": ("{", 5),
    "a schema with an unknown type": ('"nonsense"', 5),
}


async def round_trip(library: Library, schema: Any, value: Any, **options: Any) -> Any:
    """Serialize and deserialize a value twice: the second time, caches answer."""
    client, context = library.client(), library.context(**options.pop("context", {}))
    reading = options.pop("reading", {})
    results: list[Any] = []
    try:
        serializer = await settled(library.AvroSerializer(client, schema, **options))
        deserializer = await settled(library.AvroDeserializer(client, **reading))
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


def registered(*schemas: tuple[str, Any]) -> Callable[[Registry], None]:
    """A registry that has schemas already, each a subject with a text or a body."""

    def prepare(registry: Registry) -> None:
        for subject, schema in schemas:
            registry.register(subject, schema if isinstance(schema, dict) else {"schema": schema})

    return prepare


NEWER = json.dumps(json.loads(USER) | {"fields": [*json.loads(USER)["fields"], {"name": "x", "type": "int"}]})
WITH_OWNER = {"schema": USER, "metadata": {"properties": {"owner": "me"}}}
NO_REGISTER = {"auto.register.schemas": False}

CONFIGURATIONS: dict[str, tuple[dict[str, Any], list[tuple[str, Any]]]] = {
    "normalized": ({"normalize.schemas": True}, []),
    "looked up": (NO_REGISTER, [("t-value", USER)]),
    "not found": (NO_REGISTER, []),
    "latest version": (
        {**NO_REGISTER, "use.latest.version": True},
        [("t-value", '"int"'), ("t-value", USER)],
    ),
    "latest of no subject": ({**NO_REGISTER, "use.latest.version": True}, []),
    "latest with metadata": (
        {"use.latest.with.metadata": {"owner": "me"}},
        [("t-value", WITH_OWNER), ("t-value", '"int"')],
    ),
    "a fixed id": ({"use.schema.id": 2}, [("t-value", '"int"'), ("t-value", USER)]),
    "a fixed id of another subject": ({"use.schema.id": 1}, [("other", USER)]),
    "by topic": ({"subject.name.strategy.type": "TOPIC"}, []),
    "by record": ({"subject.name.strategy.type": "record"}, []),
    "by topic and record": ({"subject.name.strategy.type": "TOPIC_RECORD"}, []),
    "by a function": ({"subject.name.strategy": lambda ctx, name: f"{ctx.field}/{name}"}, []),
    "associated, with another fallback": (
        {"subject.name.strategy.conf": {"subject.name.strategy.fallback.type": "RECORD"}},
        [],
    ),
    "associated, without a fallback": (
        {"subject.name.strategy.conf": {"subject.name.strategy.fallback.type": "NONE"}},
        [],
    ),
    "associated, in a cluster": (
        {"subject.name.strategy.conf": {"subject.name.strategy.kafka.cluster.id": "lkc-1"}},
        [],
    ),
    "strict": ({"validate.strict": True}, []),
    "strict with defaults": ({"validate.strict.allow.default": True}, []),
}
BOTH = ("use.latest.version", "use.latest.with.metadata")


@face
@pytest.mark.parametrize("value", [{"name": "n", "age": 1}, {"name": "n"}, {"name": "n", "more": 1}])
@pytest.mark.parametrize(("conf", "schemas"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_each_configuration_works_alike(
    face: str, conf: dict[str, Any], schemas: list[tuple[str, Any]], value: Any
) -> None:
    names = {name: one for name, one in conf.items() if name in BOTH or name.startswith("subject")}
    same(
        face,
        lambda library: round_trip(library, USER, value, conf=conf, reading={"conf": names}),
        registered(*schemas),
    )


WRONG: list[dict[str, Any]] = [
    {"auto.register.schemas": 1},
    {"normalize.schemas": "x"},
    {"use.schema.id": "5"},
    {"use.latest.version": 1},
    {"use.latest.version": True},
    {"use.latest.with.metadata": "x"},
    {"subject.name.strategy": 5},
    {"subject.name.strategy.type": "x"},
    {"subject.name.strategy.type": "NONE"},
    {"schema.id.serializer": 5},
    {"validate.strict": 5},
    {"validate.strict.allow.default": 5},
    {"validation.rules.execution": "x"},
    {"unknown": 5},
]


@face
@pytest.mark.parametrize("conf", WRONG, ids=str)
def test_wrong_configurations_are_refused_alike(face: str, conf: dict[str, Any]) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.AvroSerializer(None, USER, conf=conf))

    assert same(face, scenario).error is not None


WRONG_READERS: list[dict[str, Any]] = [
    {"conf": {"use.latest.version": 1}},
    {"conf": {"use.latest.with.metadata": 1}},
    {"conf": {"schema.id.deserializer": 1}},
    {"conf": {"use.schema.id": 1}},
    {"conf": {"unknown": 1}},
    {"schema_str": 5},
    {"from_dict": 5},
    {"return_record_name": 5},
]


@face
@pytest.mark.parametrize("options", WRONG_READERS, ids=str)
def test_wrong_configurations_of_deserializers_are_refused_alike(face: str, options: Any) -> None:
    async def scenario(library: Library) -> Any:
        await settled(library.AvroDeserializer(None, **options))

    assert same(face, scenario).error is not None


@face
def test_associated_subjects_are_used_alike(face: str) -> None:
    def prepare(registry: Registry) -> None:
        registry.associations.append(
            {"resourceName": "t", "associationType": "value", "subject": "chosen", "resourceId": "1"}
        )

    found = same(face, lambda library: round_trip(library, USER, {"name": "n"}), prepare)
    assert any("/subjects/chosen/" in one.target for one in found.seen)


@face
def test_several_associated_subjects_are_refused_alike(face: str) -> None:
    def prepare(registry: Registry) -> None:
        row = {"resourceName": "t", "associationType": "value", "resourceId": "1"}
        registry.associations += [row | {"subject": "a"}, row | {"subject": "b"}]

    assert same(face, lambda library: round_trip(library, USER, {"name": "n"}), prepare).error


@face
@pytest.mark.parametrize("answer", [500, 403])
def test_errors_of_associations_are_raised_alike(face: str, answer: int) -> None:
    def prepare(registry: Registry) -> None:
        registry.script.extend([(answer, b'{"error_code": 5, "message": "m"}')] * 8)

    assert same(face, lambda library: round_trip(library, USER, {"name": "n"}), prepare).error


@face
@pytest.mark.parametrize("resolver", [lambda: "lkc-5", lambda: "", lambda: 1 // 0])
def test_the_clusters_id_is_asked_for_alike(face: str, resolver: Callable[[], Any]) -> None:
    async def scenario(library: Library) -> Any:
        client = library.client()
        serializer = await settled(library.AvroSerializer(client, USER))
        try:
            if library.face == "asyncio":

                async def coroutine() -> Any:
                    return resolver()

                serializer.set_async_cluster_id_resolver(coroutine)
            else:
                serializer.set_cluster_id_resolver(resolver)
            return await settled(serializer({"name": "n"}, library.context()))
        finally:
            await closed(client)

    same(face, scenario)


@face
@pytest.mark.parametrize("part", ["KEY", "VALUE"])
@pytest.mark.parametrize("headers", [[], [("a", b"b")], {}, None, ()])
def test_ids_in_headers_are_alike(face: str, part: str, headers: Any) -> None:
    async def scenario(library: Library) -> Any:
        own = headers.copy() if isinstance(headers, list | dict) else headers
        conf = {"schema.id.serializer": library.module().header_schema_id_serializer}
        place = {"part": part, "headers": own}
        value = {"name": "more than five bytes"}
        result = await round_trip(library, USER, value, conf=conf, context=place)
        return result, own

    same(face, scenario)


@face
def test_the_prefix_alone_is_read_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        reading = {"conf": {"schema.id.deserializer": library.module().prefix_schema_id_deserializer}}
        return await round_trip(library, USER, {"name": "n"}, reading=reading)

    same(face, scenario)


BASE = '{"type": "enum", "name": "ns.Color", "symbols": ["RED", "BLUE"]}'
CAR = '{"type":"record","namespace":"ns","name":"Car","fields":[{"name":"c","type":"ns.Color"}]}'
BIKE = CAR.replace("Car", "Bike")
FLEET = (
    '{"type":"record","name":"Fleet","fields":[{"name":"a","type":"ns.Car"},{"name":"b","type":"ns.Bike"},'
    '{"name":"o","type":["null","ns.Color"],"default":null}]}'
)
FLEET_VALUE = {"a": {"c": "RED"}, "b": {"c": "BLUE"}, "o": "RED"}
REFERENCES = [("color", BASE), ("car", {"schema": CAR}), ("bike", {"schema": BIKE})]


def with_references(registry: Registry) -> None:
    color = [{"name": "ns.Color", "subject": "color", "version": 1}]
    registry.register("color", {"schema": BASE})
    registry.register("car", {"schema": CAR, "references": color})
    registry.register("bike", {"schema": BIKE, "references": color})


def references(library: Library, *names: str) -> list[Any]:
    subjects = {"Color": "color", "Car": "car", "Bike": "bike"}
    return [library.SchemaReference(f"ns.{name}", subjects[name], 1) for name in names]


@face
def test_references_are_resolved_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        schema = library.Schema(FLEET, "AVRO", references(library, "Car", "Bike", "Color"))
        return await round_trip(library, schema, FLEET_VALUE)

    same(face, scenario, with_references)


@face
def test_a_union_of_references_is_resolved_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        schema = library.Schema('["ns.Car", "ns.Bike"]', "AVRO", references(library, "Car", "Bike"))
        reading = {"return_record_name": True}
        return await round_trip(library, schema, ("ns.Bike", {"c": "RED"}), reading=reading)

    same(face, scenario, with_references)


@face
def test_missing_references_are_refused_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        schema = library.Schema(FLEET, "AVRO", references(library, "Car"))
        return await round_trip(library, schema, FLEET_VALUE)

    assert same(face, scenario).error


READERS = {
    "an added default": NEWER.replace('"type": "int"}]', '"type": "int", "default": 9}]'),
    "an added field without default": NEWER,
    "a dropped field": json.dumps(json.loads(USER) | {"fields": [{"name": "age", "type": ["null", "int"]}]}),
    "a promotion": USER.replace('"int"', '"double"'),
}


@face
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
def test_reader_schemas_convert_alike(face: str, reader: str) -> None:
    reading = {"schema_str": reader}
    theirs, ours = (
        outcome(
            package,
            face,
            lambda library: round_trip(library, USER, {"name": "n", "age": 5}, reading=reading),
        )
        for package in (CONFLUENT, FELICE)
    )
    assert ours.result == theirs.result
    assert ours.requests == theirs.requests
    # fastavro's own errors are confluent_kafka's; Felice raises one that says what happened.
    assert (ours.error is None) == (theirs.error is None)
    assert ours.error is None or isinstance(ours.error, SerializationError)


LATER = ([READERS["an added default"]], ['"int"', '"long"', READERS["a promotion"]])


@face
@pytest.mark.parametrize("later", LATER)
def test_the_latest_version_is_the_reader_alike(face: str, later: list[str]) -> None:
    async def scenario(library: Library) -> Any:
        reading = {"conf": {"use.latest.version": True}}
        return await round_trip(library, USER, {"name": "n"}, conf=NO_REGISTER, reading=reading)

    same(face, scenario, registered(*[("t-value", text) for text in [USER, *later]]))


@face
def test_objects_are_converted_by_the_applications_functions_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        def to_dict(obj: Any, context: Any) -> Any:
            return {"name": f"{obj}{context.topic}"}

        def from_dict(obj: Any, context: Any) -> Any:
            return (obj, context.topic)

        reading = {"from_dict": from_dict}
        return await round_trip(library, USER, "n", to_dict=to_dict, reading=reading)

    same(face, scenario)


@face
@pytest.mark.parametrize("strategy", ["record_subject_name_strategy", "topic_subject_name_strategy"])
def test_a_call_without_context_is_alike(face: str, strategy: str) -> None:
    async def scenario(library: Library) -> Any:
        client = library.client()
        conf = {"subject.name.strategy": getattr(library.module(), strategy)}
        try:
            serializer = await settled(library.AvroSerializer(client, USER, conf=conf))
            deserializer = await settled(library.AvroDeserializer(client, conf=conf))
            data = await settled(serializer({"name": "n"}))
            return data, await settled(deserializer(data))
        finally:
            await closed(client)

    same(face, scenario)


@face
def test_the_registry_is_not_asked_again_for_another_topic_of_the_same_subject(face: str) -> None:
    async def scenario(library: Library) -> Any:
        client = library.client()
        conf = {"subject.name.strategy.type": "RECORD"}
        serializer = await settled(library.AvroSerializer(client, USER, conf=conf))
        results = [await settled(serializer({"name": "n"}, library.context(topic))) for topic in "abc"]
        await closed(client)
        return results

    assert len(same(face, scenario).seen) == 1


@face
def test_builders_build_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        conf = {"url": library.url}
        made = []
        writing = library.AvroSerializerBuilder().set_schema_registry_config(conf).set_schema(USER)
        writing.set_serializer_config({"normalize.schemas": True}).set_to_dict(lambda obj, _: {"name": obj})

        async def init(serializer: Any) -> None:
            made.append(serializer)

        writing.set_serializer_init(init if library.face == "asyncio" else made.append)
        serializer, rest = await settled(writing.build({"a": 1}, False))
        reading = library.AvroDeserializerBuilder(conf).set_from_dict(lambda obj, _: obj["name"])
        deserializer, _ = await settled(reading.build({}, True))
        data = await settled(serializer("n", library.context()))
        result = await settled(deserializer(data, library.context()))
        await closed(serializer)
        await closed(deserializer)
        return data, result, rest, made == [serializer]

    assert same(face, scenario).result[1:] == ("n", {"a": 1}, True)


@face
def test_a_builder_with_a_client_and_a_configuration_is_refused_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        client = library.client()
        builder = library.AvroSerializerBuilder({"url": library.url}, client, USER)
        try:
            await settled(builder.build({}, False))
        finally:
            await closed(client)

    assert same(face, scenario).error


def read_by_felice(data: bytes, schema: str, registry: Registry | None = None) -> Outcome:
    def prepare(registry: Registry) -> None:
        registry.register("t-value", {"schema": schema})

    async def scenario(library: Library) -> Any:
        client = library.client()
        try:
            return library.AvroDeserializer(client)(data, library.context())
        finally:
            await closed(client)

    return outcome(FELICE, "blocking", scenario, prepare)


DAMAGED = {
    "nothing": b"",
    "no schema id": b"hello",
    "half an id": b"\x00\x00\x00",
    "no data": b"\x00\x00\x00\x00\x01",
    "a cut record": b"\x00\x00\x00\x00\x01\x0aab",
    "a long text": b"\x00\x00\x00\x00\x01\xfe\xff\xff\xff\xff\xff\xff\xff\x7fa",
    "a branch that does not exist": b"\x00\x00\x00\x00\x01\x02a\x09",
    "no UTF-8": b"\x00\x00\x00\x00\x01\x02\xff\x00",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_data_is_an_error_in_one_line(data: bytes) -> None:
    error = read_by_felice(data, USER).error
    assert isinstance(error, SerializationError)
    assert "\n" not in str(error)


def test_short_data_with_its_id_in_a_header_is_read() -> None:
    # confluent_kafka refuses every value below six bytes, also if its id is in a header.
    async def scenario(library: Library) -> Any:
        conf = {"schema.id.serializer": library.module().header_schema_id_serializer}
        return await round_trip(library, '"int"', 5, conf=conf, context={"headers": []})

    assert outcome(FELICE, "blocking", scenario).result[:2] == [b"\x0a", 5]


def test_each_subject_keeps_its_own_id() -> None:
    # confluent_kafka writes the id of the subject that it registered last.
    async def scenario(library: Library) -> Any:
        client = library.client()
        serializer = library.AvroSerializer(client, USER)
        library.registry.script.extend([(404, b"{}"), (200, b'{"id": 5}'), (404, b"{}"), (200, b'{"id": 6}')])
        try:
            topics = ["a", ":.other:b", "a", ":.other:b"]
            return [serializer({"name": "n"}, library.context(topic))[4] for topic in topics]
        finally:
            client.close()

    assert outcome(FELICE, "blocking", scenario).result == [5, 6, 5, 6]


def test_references_in_a_circle_are_refused() -> None:
    def prepare(registry: Registry) -> None:
        registry.register("a", {"schema": BASE, "references": [{"name": "b", "subject": "b", "version": 1}]})
        registry.register("b", {"schema": BASE, "references": [{"name": "a", "subject": "a", "version": 1}]})

    async def scenario(library: Library) -> Any:
        used = [library.SchemaReference("a", "a", 1)]
        return await round_trip(library, Schema('"a"', "AVRO", used), "RED")

    error = outcome(FELICE, "blocking", scenario, prepare).error
    assert isinstance(error, SerializationError)
    assert "refers to itself" in str(error)


def test_a_serializer_of_asyncio_must_be_awaited_before_it_is_called() -> None:
    async def scenario(library: Library) -> Any:
        library.AvroSerializer(None, USER)({"name": "n"})

    assert "await AsyncAvroSerializer" in str(outcome(FELICE, "asyncio", scenario).error)
