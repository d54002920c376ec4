"""Rows with schemas of a registry: schemas to columns and back, and what other serializers write and read."""

from __future__ import annotations

import datetime
import decimal
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from felice.client.schema_registry.avro import AvroDeserializer, AvroSerializer
from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from felice.client.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from felice.client.schema_registry.protobuf_files import new_pool
from felice.client.serialization import MessageField, SerializationContext
from felice.pipelines.errors import FormatError, OutsideError
from felice.pipelines.registry_clients import RegistryAddress
from felice.pipelines.sql.rows import FormatDescription, columns_of_schema, protobuf_schema, row_format
from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.proto_text import file_of_text
from felice.pipelines.sql.rows.registry import MemoryRegistry, RegisteredText, RemoteRegistry
from felice.pipelines.sql.rows.schema_format import SchemaFormat
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
    text_of,
)
from felice.pipelines.streams.formats import Format

CONF = {"subject.name.strategy.type": "TOPIC"}
CONTEXT = SerializationContext("t", MessageField.VALUE)
COLUMNS: Columns = (
    ("ID", INTEGER),
    ("N", BIGINT),
    ("F", DOUBLE),
    ("OK", BOOLEAN),
    ("S", STRING),
    ("B", BYTES),
    ("D", Decimal(6, 2)),
    ("DAY", DATE),
    ("T", TIME),
    ("AT", TIMESTAMP),
    ("L", Array(STRING)),
    ("M", Map(STRING, BIGINT)),
    ("R", Struct((("X", INTEGER), ("Y", Struct((("Z", STRING),)))))),
)
ROW = (
    *(1, 1 << 40, 1.5, True, "ä", b"\0\xff", decimal.Decimal("-12.30"), 3, 61_001, 1_234_567),
    *(["a", "b"], {"k": 7}, (2, ("z",))),
)
KINDS = {"AVRO": "AVRO", "JSON_SR": "JSON", "PROTOBUF": "PROTOBUF"}


def format_of(name: str, columns: Columns, registry: Any, subject: str = "t-value", **options: Any) -> Format:
    is_key = options.pop("is_key", False)
    return row_format(
        FormatDescription(name, **options), columns, registry=registry, subject=subject, is_key=is_key
    )


def remote(name: str) -> RemoteRegistry:
    return RemoteRegistry(RegistryAddress.of(f"mock://{name}"))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("nullable", [None, "OPTIONAL", "WRAPPER"])
def test_columns_become_a_schema_and_come_back(name: str, nullable: str | None) -> None:
    if nullable is not None and name != "PROTOBUF":
        return
    registry = MemoryRegistry()
    format_of(name, COLUMNS, registry, nullable=nullable).write(ROW)
    schema = registry.latest("t-value")
    assert schema is not None and schema.type == KINDS[name]
    description = FormatDescription(name, nullable=nullable)
    assert columns_of_schema(description, schema, is_key=False) == COLUMNS


def test_the_avro_schema_is_that_of_ksqldb() -> None:
    registry = MemoryRegistry()
    columns: Columns = (("I", INTEGER), ("A.B", Decimal(4, 2)), ("M", Map(BIGINT, Struct((("X", TIME),)))))
    format_of("AVRO", columns, registry).write((1, None, None))
    space, name = "io.confluent.ksql.avro_schemas", "KsqlDataSourceSchema"

    def field(name: str, type_: Any) -> dict[str, Any]:
        return {"name": name, "type": ["null", type_], "default": None}

    def record(name: str, *fields: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "namespace": space, "fields": list(fields)}

    inner = record(f"{name}_M_MapValue", field("X", {"type": "int", "logicalType": "time-millis"}))
    entry = record(f"{name}_M", field("key", "long"), field("value", inner))
    decimals = {"type": "bytes", "scale": 2, "precision": 4, "logicalType": "decimal"}
    made = registry.by_id(1).text
    assert json.loads(made) == record(
        name,
        field("I", "int"),
        field("A_B", decimals),
        field("M", {"type": "array", "items": entry | {"connect.internal.type": "MapEntry"}}),
    )
    format_of("AVRO", columns[:1], registry, "k", is_key=True, full_name="a.b.C").write((1,))
    assert json.loads(registry.by_id(2).text) == "int"
    format_of("AVRO", columns[:1], registry, "v", full_name="a.b.C").write((1,))
    assert json.loads(registry.by_id(3).text) == record("C", field("I", "int")) | {"namespace": "a.b"}


