"""The converters of JSON Schema and Protobuf with a registry in memory: random values, forms, other programs' data."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from felice.client.schema_registry import Schema as RegisteredSchema
from felice.client.schema_registry.protobuf_files import new_pool
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.converters.json_schema import JsonSchemaConverter
from felice.pipelines.connect.converters.json_schemas import Reading, json_schema
from felice.pipelines.connect.converters.json_values import Style
from felice.pipelines.connect.converters.protobuf import ProtobufConverter
from felice.pipelines.connect.converters.protobuf_schemas import TAG, Nullables, protobuf_file
from felice.pipelines.connect.converters.registry import RegistryConverter
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    MAP,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    decimal_of,
    logical,
    mapping,
    simple,
)
from felice.pipelines.connect.model.schema import struct as struct_of
from felice.pipelines.registry_clients import RegistryAddress
from properties.pipelines.connect_envelopes import Envelopes

PLAIN = JsonConverter(JsonConverter.definitions.parse({}), is_key=False)
STYLE = Style(numeric=False, fills=True, has_entries=True)
ORDER = struct_of(
    {
        "id": simple(INT32),
        "small": simple(INT8, optional=True),
        "name": simple(STRING, optional=True),
        "price": decimal_of(2),
        "day": logical(DATE),
        "time": logical(TIME),
        "at": logical(TIMESTAMP, optional=True),
        "data": simple(BYTES),
        "tags": array(simple(STRING)),
        "by": mapping(simple(STRING), simple(INT64)),
        "to": struct_of({"city": simple(STRING), "x": simple(FLOAT64)}, name="shop.Address"),
    },
    name="shop.Order",
)
ADDRESS = ORDER.fields[-1].schema
VALUES = {
    "id": 7,
    "small": -3,
    "name": "ä",
    "price": decimal.Decimal("-12.34"),
    "day": datetime.date(2026, 2, 28),
    "time": datetime.time(23, 59, 59, 999_000),
    "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC),
    "data": b"\x00\xff",
    "tags": ["a", "b"],
    "by": {"a": 1, "b": -(1 << 63)},
    "to": Struct(ADDRESS, {"city": "Köln", "x": 0.5}),
}


def made(kind: type[RegistryConverter], url: str, **more: str) -> RegistryConverter:
    options = {"schema.registry.url": url, **{name.replace("_", "."): value for name, value in more.items()}}
    return kind(kind.definitions.parse(options), is_key=False)


def registry(url: str) -> Any:
    return RegistryAddress.of(url).client()


def random_values(seed: int, *, of_structs: bool = False) -> list[tuple[Schema, Any]]:
    envelopes, found = Envelopes(seed), []
    for _ in range(150):
        envelope = envelopes.envelope()
        if of_structs:
            fields = [{**envelopes.schema(2), "field": name} for name in ("a", "b", "c")]
            schema = {"type": "struct", "fields": fields}
            envelope = {"schema": schema, "payload": envelopes.payload(schema)}
        text = json.dumps(envelope)
        try:
            schema, value = PLAIN.from_bytes("t", text.encode())
        except ConnectError:
            continue
        if schema is not None and value is not None:
            found.append((schema, value))
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", ["BASE64", "NUMERIC"])
def test_random_values_come_back_from_json_with_a_schema(seed: int, form: str) -> None:
    converter = made(JsonSchemaConverter, f"mock://json-{seed}-{form}", decimal_format=form)
    count = 0
    for number, (schema, value) in enumerate(random_values(seed)):
        try:
            data = converter.to_bytes(f"t{number}", schema, value)
        except DataError as error:
            assert "mismatching scale" in str(error)
            continue
        assert converter.from_bytes(f"t{number}", data) == (schema, value)
        count += 1
    assert count > 80


def shape(schema: Schema) -> Any:
    """What Protobuf keeps of a schema."""
    inner = [None if one is None else shape(one) for one in (schema.key_schema, schema.value_schema)]
    members = [(one.name, shape(one.schema)) for one in schema.fields]
    named = schema.type == STRUCT or (schema.name or "").startswith("org.apache.kafka.connect.data.")
    return schema.type, schema.name if named else None, schema.parameter("scale"), inner, members


def kept(schema: Schema, value: Any) -> Any:
    """What Protobuf keeps of a value: it has no null in the place of an array or a map."""
    if schema.type == ARRAY:
        assert schema.value_schema is not None
        return [kept(schema.value_schema, one) for one in value or ()]
    if schema.type == MAP:
        assert schema.value_schema is not None
        return {key: kept(schema.value_schema, one) for key, one in (value or {}).items()}
    if isinstance(value, Struct):
        return {one.name: kept(one.schema, value[one.name]) for one in schema.fields}
    return value


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("option", ["optional_for_nullables", "wrapper_for_nullables"])
def test_random_structs_come_back_from_protobuf(seed: int, option: str) -> None:
    converter = made(ProtobufConverter, f"mock://protobuf-{seed}-{option}", **{option: "true"})
    count = 0
    for number, (schema, value) in enumerate(random_values(seed, of_structs=True)):
        try:
            data = converter.to_bytes(f"t{number}", schema, value)
        except DataError as error:
            refused = ("no names like", "hold no null", "within an array", "within a map", "Inexact", "scale")
            assert any(one in str(error) for one in refused), error
            continue
        found, back = converter.from_bytes(f"t{number}", data)
        assert found is not None
        assert shape(found) == shape(schema)
        assert kept(found, back) == kept(schema, value)
        count += 1
    assert count > 10


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (JsonSchemaConverter, {}),
        (ProtobufConverter, {}),
        (ProtobufConverter, {"optional_for_nullables": "true"}),
        (ProtobufConverter, {"wrapper_for_nullables": "true"}),
    ],
)
def test_an_order_comes_back(kind: type[RegistryConverter], options: dict[str, str]) -> None:
    converter = made(kind, f"mock://order-{kind.__name__}-{options}", **options)
    data = converter.to_bytes("t", ORDER, Struct(ORDER, VALUES))
    assert data is not None and data[0] == 0
    schema, value = converter.from_bytes("t", data)
    assert schema is not None and schema.name == "shop.Order"
    assert shape(schema) == shape(ORDER)
    assert {name: one for name, one in value.items() if name != "to"} == {
        name: one for name, one in VALUES.items() if name != "to"
    }
    assert dict(value["to"].items()) == {"city": "Köln", "x": 0.5}
    assert converter.to_bytes("t", None, None) is None and converter.from_bytes("t", None) == (None, None)


def test_a_null_of_a_plain_member_is_zero_in_protobuf_unless_an_option_keeps_it() -> None:
    schema = struct_of({"n": simple(INT32, optional=True), "t": simple(STRING, optional=True)})
    value = Struct(schema, {"n": None, "t": None})
    found = {}
    for option in (None, "optional_for_nullables", "wrapper_for_nullables"):
        more = {} if option is None else {option: "true"}
        converter = made(ProtobufConverter, f"mock://null-{option}", **more)
        _, back = converter.from_bytes("t", converter.to_bytes("t", schema, value))
        found[option] = dict(back.items())
    null = {"n": None, "t": None}
    assert found == {
        None: {"n": 0, "t": ""},
        "optional_for_nullables": null,
        "wrapper_for_nullables": null,
    }


def test_confluents_form_of_a_json_schema() -> None:
    schema = struct_of(
        {
            "id": simple(INT8),
            "name": simple(STRING, optional=True),
            "price": decimal_of(2),
            "by": mapping(simple(INT32), simple(FLOAT32)),
            "to": mapping(simple(STRING), simple(BOOLEAN)),
        },
        name="shop.Order",
        version=3,
    )
    form = json_schema(schema, STYLE)
    assert form == {
        "type": "object",
        "title": "shop.Order",
        "connect.version": 3,
        "properties": {
            "id": {"type": "integer", "connect.type": "int8", "connect.index": 0},
            "name": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
            "price": {
                "type": "number",
                "title": "org.apache.kafka.connect.data.Decimal",
                "connect.type": "bytes",
                "connect.version": 1,
                "connect.parameters": {"scale": "2"},
                "connect.index": 2,
            },
            "by": {
                "type": "array",
                "connect.type": "map",
                "connect.index": 3,
                "items": {
                    "type": "object",
                    "properties": {
                        "key": {"type": "integer", "connect.type": "int32"},
                        "value": {"type": "number", "connect.type": "float32"},
                    },
                },
            },
            "to": {
                "type": "object",
                "connect.type": "map",
                "connect.index": 4,
                "additionalProperties": {"type": "boolean"},
            },
        },
    }
    assert Reading(form, STYLE, may_miss=False).schema() == schema
    closed = json_schema(ADDRESS, STYLE, is_open=False)
    assert closed["additionalProperties"] is False


def test_a_json_schema_of_another_program() -> None:
    text = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Person",
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "age": {"type": ["null", "integer"]},
            "kind": {"enum": ["A", "B"]},
            "at": {"$ref": "#/definitions/place"},
            "more": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "definitions": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    number = registry("mock://foreign").register_schema("t-value", RegisteredSchema(json.dumps(text), "JSON"))
    given = {"name": "a", "age": 3, "kind": "A", "at": {"x": 1}, "more": {"y": 2.5}, "unknown": 1}
    data = struct.pack(">bI", 0, number) + json.dumps(given).encode()
    schema, value = made(JsonSchemaConverter, "mock://foreign").from_bytes("t", data)
    assert schema is not None
    assert [(one.name, one.schema.type, one.schema.optional) for one in schema.fields] == [
        ("name", STRING, False),
        ("age", INT64, True),
        ("kind", STRING, False),
        ("at", STRUCT, False),
        ("more", MAP, False),
    ]
    assert (value["age"], value["at"]["x"], value["more"]) == (3, 1.0, {"y": 2.5})
    lax = made(JsonSchemaConverter, "mock://foreign", use_optional_for_nonrequired="true")
    short = struct.pack(">bI", 0, number) + b'{"name":"a"}'
    assert dict(lax.from_bytes("t", short)[1].items())["at"] is None
    with pytest.raises(DataError, match="null"):
        made(JsonSchemaConverter, "mock://foreign").from_bytes("t", short)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "oneOf of 2"),
        ({"type": ["string", "integer"]}, "2 types"),
        ({"allOf": [{"type": "string"}]}, "allOf"),
        ({"type": "array"}, "items"),
        ({"$ref": "#/definitions/missing"}, "not in it"),
        ({"$ref": "#/a", "a": {"$ref": "#/a"}}, "itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "holds itself"),
        ({"type": "object", "properties": {"a": True}}, "needs a JSON Schema with a type"),
        ({"type": "string", "connect.type": "int128"}, "Unsupported type"),
        ({"type": "array", "connect.type": "map", "items": {"type": "string"}}, "key and a value"),
    ],
)
def test_a_json_schema_that_connect_cannot_hold(text: dict[str, Any], error: str) -> None:
    with pytest.raises(DataError, match=error):
        Reading(text, STYLE, may_miss=False).schema()


def test_confluents_form_of_a_protobuf_file() -> None:
    schema = struct_of(
        {
            "id": Schema(INT32, parameters=((TAG, "5"),)),
            "name": simple(STRING, optional=True),
            "price": decimal_of(2),
            "by": mapping(simple(STRING), simple(INT64)),
            "to": array(ADDRESS),
        },
        name="shop.Order",
    )
    file = protobuf_file(schema, Nullables(optional=True))
    assert (file.syntax, file.package, [one.name for one in file.message_type]) == (
        "proto3",
        "shop",
        ["Order"],
    )
    order = file.message_type[0]
    types = FieldDescriptorProto
    assert [(one.name, one.number, one.type, one.type_name) for one in order.field] == [
        ("id", 5, types.TYPE_INT32, ""),
        ("name", 1, types.TYPE_STRING, ""),
        ("price", 2, types.TYPE_MESSAGE, ".confluent.type.Decimal"),
        ("by", 3, types.TYPE_MESSAGE, "ByEntry"),
        ("to", 4, types.TYPE_MESSAGE, "Address"),
    ]
    assert order.field[1].proto3_optional and not order.field[0].proto3_optional
    assert list(file.dependency) == ["confluent/meta.proto", "confluent/type/decimal.proto"]


def _file_of_another_program() -> FileDescriptorProto:
    file = FileDescriptorProto(name="default", package="other", syntax="proto3")
    types = FieldDescriptorProto
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="A", number=0)
    kind.value.add(name="B", number=1)
    file.message_type.add(name="First")
    outer = file.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="Inner")
    one = types.LABEL_OPTIONAL
    inner.field.add(name="big", number=1, type=types.TYPE_UINT64, label=one)
    inner.field.add(name="medium", number=2, type=types.TYPE_FIXED32, label=one)
    inner.field.add(name="kind", number=3, type=types.TYPE_ENUM, type_name=".other.Kind", label=one)
    inner.field.add(name="text", number=4, type=types.TYPE_STRING, label=one, oneof_index=0)
    inner.field.add(name="count", number=5, type=types.TYPE_SINT32, label=one, oneof_index=0)
    inner.oneof_decl.add(name="choice")
    return file


def test_a_protobuf_message_of_another_program() -> None:
    file = _file_of_another_program()
    text = base64.standard_b64encode(file.SerializeToString()).decode()
    number = registry("mock://protos").register_schema("t-value", RegisteredSchema(text, "PROTOBUF"))
    # Path 1, 0: the type Inner within the second type. 2^64 - 1, 2^32 - 1, an unknown number of Kind, and count = -2.
    body = bytes([8, *([255] * 9), 1, 21, 255, 255, 255, 255, 24, 7, 40, 3])
    data = struct.pack(">bI", 0, number) + bytes([4, 2, 0]) + body
    schema, value = made(ProtobufConverter, "mock://protos").from_bytes("t", data)
    assert schema is not None and schema.name == "other.Outer.Inner"
    assert dict(value.items()) == {"big": -1, "medium": (1 << 32) - 1, "kind": "7", "text": None, "count": -2}
    assert [one.schema.parameter(TAG) for one in schema.fields] == ["1", "2", "3", "4", "5"]


def _with_itself() -> str:
    file = FileDescriptorProto(name="default", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(
        name="next",
        number=1,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".Node",
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    return base64.standard_b64encode(file.SerializeToString()).decode()


def test_a_message_that_holds_itself() -> None:
    number = registry("mock://node").register_schema("t-value", RegisteredSchema(_with_itself(), "PROTOBUF"))
    with pytest.raises(DataError, match="Node holds itself"):
        made(ProtobufConverter, "mock://node").from_bytes("t", struct.pack(">bI", 0, number) + b"\x00")


def test_a_schema_that_doubles_with_each_level_is_refused_soon() -> None:
    levels = {
        f"l{number}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/definitions/l{number + 1}"} for side in "ab"},
        }
        for number in range(40)
    }
    text = {"$ref": "#/definitions/l0", "definitions": {**levels, "l40": {"type": "string"}}}
    with pytest.raises(DataError, match="more than 10,000 parts"):
        Reading(text, STYLE, may_miss=False).schema()
    file = FileDescriptorProto(name="default", syntax="proto3")
    for number in range(40):
        message = file.message_type.add(name=f"M{number}")
        for place in (1, 2) if number < 39 else ():
            message.field.add(
                name=f"f{place}",
                number=place,
                type=FieldDescriptorProto.TYPE_MESSAGE,
                type_name=f".M{number + 1}",
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
    proto = base64.standard_b64encode(file.SerializeToString()).decode()
    number = registry("mock://bomb").register_schema("t-value", RegisteredSchema(proto, "PROTOBUF"))
    with pytest.raises(DataError, match="more than 10,000 fields"):
        made(ProtobufConverter, "mock://bomb").from_bytes("t", struct.pack(">bI", 0, number) + b"\x00")


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        (simple(STRING), "a", "holds structs"),
        (struct_of({"a": array(array(simple(INT32)))}), {"a": [[1]]}, "within an array"),
        (struct_of({"a": mapping(simple(FLOAT64), simple(INT32))}), {"a": {}}, "keys of the type double"),
        (struct_of({"a b": simple(INT32)}), {"a b": 1}, "no names like"),
        (struct_of({"a": simple(INT32)}, name="1.R"), {"a": 1}, "no names like"),
        (struct_of({"a": array(simple(STRING, optional=True))}), {"a": [None]}, "hold no null"),
        (
            struct_of({name: Schema(INT32, parameters=((TAG, "1"),)) for name in "ab"}),
            {"a": 1, "b": 2},
            "the same",
        ),
    ],
)
def test_what_protobuf_cannot_hold(schema: Schema, value: Any, error: str) -> None:
    given = Struct(schema, value) if isinstance(value, Mapping) else value
    with pytest.raises(DataError, match=error):
        made(ProtobufConverter, "mock://refused").to_bytes("t", schema, given)


@pytest.mark.parametrize("kind", [JsonSchemaConverter, ProtobufConverter])
@pytest.mark.parametrize("rest", [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01x", b"\x00\x00\x00\x03\xe7x"])
def test_what_is_no_data_of_a_registry_is_refused(kind: type[RegistryConverter], rest: bytes) -> None:
    with pytest.raises(DataError):
        made(kind, "mock://nothing").from_bytes("t", rest)


@pytest.mark.parametrize("kind", [JsonSchemaConverter, ProtobufConverter])
def test_damaged_data_of_a_known_schema_is_refused(kind: type[RegistryConverter]) -> None:
    converter = made(kind, f"mock://damaged-{kind.__name__}")
    data = converter.to_bytes("t", ORDER, Struct(ORDER, VALUES))
    assert data is not None
    for end in (5, len(data) - 1):
        with pytest.raises(DataError):
            converter.from_bytes("t", data[:end])
    if kind is ProtobufConverter:
        with pytest.raises(DataError, match="message index 3"):
            converter.from_bytes("t", data[:5] + bytes([2, 6]) + data[6:])


def test_a_schema_of_another_kind_is_refused() -> None:
    data = made(JsonSchemaConverter, "mock://kinds").to_bytes("t", simple(STRING), "a")
    with pytest.raises(DataError, match="of the type JSON, not PROTOBUF"):
        made(ProtobufConverter, "mock://kinds").from_bytes("t", data)


def test_options_that_are_lacking_are_refused_by_name() -> None:
    for kind, option in (
        (JsonSchemaConverter, "json_fail_invalid_schema"),
        (ProtobufConverter, "int_for_enums"),
    ):
        with pytest.raises(ConfigError, match="not supported by this converter"):
            made(kind, "mock://x", **{option: "true"})


def test_known_files_hold_what_the_converter_imports() -> None:
    pool = new_pool()
    for name in protobuf_file(ORDER, Nullables(wrapper=True)).dependency:
        assert pool.FindFileByName(name) is not None
