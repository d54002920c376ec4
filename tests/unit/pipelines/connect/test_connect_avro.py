"""The Avro converter with a registry in memory: random schemas, Confluent's forms, other programs' data."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest

from felice.client.schema_registry import Schema as RegisteredSchema
from felice.pipelines.connect.converters.avro import AvroConverter
from felice.pipelines.connect.converters.avro_schemas import avro_schema, connect_schema
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError
from felice.pipelines.connect.model.schema import (
    INT8,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    decimal_of,
    logical,
    mapping,
    simple,
)
from felice.pipelines.connect.model.schema import (
    struct as struct_of,
)
from felice.pipelines.registry_clients import RegistryAddress
from properties.pipelines.connect_envelopes import Envelopes


def converter(url: str, **more: str) -> AvroConverter:
    options = {"schema.registry.url": url, **{name.replace("_", "."): value for name, value in more.items()}}
    return AvroConverter(AvroConverter.definitions.parse(options), is_key=False)


def registry(url: str) -> Any:
    return RegistryAddress.of(url).client()


@pytest.mark.parametrize("seed", range(12))
def test_random_values_come_back(seed: int) -> None:
    envelopes, avro = Envelopes(seed), converter(f"mock://random-{seed}")
    plain = JsonConverter(JsonConverter.definitions.parse({}), is_key=False)
    count = 0
    for number in range(150):
        text = json.dumps(envelopes.envelope())
        try:
            schema, value = plain.from_bytes("t", text.encode())
        except ConnectError:
            continue
        if schema is None or value is None:
            continue
        try:
            data = avro.to_bytes(f"t{number}", schema, value)
        except DataError as error:
            assert "two different structs" in str(error) or "Avro has no names" in str(error), text
            continue
        assert avro.from_bytes(f"t{number}", data) == (schema, value), text
        count += 1
    assert count > 40


def test_confluents_form_of_a_struct() -> None:
    schema = struct_of(
        {
            "id": simple(INT32),
            "small": simple(INT8),
            "name": simple(STRING, optional=True),
            "n": simple(INT64).with_default(5),
            "price": decimal_of(2),
            "at": logical(TIMESTAMP),
            "tags": array(simple(STRING)),
            "by": mapping(simple(STRING), simple(INT32)),
        },
        name="shop.Order",
        version=3,
    )
    assert avro_schema(schema) == {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "small", "type": {"type": "int", "connect.type": "int8"}},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "n", "type": {"type": "long", "connect.default": 5}, "default": 5},
            {
                "name": "price",
                "type": {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 64,
                    "logicalType": "decimal",
                    "connect.version": 1,
                    "connect.parameters": {"scale": "2"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                },
            },
            {
                "name": "at",
                "type": {
                    "type": "long",
                    "logicalType": "timestamp-millis",
                    "connect.version": 1,
                    "connect.name": "org.apache.kafka.connect.data.Timestamp",
                },
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "by", "type": {"type": "map", "values": "int"}},
        ],
        "connect.version": 3,
        "connect.name": "shop.Order",
    }
    assert connect_schema(avro_schema(schema)) == schema


def test_subject_id_and_bytes() -> None:
    avro = converter("mock://bytes")
    data = avro.to_bytes("orders", simple(STRING), "a")
    client = registry("mock://bytes")
    number = client.get_latest_version("orders-value").schema_id
    assert data == struct.pack(">bI", 0, number) + b"\x02a"
    assert avro.to_bytes("orders", simple(STRING), None) is None
    assert avro.from_bytes("orders", None) == (None, None)


def test_data_of_another_program_is_read() -> None:
    text = {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
            {"name": "again", "type": ["null", "K"], "default": None},
            {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        ],
    }
    number = registry("mock://other").register_schema("t-value", RegisteredSchema(json.dumps(text), "AVRO"))
    out = io.BytesIO()
    value = {
        "kind": "B",
        "again": "A",
        "fixed": b"xy",
        "day": 1,
        "uuid": "0b5e8a1c-2f6d-4a57-9a53-0d4f5b5c2b11",
    }
    plain = json.loads(json.dumps(text).replace('"logicalType"', '"x"'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), value)
    schema, found = converter("mock://other").from_bytes("t", struct.pack(">bI", 0, number) + out.getvalue())
    assert schema is not None and schema.name == "n.R" and isinstance(found, Struct)
    assert (found["kind"], found["again"], found["fixed"], str(found["day"])) == (
        "B",
        "A",
        b"xy",
        "1970-01-02",
    )


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01x", b'{"a":1}', b"\x00\x00\x00\x03\xe7x"]
)
def test_what_is_no_data_of_a_registry_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        converter("mock://nothing").from_bytes("t", data)


def test_damaged_data_and_schemas_that_connect_cannot_hold() -> None:
    avro = converter("mock://damaged")
    data = avro.to_bytes(
        "t", struct_of({"a": simple(STRING)}), Struct(struct_of({"a": simple(STRING)}), {"a": "abc"})
    )
    assert data is not None
    with pytest.raises(DataError, match="topic t with the schema"):
        avro.from_bytes("t", data[:-2])
    for text in (
        ["null", "int", "string"],
        {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]},
    ):
        with pytest.raises(DataError):
            connect_schema(text)
    with pytest.raises(DataError):
        avro.to_bytes(
            "t",
            struct_of({"not a name": simple(STRING)}),
            Struct(struct_of({"not a name": simple(STRING)}), {"not a name": "x"}),
        )
    with pytest.raises(DataError, match="without a schema"):
        avro.to_bytes("t", None, {"a": 1})


def test_a_schema_that_doubles_with_each_level_is_refused_soon() -> None:
    def level(number: int) -> dict[str, Any]:
        inner: Any = "int" if number == 0 else level(number - 1)
        again = "int" if number == 0 else f"R{number - 1}"
        return {
            "type": "record",
            "name": f"R{number}",
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": again}],
        }

    with pytest.raises(DataError, match="more than 10,000 parts"):
        connect_schema(level(40))


def test_schemas_that_may_not_be_registered() -> None:
    strict = converter("mock://strict", auto_register_schemas="false")
    with pytest.raises(DataError, match="cannot be registered"):
        strict.to_bytes("t", simple(STRING), "a")
    converter("mock://strict").to_bytes("t", simple(STRING), "a")
    assert strict.to_bytes("t", simple(STRING), "a") is not None


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="not supported by this converter"):
        converter("mock://x", scrub_invalid_names="true")
    with pytest.raises(ConfigError, match="schema.registry.url"):
        AvroConverter.definitions.parse({})
    with pytest.raises(ConfigError, match="NameStrategy"):
        converter("mock://x", value_subject_name_strategy="mine")


def test_a_name_of_two_different_structs() -> None:
    inner = [struct_of({name: simple(STRING)}, name="same") for name in "ab"]
    with pytest.raises(DataError, match="two different structs have the name same"):
        avro_schema(struct_of({"x": inner[0], "y": inner[1]}))
    unnamed = [struct_of({name: simple(STRING)}) for name in "ab"]
    outer = struct_of({"x": unnamed[0], "y": unnamed[1], "again": unnamed[0]})
    assert connect_schema(avro_schema(outer)) == outer


def test_the_schema_is_a_text_without_one() -> None:
    avro = converter("mock://text")
    assert avro.from_bytes("t", avro.to_bytes("t", None, "x")) == (Schema(STRING), "x")