@pytest.mark.parametrize(
    ("nullable", "text"),
    [
        (None, "message ConnectDefault1 {\n  int32 I = 1;\n  repeated string L = 2;\n}\n"),
        ("OPTIONAL", "message ConnectDefault1 {\n  optional int32 I = 1;\n  repeated string L = 2;\n}\n"),
    ],
)
def test_the_protobuf_schema_is_that_of_ksqldb(nullable: str | None, text: str) -> None:
    columns: Columns = (("I", INTEGER), ("L", Array(STRING)))
    assert protobuf_schema.schema_of(columns, None, nullable) == f'syntax = "proto3";\n\n{text}'
    named = protobuf_schema.schema_of(columns[:1], "a.b.C", "WRAPPER")
    assert named == (
        'syntax = "proto3";\npackage a.b;\n\nimport "google/protobuf/wrappers.proto";\n\n'
        "message C {\n  google.protobuf.Int32Value I = 1;\n}\n"
    )


def test_avro_is_read_and_written_by_other_serializers() -> None:
    registry = remote("avro-rows")
    format_ = format_of("AVRO", COLUMNS, registry)
    client = registry.address.client()
    found = AvroDeserializer(client, conf=CONF)(format_.write(ROW), CONTEXT)
    assert found == {
        **dict(zip([name for name, _ in COLUMNS], ROW, strict=True)),
        "DAY": datetime.date(1970, 1, 4),
        "T": datetime.time(0, 1, 1, 1000),
        "AT": datetime.datetime.fromtimestamp(1234.567, datetime.UTC),
        "M": [{"key": "k", "value": 7}],
        "R": {"X": 2, "Y": {"Z": "z"}},
    }
    schema = registry.latest("t-value")
    assert schema is not None
    data = AvroSerializer(client, schema.text, conf=CONF)(found, CONTEXT)
    assert format_.decode(data) == ROW


def test_json_is_read_and_written_by_other_serializers() -> None:
    registry = remote("json-rows")
    format_ = format_of("JSON_SR", COLUMNS, registry)
    client = registry.address.client()
    # The deserializer checks the data against the schema.
    found = JSONDeserializer(None, conf=CONF, schema_registry_client=client)(format_.write(ROW), CONTEXT)
    assert found["M"] == {"k": 7} and found["D"] == -12.3 and found["R"] == {"X": 2, "Y": {"Z": "z"}}
    schema = registry.latest("t-value")
    assert schema is not None
    assert format_.decode(JSONSerializer(schema.text, client, conf=CONF)(found, CONTEXT)) == ROW


def test_protobuf_is_read_and_written_by_other_serializers() -> None:
    registry = remote("protobuf-rows")
    format_ = format_of("PROTOBUF", COLUMNS, registry)
    data = format_.write(ROW)
    schema = registry.latest("t-value")
    assert schema is not None
    message = protobuf_schema.message_of(protobuf_schema.parsed(schema.text, ()), None)
    kind = GetMessageClass(message)
    found = ProtobufDeserializer(kind, CONF)(data, CONTEXT)
    assert (found.ID, found.S, list(found.L), found.R.Y.Z) == (1, "ä", ["a", "b"], "z")
    assert (found.DAY.day, found.T.minutes, found.AT.seconds, found.D.scale) == (4, 1, 1234, 2)
    client = registry.address.client()
    again = ProtobufSerializer(kind, client, CONF)(found, CONTEXT)
    assert again is not None and again[1:5] != data[1:5]  # Its schema is a descriptor.
    assert format_.read(again) == ROW


def avro(*fields: Any) -> str:
    pairs = [{"name": name, "type": type_} for name, type_ in fields]
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": pairs})


