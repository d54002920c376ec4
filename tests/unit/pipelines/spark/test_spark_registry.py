"""Schemas as types of Spark, and values there and back, without a session of Spark."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from felice.client.schema_registry import Schema, SchemaReference
from felice.client.schema_registry.protobuf import ProtobufSerializer
from felice.pipelines.errors import OutsideError
from felice.pipelines.registry_clients import RegistryAddress
from felice.pipelines.spark.mistakes import QueryError
from felice.pipelines.spark.registry.columns import _Reading, _registered, _target, _Writing
from felice.pipelines.spark.registry.target import Target
from felice.spark import from_registry, to_registry
from unit.client.schema_registry.protobuf_types import kind

MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
INNER = {"type": "record", "name": "n.Inner", "fields": [{"name": "x", "type": "int"}]}


@pytest.fixture
def registry() -> RegistryAddress:
    """An empty registry in memory."""
    return RegistryAddress.of(f"mock://{uuid.uuid4()}")


def target_of(registry: RegistryAddress, schema: Any, schema_type: str = "AVRO") -> Target:
    registry.client().register_schema("s", Schema(json.dumps(schema), schema_type))
    return Target.of(registry, "s", None, "")


def there_and_back(target: Target, *values: Any) -> pa.Array:
    """What is read of what is written. Checks that nothing differs in Arrow."""
    given = pa.array(values, to_arrow_type(target.coder().mapped.type, timezone="UTC"))
    found = _Reading(target, "FAILFAST").column(_Writing(target).column(given))
    assert found == given
    return found


@pytest.mark.parametrize(
    ("schema", "name", "values"),
    [
        ("boolean", "boolean", [True, False]),
        ("int", "int", [-(1 << 31), (1 << 31) - 1]),
        ("long", "bigint", [-(1 << 63), (1 << 63) - 1]),
        ("float", "float", [1.5]),
        ("double", "double", [1.1]),
        ("bytes", "binary", [b"", b"x"]),
        ("string", "string", ["", "ü"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", ["A", "B"]),
        ({"type": "fixed", "name": "F", "size": 2}, "binary", [b"ab"]),
        ({"type": "map", "values": ["null", "long"]}, "map<string,bigint>", [[("k", 3), ("l", None)], []]),
        ({"type": "array", "items": ["null", INNER]}, "array<struct<x:int>>", [[{"x": 1}, None], []]),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            "decimal(10,2)",
            [decimal.Decimal("-1.25")],
        ),
        ({"type": "int", "logicalType": "date"}, "date", [datetime.date(1960, 1, 2)]),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp", [MOMENT]),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp", [MOMENT.replace(microsecond=1)]),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            "timestamp_ntz",
            [MOMENT.replace(tzinfo=None)],
        ),
        ({"type": "int", "logicalType": "time-millis"}, "int", [86_399_999]),
        ({"type": "long", "logicalType": "time-micros"}, "bigint", [86_399_999_999]),
        ({"type": "string", "logicalType": "uuid"}, "string", [str(uuid.UUID(int=5))]),
    ],
    ids=str,
)
def test_each_type_of_avro(registry: RegistryAddress, schema: Any, name: str, values: list[Any]) -> None:
    fields = [{"name": "one", "type": schema}]
    target = target_of(registry, {"type": "record", "name": "n.Row", "fields": fields})
    assert target.coder().mapped.type.simpleString() == f"struct<one:{name}>"
    there_and_back(target, *({"one": value} for value in values), None)


@pytest.mark.parametrize(
    ("branches", "name", "values"),
    [
        (["null", "int"], "int", [5, None]),
        (["int", "null", "long"], "bigint", [5, None, 5_000_000_000]),
        (["float", "double"], "double", [1.1, 1e300]),
        (["null", INNER], "struct<x:int>", [{"x": 1}, None]),
        (
            [
                "null",
                "string",
                "long",
                INNER,
                {"type": "array", "items": "n.Inner"},
                {"type": "map", "values": "int"},
            ],
            "struct<member0:string,member1:bigint,member2:struct<x:int>,member3:array<struct<x:int>>,"
            "member4:map<string,int>>",
            [
                {"member0": "a"},
                {"member1": 7},
                {"member2": {"x": 1}},
                {"member3": [{"x": 2}]},
                {"member4": [("k", 1)]},
                None,
            ],
        ),
    ],
    ids=str,
)
def test_unions(registry: RegistryAddress, branches: list[Any], name: str, values: list[Any]) -> None:
    fields = [{"name": "one", "type": branches}]
    target = target_of(registry, {"type": "record", "name": "n.Row", "fields": fields})
    assert target.coder().mapped.type.simpleString() == f"struct<one:{name}>"
    there_and_back(target, *({"one": value} for value in values))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]},
            "the schema at next has no type in Spark: T contains itself",
        ),
        (
            {
                "type": "record",
                "name": "U",
                "fields": [
                    {"name": "u", "type": ["string", {"type": "enum", "name": "E", "symbols": ["A"]}]}
                ],
            },
            "the branches string and E of a union cannot be told apart",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "a decimal of 39 digits"),
    ],
)
def test_schemas_that_spark_cannot_have(registry: RegistryAddress, schema: Any, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        target_of(registry, schema).coder()


def test_types_of_json_schema(registry: RegistryAddress) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    schema = {
        "type": "object",
        "required": ["d"],
        "definitions": {"P": point},
        "properties": {
            "d": {"type": "integer"},
            "n": {"type": ["null", "number"]},
            "o": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {},
            "p": {"$ref": "#/definitions/P"},
            "l": {"type": "array", "items": {"$ref": "#/definitions/P"}},
            "one": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        },
    }
    target = target_of(registry, schema, "JSON")
    assert target.coder().mapped.type.simpleString() == (
        "struct<d:bigint,n:double,o:map<string,string>,any:string,p:struct<x:double>,l:array<struct<x:double>>,one:boolean>"
    )
    row = {
        "d": 1,
        "n": 2.0,
        "o": [("a", "b")],
        "any": '{"y":[1]}',
        "p": {"x": 1.0},
        "l": [{"x": 2.0}],
        "one": True,
    }
    there_and_back(target, row, None)
    loop = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    with pytest.raises(QueryError, match=r"at next.next has no type in Spark: # contains itself"):
        target_of(registry, loop, "JSON").coder()


def test_json_that_is_not_of_its_schema_is_poison(registry: RegistryAddress) -> None:
    schema = {"type": "object", "properties": {"d": {"type": "integer"}, "l": {"type": "array"}}}
    target = target_of(registry, schema, "JSON")
    data = pa.array([b'\0\0\0\0\1{"d": 1}', b'\0\0\0\0\1{"d": "x"}', b'\0\0\0\0\1{"l": 7}', b"\0\0\0\0\1[1]"])
    found = _Reading(target, "CAPTURE").column(data, *(pa.array([name] * 4) for name in ("t", 0, 9)))
    assert [row["value"] for row in found.to_pylist()] == [{"d": 1, "l": None}, None, None, None]
    assert all("t-0 at offset 9 cannot be read" in row["error"] for row in found.to_pylist()[1:])


def test_messages_of_protobuf(registry: RegistryAddress) -> None:
    person, client = kind("shop.Person"), registry.client()
    serialize = ProtobufSerializer(person, client, {"subject.name.strategy": lambda context, name: "s"})
    data = serialize(person(name="Ann", debt={"cents": -5, "due": {"year": 2020}}))
    target = Target.of(registry, "s", None, "shop.Person")
    assert target.coder().mapped.type.simpleString() == (
        "struct<name:string,debt:struct<cents:bigint,due:struct<year:int,month:int,day:int>>>"
    )
    found = _Reading(target, "FAILFAST").column(pa.array([data, None]))
    assert found.to_pylist() == [
        {"name": "Ann", "debt": {"cents": -5, "due": {"year": 2020, "month": 0, "day": 0}}},
        None,
    ]
    there_and_back(target, *found.to_pylist())
    there_and_back(target, {"name": "", "debt": None})
    with pytest.raises(QueryError, match="no message shop.Nobody; it has shop.Person"):
        Target.of(registry, "s", None, "shop.Nobody").coder()
    order = kind("shop.Order")
    serialize = ProtobufSerializer(order, client, {"subject.name.strategy": lambda context, name: "o"})
    message = order(id=7, lines=[{"price": {"cents": 5}}, {}])
    message.at.FromDatetime(MOMENT)
    data = serialize(message)
    target = Target.of(registry, "o", None, "")
    [row] = _Reading(target, "FAILFAST").column(pa.array([data])).to_pylist()
    assert (row["id"], row["at"], len(row["lines"]), row["buyer"]) == (7, MOMENT, 2, None)
    there_and_back(target, row)
    with pytest.raises(QueryError, match="it is a shop.Order, not a shop.Person"):
        _Reading(Target.of(registry, "s", None, ""), "FAILFAST").column(pa.array([data]))


def test_values_of_other_versions_become_values_of_this_one(registry: RegistryAddress) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}],
    }
    first = target_of(registry, old)
    written = _Writing(first).column(pa.array([{"a": 1}]))
    second = target_of(registry, new)
    both = pa.concat_arrays([written, _Writing(second).column(pa.array([{"a": 5_000, "b": "x"}]))])
    assert _Reading(second, "FAILFAST").column(both).to_pylist() == [
        {"a": 1, "b": "-"},
        {"a": 5_000, "b": "x"},
    ]
    pinned = Target.of(registry, "s", 1, "")
    assert pinned.coder().mapped.type.simpleString() == "struct<a:int>"


def test_a_schema_that_is_given_is_the_one_that_is_written(registry: RegistryAddress) -> None:
    fields = [{"name": "a", "type": "int"}]
    first = json.dumps({"type": "record", "name": "R", "fields": fields})
    fields.append({"name": "b", "type": "int", "default": 0})
    assert _registered(registry, "s", first) == 1
    assert _registered(registry, "s", json.dumps({"type": "record", "name": "R", "fields": fields})) == 2
    assert _registered(registry, "s", first) == 1
    with pytest.raises(QueryError, match="a schema to register, or a version of the subject, not both"):
        to_registry("value", "http://127.0.0.1:1", "s", schema=first, version=2)


def test_references_are_followed(registry: RegistryAddress) -> None:
    client = registry.client()
    client.register_schema("inner", Schema(json.dumps(INNER), "AVRO"))
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "in", "type": "n.Inner"}]})
    client.register_schema("s", Schema(text, "AVRO", [SchemaReference("n.Inner", "inner", 1)]))
    there_and_back(Target.of(registry, "s", None, ""), {"in": {"x": 1}})


def test_poison_is_named(registry: RegistryAddress) -> None:
    target = target_of(registry, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    good = _Writing(target).column(pa.array([{"a": "x"}]))[0].as_py()
    data = pa.array([good, b"plain", None, b"\0\0\0\0\x63x", good[:-1]])
    where = pa.array(["orders"] * 5), pa.array([3] * 5), pa.array([10, 11, 12, 13, 14])
    with pytest.raises(
        QueryError, match="^the value of orders-3 at offset 11 cannot be read: the data begins"
    ):
        _Reading(target, "FAILFAST").column(data, *where)
    with pytest.raises(QueryError, match="^the value cannot be read"):
        _Reading(target, "FAILFAST").column(data)
    rows = _Reading(target, "PERMISSIVE").column(data, *where).to_pylist()
    assert rows == [{"a": "x"}, None, None, None, None]
    rows = _Reading(target, "CAPTURE").column(data, *where).to_pylist()
    assert [row["value"] for row in rows] == [{"a": "x"}, None, None, None, None]
    assert [row["error"] is None for row in rows] == [True, False, True, False, False]
    assert "orders-3 at offset 13 cannot be read: the registry at mock://" in rows[3]["error"]


def test_values_that_do_not_match_are_refused(registry: RegistryAddress) -> None:
    target = target_of(registry, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    with pytest.raises(QueryError, match="{'a': 5} cannot be written with the schema"):
        _Writing(target).column(pa.array([{"a": 5}]))
    with pytest.raises(QueryError, match="cannot be written with the schema"):
        _Writing(target).column(pa.array([7]))


@pytest.mark.parametrize(
    ("kind", "row", "why"),
    [
        ("AVRO", {"a": 1.5}, "the field a: 1.5 is no whole number"),
        ("AVRO", {"a": 1, "b": "x"}, "the field b: 'x' would be lost"),
        ("JSON", {"a": float("nan")}, "the field a: nan is no number of JSON"),
    ],
)
def test_values_that_would_change_are_refused(
    registry: RegistryAddress, kind: str, row: dict[str, Any], why: str
) -> None:
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    target = target_of(registry, avro if kind == "AVRO" else {"properties": {"a": {"type": "number"}}}, kind)
    with pytest.raises(QueryError, match=f"cannot be written with the schema: {why}"):
        _Writing(target).column(pa.array([row]))


def test_an_outage_ends_the_query_in_every_mode(
    registry: RegistryAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(registry, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    target.coder()

    def down(*arguments: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(registry.client(), "get_schema", down)
    for mode in ("FAILFAST", "PERMISSIVE", "CAPTURE"):
        with pytest.raises(QueryError, match="does not answer"):
            _Reading(target, mode).column(pa.array([b"\0\0\0\0\x07x"]))


def test_mistakes_of_a_query(registry: RegistryAddress) -> None:
    url = "http://127.0.0.1:1"
    with pytest.raises(QueryError, match="mode must be one of CAPTURE, FAILFAST, PERMISSIVE, not 'lax'"):
        from_registry("value", url, "s", mode="lax")
    with pytest.raises(
        QueryError, match="of the subject nothing cannot be used: .*Subject 'nothing' not found"
    ):
        _target(registry, "nothing", None, "")
    for column in (from_registry, to_registry):
        with pytest.raises(QueryError, match=f"the registry {registry.url} is in the memory of one process"):
            column("value", registry.url, "s")
    with pytest.raises(QueryError, match="url must begin with http://"):
        to_registry("value", "ftp://x", "s")
    nowhere = {"url": "http://ann:hidden@127.0.0.1:1", "max.retries": 0}
    with pytest.raises(QueryError, match="http://127.0.0.1:1 does not answer") as found:
        from_registry("value", nowhere, "s")
    assert "hidden" not in str(found.value)
    assert issubclass(OutsideError, Exception)
