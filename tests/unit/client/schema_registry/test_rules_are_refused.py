"""Data to which a rule of its schema applies is refused, never read or written without the rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from felice.client.schema_registry import SchemaRegistryClient
from felice.client.schema_registry.avro import AvroDeserializer, AvroSerializer
from felice.client.schema_registry.json_schema import JSONSerializer
from felice.client.schema_registry.protobuf import ProtobufSerializer
from felice.client.serialization import MessageField, SerializationContext, SerializationError
from unit.client.schema_registry.protobuf_types import kind
from unit.client.schema_registry.scripted_registry import Registry, served

TEXT = '"string"'
CONTEXT = SerializationContext("t", MessageField.VALUE)
LATEST = {"auto.register.schemas": False, "use.latest.version": True}


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with served(registry) as url, SchemaRegistryClient({"url": url}) as client:
        yield client


def with_rule(mode: str, group: str = "domainRules", **more: Any) -> dict[str, Any]:
    rule = {"name": "mask", "kind": "TRANSFORM", "mode": mode, "type": "CEL", "expr": "1", **more}
    return {"schema": TEXT, "ruleSet": {group: [rule]}}


def write(client: SchemaRegistryClient) -> bytes | None:
    return AvroSerializer(client, conf=LATEST)("text", CONTEXT)


def read(client: SchemaRegistryClient, **conf: Any) -> Any:
    return AvroDeserializer(client, conf=conf)(b"\x00\x00\x00\x00\x01\x08text", CONTEXT)


@pytest.mark.parametrize("group", ["domainRules", "encodingRules"])
@pytest.mark.parametrize(
    ("mode", "writes", "reads"),
    [
        ("WRITE", False, True),
        ("READ", True, False),
        ("WRITEREAD", False, False),
        ("UPGRADE", True, True),
        ("UPDOWN", True, True),
    ],
)
def test_a_rule_stops_the_data_that_it_applies_to(
    client: SchemaRegistryClient, registry: Registry, group: str, mode: str, writes: bool, reads: bool
) -> None:
    registry.register("t-value", with_rule(mode, group))
    for function, passes in ((write, writes), (read, reads)):
        if passes:
            assert function(client)
        else:
            with pytest.raises(SerializationError, match="rule 'mask'.*CEL"):
                function(client)


@pytest.mark.parametrize("more", [{"disabled": True}, {}])
@pytest.mark.parametrize("enabled_at", [None, "ALL", "CLIENT", "SERVER"])
def test_a_rule_that_is_off_stops_nothing(
    client: SchemaRegistryClient, registry: Registry, more: dict[str, Any], enabled_at: str | None
) -> None:
    schema = with_rule("WRITEREAD", **more)
    if enabled_at is not None:
        schema["ruleSet"]["enableAt"] = enabled_at
    registry.register("t-value", schema)
    if more or enabled_at == "SERVER":
        assert read(client) == "text"
    else:
        with pytest.raises(SerializationError, match="mask"):
            read(client)


@pytest.mark.parametrize(
    ("place", "mode", "passes"),
    [(2, "UPGRADE", False), (3, "UPDOWN", False), (3, "DOWNGRADE", True), (1, "UPGRADE", True)],
)
def test_a_rule_between_versions_stops_data_of_older_versions(
    client: SchemaRegistryClient, registry: Registry, place: int, mode: str, passes: bool
) -> None:
    texts = ['"string"', '{"type": "string", "a": 1}', '{"type": "string", "a": 2}']
    for version, text in enumerate(texts, 1):
        rules = with_rule(mode, "migrationRules") if version == place else {}
        registry.register("t-value", {**rules, "schema": text})
    if passes:
        assert read(client, **{"use.latest.version": True}) == "text"
    else:
        with pytest.raises(SerializationError, match="mask"):
            read(client, **{"use.latest.version": True})


@pytest.mark.parametrize("arguments", [{"rule_conf": {"a": 1}}, {"rule_registry": object()}])
def test_rules_of_an_application_are_refused(arguments: dict[str, Any]) -> None:
    for make in (
        lambda: AvroSerializer(None, TEXT, **arguments),
        lambda: AvroDeserializer(None, TEXT, **arguments),
        lambda: JSONSerializer("{}", None, **arguments),
        lambda: ProtobufSerializer(kind("Plain"), None, **arguments),
    ):
        with pytest.raises(ValueError, match="does not execute rules"):
            make()


@pytest.mark.parametrize(
    "conf", [{"validation.rules.execution": "BEFORE_DOMAIN_RULES"}, {"validation.rules.executor": object()}]
)
def test_validation_rules_are_refused(conf: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"validation\.rules\.execution"):
        AvroSerializer(None, TEXT, conf=conf)


def test_the_default_values_of_validation_rules_are_accepted() -> None:
    conf = {"validation.rules.execution": "DISABLED", "validation.rules.fail.fast": False}
    AvroSerializer(None, TEXT, conf=conf)