AVRO_TYPES = [
    ("int", "INTEGER"),
    (["null", "float"], "DOUBLE"),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, "STRING"),
    ({"type": "fixed", "name": "x", "size": 4}, "BYTES"),
    ({"type": "fixed", "name": "x", "size": 4, "logicalType": "decimal", "precision": 5}, "DECIMAL(5, 0)"),
    ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
    ({"type": "bytes", "logicalType": "decimal"}, "BYTES"),
    ({"type": "long", "logicalType": "timestamp-micros"}, "BIGINT"),
    ({"type": "string", "logicalType": "uuid"}, "STRING"),
    ({"type": "map", "values": ["null", "int"]}, "MAP<STRING, INTEGER>"),
    ({"type": "array", "items": "bytes"}, "ARRAY<BYTES>"),
    ({"type": "record", "name": "s", "fields": [{"name": "a", "type": "n.s2"}]}, "STRUCT<`A` BOOLEAN>"),
    ("null", None),
    (["int", "string"], "STRUCT<`INT` INTEGER, `STRING` STRING>"),
    (["int"], "STRUCT<`INT` INTEGER>"),
    (
        [
            "null",
            "n.s2",
            {"type": "enum", "name": "m.e", "symbols": ["A"]},
            {"type": "array", "items": "int"},
        ],
        "STRUCT<`BOOLEAN` BOOLEAN, `E` STRING, `ARRAY` ARRAY<INTEGER>>",
    ),
]


@pytest.mark.parametrize(("type_", "told"), AVRO_TYPES)
def test_avro_types(type_: Any, told: str | None) -> None:
    first = {"type": "record", "name": "s2", "fields": [{"name": "q", "type": "int"}]}
    text = avro(("first", first), ("col", type_)).replace('"n.s2"', '"boolean"')
    columns = columns_of_schema(FormatDescription("AVRO"), RegisteredText(1, "AVRO", text), is_key=False)
    assert [text_of(one) for name, one in columns if name == "COL"] == ([] if told is None else [told])


def test_names_and_single_columns_of_avro_schemas() -> None:
    def columns(text: str, is_key: bool = False, **options: Any) -> Columns:
        return columns_of_schema(
            FormatDescription("AVRO", **options), RegisteredText(1, "AVRO", text), is_key=is_key
        )

    record = avro(("a", "int"), ("B", "n.r2")).replace('"n.r2"', '["null","string"]')
    assert columns(record) == (("A", INTEGER), ("B", STRING))
    assert columns(record, schema_id=1) == (("a", INTEGER), ("B", STRING))
    assert columns(record, is_wrapped=False) == (("ROWVAL", Struct((("A", INTEGER), ("B", STRING)))),)
    assert columns(record, is_key=True) == (("ROWKEY", Struct((("A", INTEGER), ("B", STRING)))),)
    assert columns('"long"', is_key=True) == (("ROWKEY", BIGINT),)
    assert columns('"long"', is_wrapped=False) == (("ROWVAL", BIGINT),)
    with pytest.raises(ValueError, match="set 'WRAP_SINGLE_VALUE=false'"):
        columns('"long"')
    with pytest.raises(ValueError, match=r"the record n\.r contains itself"):
        columns(avro(("a", ["null", "r"])))
    with pytest.raises(ValueError, match="does not include any columns"):
        columns(avro(("a", "null")))


