"""confluent_kafka's client of a schema registry and Felice's get the same from `felice registry`, and give it the same.

Each library has a registry of its own on the same broker, so that both begin with nothing and get the same ids.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.targets import Target
from felice.client import Consumer, DeserializingConsumer, SerializingProducer
from felice.client.schema_registry import SchemaRegistryClient
from felice.client.schema_registry.avro import AvroDeserializer, AvroSerializer
from felice.client.schema_registry.decoding import Decoders
from felice.registry.server import RegistrySettings, registry_server
from unit.client.schema_registry.libraries import (
    CONFLUENT,
    FACES,
    FELICE,
    Library,
    Scenario,
    check_equal,
    closed,
    fault_of,
    settled,
)
from unit.client.schema_registry.protobuf_types import kind

pytestmark = pytest.mark.felice_only

face = pytest.mark.parametrize("face", FACES)

START_S = 60


class RunningRegistry:
    """A registry with a topic of its own, in a thread of the test's process."""

    def __init__(self, bootstrap: str, name: str) -> None:
        client = {"bootstrap.servers": bootstrap}
        self._settings = RegistrySettings(client, port=0, topic=f"_schemas_{name}", group=f"sr-{name}")
        self._started, self._loop = threading.Event(), asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = ""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with registry_server(self._settings) as server:
            self.url = server.url
            self._started.set()
            await self._stop.wait()

    def __enter__(self) -> RunningRegistry:
        self._thread.start()
        assert self._started.wait(START_S), "the registry did not start"
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)


@dataclass(frozen=True)
class Registries:
    theirs: RunningRegistry
    ours: RunningRegistry

    def same(self, face: str, scenario: Scenario) -> Any:
        """Run a scenario on both libraries, check that nothing differs, and return Felice's result."""
        outcomes = []
        for package, registry in ((CONFLUENT, self.theirs), (FELICE, self.ours)):
            library: Any = Library(package, face, registry.url, None)
            try:
                outcomes.append((asyncio.run(scenario(library)), None))  # type: ignore[arg-type]
            except Exception as error:
                outcomes.append((None, fault_of(error)))
        (their_result, their_fault), (our_result, our_fault) = outcomes
        check_equal("error", our_fault, their_fault)
        check_equal("result", repr(our_result), repr(their_result))
        return our_result if our_fault is None else our_fault


@pytest.fixture(scope="module")
def registries(broker: Target) -> Iterator[Registries]:
    with RunningRegistry(broker.bootstrap, "c") as theirs, RunningRegistry(broker.bootstrap, "f") as ours:
        yield Registries(theirs, ours)


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "a", "type": "long"}, *fields]})


ADDED = {"name": "b", "type": "string", "default": "x"}
NEEDED = {"name": "c", "type": "string"}


async def attempt(results: list[Any], call: Callable[[], Any]) -> None:
    """Keep the result of the call, or the error of the registry."""
    try:
        results.append(await settled(call()))
    except Exception as error:
        results.append(fault_of(error))


@face
def test_schemas_evolve_alike(registries: Registries, face: str) -> None:
    async def scenario(library: Library) -> Any:
        client, results, subject = library.client(), list[Any](), f"evolving-{face}/ä"
        first, second, third = (
            library.Schema(record(f"E_{face}", *fields)) for fields in ((), (ADDED,), (NEEDED,))
        )
        for call in (
            lambda: client.register_schema(subject, first),
            lambda: client.register_schema(subject, second),
            lambda: client.register_schema(subject, third),
            lambda: client.test_compatibility(subject, third),
            lambda: client.test_compatibility_all_versions(subject, second),
            lambda: client.lookup_schema(subject, second),
            lambda: client.get_latest_version(subject),
            lambda: client.get_versions(subject),
            lambda: client.get_version(subject, 1),
            lambda: client.set_compatibility(subject, "none"),
            lambda: client.get_compatibility(subject),
            lambda: client.register_schema(subject, third),
            lambda: client.get_config(subject),
            lambda: client.delete_config(subject),
            lambda: client.update_mode(subject, "READONLY"),
            lambda: client.register_schema(subject, library.Schema('"string"')),
            lambda: client.delete_mode(subject),
            lambda: client.delete_version(subject, 2),
            lambda: client.get_version(subject, 2),
            lambda: client.delete_subject(subject),
            lambda: client.delete_subject(subject, True),
            lambda: client.get_latest_version(f"none-{face}"),
        ):
            await attempt(results, call)
        await closed(client)
        return results

    results = registries.same(face, scenario)
    assert results[2][1:3] == (409, 409)
    assert results[3:5] == [False, True]


@face
def test_messages_are_written_and_read_alike(registries: Registries, face: str) -> None:
    async def scenario(library: Library) -> Any:
        client, context = library.client(), library.context(f"round-{face}")
        serializer = await settled(library.AvroSerializer(client, record(f"W_{face}", ADDED)))
        deserializer = await settled(library.AvroDeserializer(client, record(f"W_{face}")))
        data = await settled(serializer({"a": 5}, context))
        result = await settled(deserializer(data, context))
        await closed(client)
        return data, result

    assert registries.same(face, scenario)[1] == {"a": 5}