@pytest.mark.parametrize(
    ("written", "value", "type_", "expected"),
    [
        ("int", 5, BIGINT, 5),
        ("int", 5, STRING, "5"),
        ("boolean", True, STRING, "true"),
        ("double", 1e10, STRING, "1.0E10"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", STRING, "B"),
        ("float", 1.5, DOUBLE, 1.5),
        ({"type": "map", "values": "int"}, {"a": 1}, Map(STRING, STRING), {"a": "1"}),
        ({"type": "int", "logicalType": "date"}, datetime.date(1970, 1, 3), DATE, 2),
        ("long", 5, INTEGER, "COL: expected INTEGER, and its schema says long"),
        ("string", "5", INTEGER, "COL: expected INTEGER, and its schema says string"),
        ("bytes", b"1", Decimal(4, 2), "COL: expected DECIMAL(4, 2), and its schema says bytes"),
        (["int", "string"], 5, INTEGER, "COL: expected INTEGER, and its schema says union"),
        (["int", "string"], "a", Struct((("STRING", STRING), ("INT", INTEGER))), ("a", None)),
        (["null", "int", "string"], None, Struct((("INT", INTEGER),)), None),
    ],
)
def test_avro_of_others_is_read_by_the_types_of_columns(
    written: Any, value: Any, type_: SqlType, expected: Any
) -> None:
    registry = remote("avro-types")
    schema = avro(("other", "int"), ("col", written))
    serialize = AvroSerializer(registry.address.client(), schema, conf=CONF)
    data = serialize({"other": 1, "col": value}, CONTEXT)
    format_ = format_of("AVRO", (("COL", type_), ("MISSING", INTEGER)), registry)
    try:
        found: Any = format_.decode(data)[0]
    except FormatError as error:
        found = str(error).partition(" is not AVRO: ")[2]
    assert (type(found), found) == (type(expected), expected)


def test_schemas_that_refer_to_others_are_registered_with_them() -> None:
    registry = remote("references")
    inner = json.dumps({"type": "record", "name": "n.inner", "fields": [{"name": "a", "type": "int"}]})
    middle = json.dumps({"type": "record", "name": "n.mid", "fields": [{"name": "i", "type": "n.inner"}]})
    references = (("n.inner", inner), ("n.mid", middle))
    text = avro(("m", "n.mid"), ("i", "n.inner"))
    number = registry.register("t-value", "AVRO", text, references)
    assert registry.register("t-value", "AVRO", text, references) == number
    found = registry.latest("t-value")
    assert found is not None and (found.id, found.references) == (number, references)
    inside = Struct((("A", INTEGER),))
    columns: Columns = (("M", Struct((("I", inside),))), ("I", inside))
    assert columns_of_schema(FormatDescription("AVRO"), found, is_key=False) == columns
    file = 'syntax = "proto3"; message Z { int32 z = 1; }'
    text = 'syntax = "proto3"; import "z.proto"; message M { Z r = 1; }'
    registry.register("p-value", "PROTOBUF", text, (("z.proto", file),))
    found = registry.latest("p-value")
    assert found is not None
    columns = (("R", Struct((("Z", INTEGER),))),)
    assert columns_of_schema(FormatDescription("PROTOBUF"), found, is_key=False) == columns


def test_the_types_of_a_union_are_written_by_the_fields_of_a_struct() -> None:
    registry = MemoryRegistry()
    record = {"type": "record", "name": "s", "fields": [{"name": "a", "type": "int"}]}
    union = ["null", "int", "long", {**record, "name": "m.s1"}, {**record, "name": "m.s2"}]
    registry.register("other", "AVRO", avro(("u", union)), id=1)
    registry.register("other", "AVRO", avro(("u", union[1:])), id=2)
    inner = Struct((("a", INTEGER),))
    column = Struct((("int", INTEGER), ("long", BIGINT), ("s1", inner), ("s2", inner)))
    format_ = format_of("AVRO", (("u", column),), registry, schema_id=1)
    rows = [((5, None, None, None),), ((None, 5, None, None),), ((None, None, None, (5,)),), (None,)]
    written = [format_.write(row)[5:] for row in rows]
    assert written == [b"\x02\x0a", b"\x04\x0a", b"\x08\x0a", b"\0"]
    assert [format_.read(format_.write(row)) for row in rows] == rows
    needed = format_of("AVRO", (("u", column),), registry, schema_id=2)
    for row, reason in (((None,), "u is null"), (((None, None, None, None),), "no field has a value")):
        with pytest.raises(FormatError, match=reason):
            needed.encode(row)
    twice = avro(("u", ["int", {**record, "name": "m.s"}, {**record, "name": "n.s"}]), ("v", "int"))
    found = columns_of_schema(FormatDescription("AVRO"), RegisteredText(3, "AVRO", twice), is_key=False)
    assert found == (("V", INTEGER),)


def test_keys_of_maps_that_are_numbers_are_texts() -> None:
    registry = MemoryRegistry()
    entry = {"type": "record", "name": "MapEntry", "namespace": "io.confluent.connect.avro"}
    fields = [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}]
    registry.register(
        "other", "AVRO", avro(("m", {"type": "array", "items": {**entry, "fields": fields}})), id=1
    )
    format_ = format_of("AVRO", (("M", Map(STRING, STRING)),), registry, schema_id=1)
    assert format_.read(format_.write(({"5": "x"},))) == ({"5": "x"},)
    with pytest.raises(FormatError):
        format_.encode(({"x": "x"},))


def test_a_column_with_small_letters_has_only_the_field_of_its_own_name() -> None:
    registry = MemoryRegistry()
    registry.register("other", "AVRO", avro(("a", "int"), ("B", "int")))
    format_ = format_of("AVRO", (("A", INTEGER), ("a", INTEGER), ("b", INTEGER), ("B", INTEGER)), registry)
    assert format_.read(b"\0\0\0\0\1\2\4") == (1, 1, None, 2)


@pytest.mark.parametrize("node", [True, {"type": "integer"}])
def test_a_result_lacks_a_property_that_its_schema_requires(node: object) -> None:
    registry = MemoryRegistry()
    schema = {"type": "object", "properties": {"A": {"type": "integer"}, "B": node}, "required": ["B"]}
    registry.register("other", "JSON", json.dumps(schema), id=1)
    format_ = format_of("JSON_SR", (("A", INTEGER),), registry, schema_id=1)
    assert isinstance(format_, SchemaFormat)
    with pytest.raises(ValueError, match="Missing default value for required field"):
        format_.register()


def test_a_schema_by_its_id_decides_what_is_written() -> None:
    registry = MemoryRegistry()
    text = avro(("id", "int"), ("more", {"type": "map", "values": "long"})).replace(
        '"type": {"type": "map"', '"default": {}, "type": {"type": "map"'
    )
    registry.register("other", "AVRO", text, id=42)
    format_ = format_of("AVRO", (("ID", INTEGER),), registry, schema_id=42)
    assert format_.write((7,)) == b"\0\0\0\0\x2a\x0e\0" and format_.read(format_.write((7,))) == (7,)
    with pytest.raises(FormatError, match="ID is null, which the schema does not allow"):
        format_.encode((None,))
    with pytest.raises(OutsideError, match="the schema has no field for NAME"):
        format_of("AVRO", (("NAME", STRING),), registry, schema_id=42).write(("a",))
    maps = '{"type": "map", "values": ["null", {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal",'
    registry.register("other", "AVRO", f'{maps} "precision": 5, "scale": 1}}]}}', id=44)
    column: Columns = (("M", Map(STRING, Decimal(4, 1))),)
    format_ = format_of("AVRO", column, registry, schema_id=44, is_wrapped=False)
    row = ({"a": decimal.Decimal("-1.5"), "b": None},)
    assert (
        format_.read(format_.write(row)) == row and format_.write(row)[5:].hex() == "04026102fffffff102620000"
    )
    with pytest.raises(OutsideError, match="the value is MAP<INTEGER, STRING>, and the schema says map"):
        format_of("AVRO", (("M", Map(INTEGER, STRING)),), registry, schema_id=44, is_wrapped=False).write(
            ({},)
        )
    with pytest.raises(OutsideError, match="the schema 44 is of type AVRO; expected PROTOBUF"):
        format_of("PROTOBUF", (("ID", INTEGER),), registry, schema_id=44).write((1,))
    with pytest.raises(OutsideError, match="has no schema with the id 43"):
        format_of("AVRO", (("ID", INTEGER),), registry, schema_id=43).write((1,))
    proto = 'syntax = "proto3"; message A { int32 x = 1; } message B { message C { int32 id = 3; } }'
    registry.register("other", "PROTOBUF", proto, id=50)
    nested = format_of("PROTOBUF", (("ID", INTEGER),), registry, schema_id=50, full_name="B.C")
    assert nested.write((1,)) == b"\0\0\0\0\x32\x04\x02\0\x18\x01"
    assert nested.read(nested.write((1,))) == (1,)


PROTO = """
syntax = "proto3";
package shop;
import 'google/protobuf/wrappers.proto';
import "google/type/Date.proto"; // a comment
import "confluent/type/decimal.proto";
option java_package = "x.y";
/* message No {} */
message Order {
  option deprecated = true;
  enum State { option allow_alias = true; NEW = 0; OLD = 1; ALSO_OLD = 1; reserved 5 to 9; LOST = -1; }
  reserved 100 to max; reserved "gone";
  int32 id = 1; uint32 u = 2 [deprecated = true]; fixed64 f64 = 3; sint64 s64 = 4; float f = 5;
  State state = 6;
  optional string note = 7;
  oneof pay { string card = 8; Cash cash = 9; }
  message Cash { int64 cents = 1; }
  map<string, Cash> by_name = 10;
  map<int32, string> by_number = 11;
  repeated .shop.Order.Cash list = 12;
  google.protobuf.StringValue wrapped = 13;
  google.type.Date day = 14;
  confluent.type.Decimal price = 15 [(confluent.field_meta) = {params: [{value: "7", key: "precision"},
    {key: "scale" value: "3"}]}, deprecated = false];
  bytes message = 16;
  Tree tree = 17;
}
message Tree { int32 leaf = 1; }
service Nothing { rpc Do (Order) returns (Tree) {} }
"""