@face
def test_references_and_headers_are_used_alike(registries: Registries, face: str) -> None:
    async def scenario(library: Library) -> Any:
        client, results, headers = library.client(), list[Any](), list[Any]()
        used = f"used-{face}"
        await attempt(results, lambda: client.register_schema(used, library.Schema(record(f"U_{face}"))))
        reference = library.SchemaReference(f"U_{face}", used, 1)
        text = json.dumps({"type": "array", "items": f"U_{face}"})
        schema = library.Schema(text, "AVRO", [reference])
        conf = {"schema.id.serializer": library.module().header_schema_id_serializer}
        context = library.context(f"referring-{face}", headers=headers)
        serializer = await settled(library.AvroSerializer(client, schema, conf=conf))
        deserializer = await settled(library.AvroDeserializer(client))
        data = await settled(serializer([{"a": 1}] * 9, context))
        results += [data, headers, await settled(deserializer(data, context))]
        await attempt(results, lambda: client.get_referenced_by(used, 1))
        await attempt(results, lambda: client.delete_version(used, 1))
        await closed(client)
        return results

    results = registries.same(face, scenario)
    assert results[3] == [{"a": 1}] * 9
    assert results[5][1:3] == (422, 42206)


@face
def test_the_version_with_a_property_is_found_alike(registries: Registries, face: str) -> None:
    async def scenario(library: Library) -> Any:
        client, subject = library.client(), f"owned-{face}-value"
        for owner, fields in (("me", ()), ("you", (ADDED,))):
            properties = library.MetadataProperties({"owner": owner})
            metadata = library.Metadata(None, properties, None)
            schema = library.Schema(record(f"M_{face}", *fields), metadata=metadata)
            await settled(client.register_schema(subject, schema))
        conf = {"use.latest.with.metadata": {"owner": "me"}}
        serializer = await settled(library.AvroSerializer(client, record("X"), conf=conf))
        data = await settled(serializer({"a": 5}, library.context(f"owned-{face}")))
        found = await settled(client.get_latest_with_metadata(subject, {"owner": "me"}))
        await closed(client)
        return data, found.version

    assert registries.same(face, scenario)[1] == 1


@face
def test_lists_are_alike(registries: Registries, face: str) -> None:
    async def scenario(library: Library) -> Any:
        client, results = library.client(), list[Any]()
        await attempt(
            results, lambda: client.register_schema(f"listed-{face}", library.Schema(record("Listed")))
        )
        schema_id = results[0]
        for call in (
            lambda: client.get_schema_types(),
            lambda: client.get_contexts(),
            lambda: client.get_subjects(f"listed-{face}"),
            lambda: client.get_subjects(f"listed-{face}", offset=1, limit=1),
            lambda: client.get_schema(schema_id),
            lambda: client.get_schema(999),
            lambda: client.get_schema_versions(schema_id, f"listed-{face}"),
            lambda: client.get_subjects_by_schema_id(schema_id, f"listed-{face}"),
            lambda: client.get_global_mode(),
            lambda: client.get_compatibility(),
            lambda: client.get_associations_by_resource_name("t", "-"),
        ):
            await attempt(results, call)
        await closed(client)
        return results

    assert registries.same(face, scenario)[2:4] == [["."], [f"listed-{face}"]]


def test_messages_pass_through_a_broker_with_their_schemas(broker: Target) -> None:
    with (
        RunningRegistry(broker.bootstrap, "m") as running,
        SchemaRegistryClient({"url": running.url}) as registry,
    ):
        config = {"bootstrap.servers": broker.bootstrap}
        serializer = AvroSerializer(registry, record("Sent"))
        with SerializingProducer({**config, "value.serializer": serializer}) as producer:
            producer.produce("with-schemas", value={"a": 7})
        reading = {**config, "group.id": "with-schemas", "auto.offset.reset": "earliest"}
        deserializer = AvroDeserializer(registry)
        with DeserializingConsumer({**reading, "value.deserializer": deserializer}) as consumer:
            consumer.subscribe(["with-schemas"])
            message = consumer.poll(60)
            assert message is not None
            assert message.value() == {"a": 7}
        with Consumer({**reading, "group.id": "raw"}) as raw:
            raw.subscribe(["with-schemas"])
            plain = raw.poll(60)
            assert plain is not None
            assert Decoders(registry)(plain.value()) == {"a": 7}


@face
def test_json_schemas_are_used_alike(registries: Registries, face: str) -> None:
    async def scenario(library: Library) -> Any:
        client, results = library.client(), list[Any]()
        part = library.Schema('{"type": "integer", "maximum": 9}', "JSON")
        await attempt(results, lambda: client.register_schema(f"digit-{face}", part))
        used = [library.SchemaReference("digit.json", f"digit-{face}", 1)]
        text = '{"title": "T", "type": "object", "properties": {"d": {"$ref": "digit.json"}}}'
        serializer = await settled(library.JSONSerializer(library.Schema(text, "JSON", used), client))
        deserializer = await settled(library.JSONDeserializer(None, schema_registry_client=client))
        context = library.context(f"json-{face}")
        data = await settled(serializer({"d": 5}, context))
        results += [data, await settled(deserializer(data, context))]
        await attempt(results, lambda: serializer({"d": 50}, context))
        wrong = library.Schema("{", "JSON")
        await attempt(results, lambda: client.register_schema(f"json-{face}-value", wrong))
        await closed(client)
        return results

    found = registries.same(face, scenario)
    assert found[2] == {"d": 5}, found


@face
@pytest.mark.parametrize("name", ["Plain", "shop.Order.Line"])
def test_protobuf_schemas_are_used_alike(registries: Registries, face: str, name: str) -> None:
    async def scenario(library: Library) -> Any:
        client, context = library.client(), library.context(f"{name}-{face}")
        serializer = await settled(library.ProtobufSerializer(kind(name), client))
        data = await settled(serializer(kind(name)(), context))
        await closed(client)
        client = library.client()
        deserializer = await settled(library.ProtobufDeserializer(kind(name), schema_registry_client=client))
        result = await settled(deserializer(data, context))
        subjects = await settled(client.get_subjects())
        await closed(client)
        return data, str(result), [subject for subject in subjects if subject.startswith("shop/")]

    assert registries.same(face, scenario)