def test_protobuf_types() -> None:
    schema = RegisteredText(1, "PROTOBUF", PROTO)
    columns = columns_of_schema(FormatDescription("PROTOBUF"), schema, is_key=False)
    cash = "STRUCT<`CENTS` BIGINT>"
    assert {name: text_of(type_) for name, type_ in columns} == {
        "PAY_0": f"STRUCT<`CARD` STRING, `CASH` {cash}>",
        "ID": "INTEGER",
        **dict.fromkeys(("U", "F64", "S64"), "BIGINT"),
        "F": "DOUBLE",
        **dict.fromkeys(("STATE", "NOTE"), "STRING"),
        "WRAPPED": "STRUCT<`VALUE` STRING>",
        "BY_NAME": f"MAP<STRING, {cash}>",
        "BY_NUMBER": "MAP<STRING, STRING>",
        "LIST": f"ARRAY<{cash}>",
        "DAY": "DATE",
        "PRICE": "DECIMAL(7, 3)",
        "MESSAGE": "BYTES",
        "TREE": "STRUCT<`LEAF` INTEGER>",
    }
    unwrapped = columns_of_schema(FormatDescription("PROTOBUF", nullable="WRAPPER"), schema, is_key=False)
    assert dict(unwrapped)["WRAPPED"] == STRING
    named = FormatDescription("PROTOBUF", full_name="shop.Order.Cash")
    assert columns_of_schema(named, schema, is_key=False) == (("CENTS", BIGINT),)
    with pytest.raises(ValueError, match=r"no message shop\.No"):
        columns_of_schema(FormatDescription("PROTOBUF", full_name="shop.No"), schema, is_key=False)
    again = RegisteredText(1, "PROTOBUF", 'syntax = "proto3"; message A { A a = 1; }')
    with pytest.raises(ValueError, match="the message A contains itself"):
        columns_of_schema(FormatDescription("PROTOBUF"), again, is_key=False)


def test_protobuf_of_others_is_read_by_the_types_of_columns() -> None:
    registry = MemoryRegistry()
    registry.register("other", "PROTOBUF", PROTO)
    message = protobuf_schema.message_of(protobuf_schema.parsed(PROTO, ()), None)
    made = GetMessageClass(message)(
        id=3, u=(1 << 32) - 1, f64=(1 << 64) - 1, state=1, by_number={1: "a"}, cash={"cents": 5}
    )
    made.by_name["x"].cents = 9
    made.price.value, made.price.scale = b"\xff", 3
    columns: Columns = (
        *(("ID", STRING), ("U", BIGINT), ("F64", BIGINT), ("STATE", STRING), ("NOTE", STRING)),
        *(("BY_NUMBER", Map(STRING, STRING)), ("BY_NAME", Map(STRING, Struct((("CENTS", BIGINT),))))),
        *(
            ("PAY_0", Struct((("CARD", STRING), ("CASH", Struct((("CENTS", BIGINT),)))))),
            ("PRICE", Decimal(7, 3)),
        ),
        *(("TREE", Struct((("LEAF", INTEGER),))), ("WRAPPED", STRING), ("NOWHERE", DOUBLE)),
    )
    format_ = format_of("PROTOBUF", columns, registry)
    assert format_.read(b"\0\0\0\0\1\0" + made.SerializeToString()) == (
        *("3", (1 << 32) - 1, -1, "OLD", None, {"1": "a"}, {"x": (9,)}),
        *((None, (5,)), decimal.Decimal("-0.001"), None, None, None),
    )
    wrong = format_of("PROTOBUF", (("TREE", INTEGER),), registry)
    for data, reason in (
        (b"\0\0\0\0\1\0", "TREE: expected INTEGER, and its schema has a field of another type"),
        (b"\0\0\0\0\1\x02\x0e", "message index 7 does not exist"),
        (b"\1", "does not begin with 0"),
        (b"\0\0\0\0\7\0", "no schema with the id 7"),
    ):
        with pytest.raises(FormatError, match=reason):
            wrong.decode(data)


def test_enums_and_oneofs_are_written_to_the_schema_of_an_id() -> None:
    registry = MemoryRegistry()
    registry.register("other", "PROTOBUF", PROTO, id=9)
    pay = Struct((("CARD", STRING), ("CASH", Struct((("CENTS", BIGINT),)))))
    columns: Columns = (("STATE", STRING), ("U", BIGINT), ("PAY_0", pay))
    format_ = format_of("PROTOBUF", columns, registry, schema_id=9)
    for row in (("LOST", 7, (None, (5,))), ("NEW", 0, ("x", None)), ("OLD", 1, None)):
        assert format_.read(format_.write(row)) == row
    assert format_.read(format_.write(("NEW", 0, ("x", (5,))))) == ("NEW", 0, ("x", None))
    with pytest.raises(FormatError):
        format_.encode(("NO STATE", 1, None))
    with pytest.raises(OutsideError, match="no field for BY_NUMBER"):
        format_of("PROTOBUF", (("BY_NUMBER", INTEGER),), registry, schema_id=9).write((1,))


def test_protobuf_without_null() -> None:
    columns: Columns = (
        ("I", INTEGER),
        ("S", STRING),
        ("L", Array(INTEGER)),
        ("R", Struct((("X", INTEGER),))),
    )
    format_ = format_of("PROTOBUF", columns, MemoryRegistry())
    assert format_.read(format_.write((None, None, None, None))) == (0, "", [], None)
    assert format_.read(format_.write((1, "a", [0], (None,)))) == (1, "a", [0], (0,))
    with pytest.raises(FormatError, match="L contains null, which an ARRAY cannot"):
        format_.encode((1, "a", [None], None))


def compiled(text: str, folder: Path) -> FileDescriptorProto:
    """The file as protoc makes it."""
    (folder / "a.proto").write_text(text)
    google = Path(protoc.__file__).parent / "_proto"
    assert not protoc.main(
        ["", f"-I{folder}", f"-I{google}", f"--descriptor_set_out={folder / 'out'}", str(folder / "a.proto")]
    )
    return FileDescriptorSet.FromString((folder / "out").read_bytes()).file[0]


def resolved(file: FileDescriptorProto) -> str:
    """What a file says, with full names of types, and without options of its own."""
    file.name = "a.proto"
    pool = new_pool()
    pool.Add(file)
    found = FileDescriptorProto()
    pool.FindFileByName("a.proto").CopyToProto(found)
    found.ClearField("options")
    del found.service[:]

    def plain(message: Any) -> None:
        message.ClearField("reserved_range"), message.ClearField("reserved_name")
        if not message.options.map_entry:
            message.ClearField("options")
        for field in message.field:
            field.ClearField("options"), field.ClearField("json_name")
        for enum in message.enum_type:
            enum.ClearField("reserved_range")
        for one in message.nested_type:
            plain(one)

    for message in found.message_type:
        plain(message)
    return str(found)


def test_texts_are_read_as_protoc_reads_them(tmp_path: Path) -> None:
    lines = [line for line in PROTO.splitlines() if "google/type" not in line and "confluent" not in line]
    text = "\n".join(line for line in lines if " day = " not in line and "scale" not in line)
    assert resolved(file_of_text(text, "a.proto")) == resolved(compiled(text, tmp_path))
    old = 'syntax = "proto2"; message A { required int32 a = 1; optional string b = 2 [default = "x;"]; }'
    assert "TYPE_INT32" in (told := resolved(file_of_text(old, "a.proto"))) and "LABEL_REQUIRED" in told


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message A { int32 a = 1;", "ends too early"),
        ("message A { int32 a 1; }", "expected '=' in the .proto text, and got '1'"),
        ("message A { int32 a = x; }", "expected a number"),
        ("massage A {}", "has 'massage' where a definition is expected"),
        ('message A { int32 a = 1 [x = "', "cannot be read"),
        ("message A {" * 40 + "}" * 40, "levels deep"),
    ],
)
def test_texts_that_are_no_proto_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        file_of_text(f'syntax = "proto3"; {text}', "a.proto")


JSON_NODES = [
    ({"type": "integer"}, "BIGINT"),
    ({"type": ["null", "number"]}, "DOUBLE"),
    ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/s"}]}, "STRUCT<`Q` STRING>"),
    ({"$ref": "other#/a~1b"}, "BOOLEAN"),
    ({"type": "string", "enum": ["a"]}, "STRING"),
    ({"type": "array", "items": {"type": "integer", "connect.type": "int16"}}, "ARRAY<INTEGER>"),
    (
        {
            "type": "array",
            "connect.type": "map",
            "items": {"properties": {"key": {}, "value": {"type": "boolean"}}},
        },
        "MAP<STRING, BOOLEAN>",
    ),
    ({"type": "number", "title": "org.apache.kafka.connect.data.Decimal"}, "DECIMAL(64, 0)"),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, None),
    ({"type": "object"}, None),
    (True, None),
]


@pytest.mark.parametrize(("node", "told"), JSON_NODES)
def test_types_of_json_schemas(node: Any, told: str | None) -> None:
    defs = {"s": {"type": "object", "properties": {"q": {"type": "string"}}}}
    root = {"type": "object", "$defs": defs, "properties": {"c": node, "d": {"type": "string"}}}
    schema = RegisteredText(1, "JSON", json.dumps(root), (("other", '{"a/b": {"type": "boolean"}}'),))
    columns = columns_of_schema(FormatDescription("JSON_SR"), schema, is_key=False)
    assert [(name, text_of(type_)) for name, type_ in columns if name == "C"] == (
        [] if told is None else [("C", told)]
    )


@pytest.mark.parametrize("name", [*KINDS, "PROTOBUF_NOSR"])
def test_data_that_ends_too_early_is_refused(name: str) -> None:
    format_ = format_of(name, COLUMNS, MemoryRegistry())
    with pytest.raises(FormatError, match=f"is not {name}: "):
        format_.decode(format_.write(ROW)[:-1])


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("AVRO", '{"type": "record"', "delimiter"),
        (
            "AVRO",
            '{"type": "array", "items": "unknown"}',
            "cannot be used: the Avro schema has the type",
        ),
        (
            "JSON_SR",
            '{"properties": {"a": {"$ref": "#/$defs/no"}}}',
            "refers to #/\\$defs/no, which is not in it",
        ),
        (
            "JSON_SR",
            '{"properties": {"a": {"$ref": "other"}}}',
            "refers to other, which is not one of its references",
        ),
        (
            "PROTOBUF",
            'syntax = "proto3"; message A { Unknown a = 1; }',
            "the Protobuf schema is not complete",
        ),
        ("PROTOBUF", 'syntax = "proto3"; enum A { B = 0; } ;', "has no message at all"),
        (
            "PROTOBUF",
            'syntax = "proto3"; message A { message B {} B b = 1; }',
            "does not include any columns",
        ),
        ("JSON", "{}", "the format JSON has no schemas in a registry"),
    ],
)
def test_schemas_that_cannot_be_used(name: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        columns_of_schema(
            FormatDescription(name), RegisteredText(1, KINDS.get(name, name), text), is_key=False
        )


def test_a_json_schema_names_the_places_of_its_properties() -> None:
    root = {
        "properties": {
            "b": {"type": "string", "connect.index": 1},
            "a": {"type": "string", "connect.index": 0},
        }
    }
    schema = RegisteredText(1, "JSON", json.dumps(root))
    assert columns_of_schema(FormatDescription("JSON_SR"), schema, is_key=False) == (
        ("A", STRING),
        ("B", STRING),
    )
    damaged = RegisteredText(7, "JSON", '{"properties": {"a": {"$ref": 5}}}')
    with pytest.raises(ValueError, match="the schema 7 is damaged"):
        columns_of_schema(FormatDescription("JSON_SR"), damaged, is_key=False)
    loop = RegisteredText(1, "JSON", '{"properties": {"a": {"$ref": "#"}}}')
    with pytest.raises(ValueError, match="the schema # contains itself"):
        columns_of_schema(FormatDescription("JSON_SR"), loop, is_key=False)


def test_a_subject_of_a_registry_in_memory_is_forgotten() -> None:
    registry = MemoryRegistry()
    id = registry.register("f-value", "AVRO", '"int"')
    for _ in range(2):
        registry.forget("f-value")
        assert registry.latest("f-value") is None
    assert registry.by_id(id).text == '"int"'


@pytest.mark.parametrize(
    ("code", "refused"), [(None, False), (40401, False), (40404, False), (50001, True)], ids=str
)
def test_a_subject_of_a_remote_registry_is_forgotten(
    code: int | None, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is gone already is no failure."""
    asked = []

    class Client:
        def delete_subject(self, subject: str) -> None:
            asked.append(subject)
            if code is not None:
                raise SchemaRegistryError(code // 100, code, "no")

    monkeypatch.setattr(RegistryAddress, "client", lambda self: Client())
    with pytest.raises(OutsideError, match="refuses") if refused else nullcontext():
        remote("forgotten").forget("f-value")
    assert asked == ["f-value"]
