"""Which texts are Avro schemas, and what is wrong with the others."""

from __future__ import annotations

import json

import pytest

from felice.registry.formats import FORMATS, REGISTERED_FORMATS
from felice.registry.formats.avro import parse
from felice.registry.formats.schema import InvalidSchema
from unit.registry.formats.avro.schemas import Json, array, enum, field, fixed, parsed, record

INVALID: list[tuple[Json, str]] = [
    (5, "Schema not yet supported: 5"),
    ({}, "No type: {}"),
    ({"type": {"type": "string"}}, 'No type: {"type":{"type":"string"}}'),
    ("Unknown", "Undefined schema: Unknown"),
    ({"type": "Unknown"}, "Undefined schema: Unknown"),
    (record("R", field("f", "x.Y")), "Undefined schema: x.Y"),
    (record("x.R", field("f", "Y")), "Undefined schema: x.Y"),
    ({"type": "record", "fields": []}, 'No name in schema: {"type":"record","fields":[]}'),
    ({"type": "record", "name": "R"}, 'Record has no fields: {"type":"record","name":"R"}'),
    (record("R", 1), "No field name: 1"),
    (record("R", {"type": "int"}), 'No field name: {"type":"int"}'),
    (record("R", {"name": "f"}), 'No field type: {"name":"f"}'),
    (record("R", field("f", "int"), field("f", "int")), "Duplicate field f in record R"),
    (record("R", field("f", "int", order="up")), 'Invalid order of a field: "up"'),
    (record("R", field("1f", "int")), "Illegal initial character: 1f"),
    (record("R", field("f-g", "int")), "Illegal character in: f-g"),
    (record("R", field("", "int")), "Empty name"),
    (record("😀"), "Illegal initial character: 😀"),
    (record("a-b.R"), 'Namespace part "a-b" is invalid: Illegal character in: a-b'),
    (record("R", namespace="a..b"), 'Namespace part "" is invalid: Empty name'),
    (record("int"), "Schemas may not be named after primitives: int"),
    (record("R", aliases="A"), "aliases not an array"),
    (record("R", aliases=[1]), "alias not a string: 1"),
    (record("R", aliases=["a b"]), "Illegal character in: a b"),
    ({"type": "enum", "name": "E"}, 'Enum has no symbols: {"type":"enum","name":"E"}'),
    (enum("E", "AA"), "Duplicate enum symbol: A"),
    (enum("E", "AB", default="C"), "The Enum Default: C is not in the enum symbol set: [A, B]"),
    ({"type": "enum", "name": "E", "symbols": [1]}, "Null name"),
    ({"type": "fixed", "name": "F"}, 'Invalid or no size: {"type":"fixed","name":"F"}'),
    (fixed("F", True), "Invalid or no size"),
    (fixed("F", -1), "Malformed data. Length is negative: -1"),
    (fixed("F", 2**31 - 1), "Cannot read arrays longer than 2147483639 bytes in Java library"),
    ({"type": "array"}, 'Array has no items type: {"type":"array"}'),
    ({"type": "map"}, 'Map has no values type: {"type":"map"}'),
    ([["null"]], 'Nested union: [["null"]]'),
    (["int", "int"], "Duplicate in union:int"),
    ([array("int"), array("string")], "Duplicate in union:array"),
    ([record("R"), "R"], "Duplicate in union:R"),
    ([record("R", field("f", array(fixed("F", 1)))), fixed("F", 2)], "Can't redefine: F"),
    (record("R", field("f", "int", default="1")), 'Invalid default for field f: "1" not a "int"'),
    (record("R", field("f", "int", default=2**31)), "Invalid default for field f: 2147483648 not a"),
    (record("R", field("f", "int", default=1.0)), "Invalid default for field f: 1.0 not a"),
    (record("R", field("f", "int", default=True)), "Invalid default for field f: true not a"),
    (record("R", field("f", "float", default="one")), 'Invalid default for field f: "one" not a number'),
    (record("R", field("f", ["null", "int"], default="1")), 'Invalid default for field f: "1" not a ["null"'),
    (record("R", field("f", record("S", field("g", "int")), default={})), "Invalid default for field f: {}"),
    (record("R", field("f", "R", default={})), 'Invalid default for field f: {} not a "R"'),
    (record("R", field("f", array("int"), default=[1, "2"])), 'Invalid default for field f: [1,"2"]'),
    # A default that fits only the record around its field: the value of `h` lacks an `h`.
    (
        record("R", field("f", [record("A", field("h", "A")), "R"], default={"h": {}})),
        "Invalid default for field f",
    ),
]


@pytest.mark.parametrize(("schema", "reason"), INVALID, ids=[reason for _, reason in INVALID])
def test_a_wrong_schema_is_refused_with_its_reason(schema: Json, reason: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parsed(schema)
    assert str(refused.value).startswith(reason)


VALID: list[Json] = [
    "string",
    {"type": "string", "avro.java.string": "String"},
    [],
    record("R", field("next", ["null", "R"], default=None)),
    record("R", field("f", "S"), field("g", record("S"))),
    [record("A", field("f", "B")), record("B", field("f", ["null", "A"]))],
    record("Ä1_", field("ß", "int")),
    record("R", field("f", "double", default="-Infinity"), field("g", "float", default=" 1e3f ")),
    record("R", field("f", ["null", "int"], default=1)),
    record("R", field("f", record("S", field("g", "int", default=1)), default={})),
    record("R", field("f", fixed("F", 2, default=None), default="ab"), aliases=["x.Y", "Z"]),
    [array(fixed("F", 1)), {"type": "map", "values": fixed("F", 1, doc="again")}],
    {"type": "error", "name": "Failure", "fields": []},
    # A record of a union of itself, and a default of it after its end.
    record("R", field("r", record("S", field("u", ["null", "S"])), default={"u": None})),
    record("R", field("r", record("S", field("u", ["S", "null"])), default={"u": {"u": None}})),
    record("R", doc=5, namespace=5),
]


@pytest.mark.parametrize("schema", VALID, ids=range(len(VALID)))
def test_a_valid_schema_is_accepted_and_its_canonical_text_again(schema: Json) -> None:
    canonical = parsed(schema).canonical
    assert parse(canonical, {}).canonical == canonical


def test_an_empty_text_is_no_schema() -> None:
    with pytest.raises(InvalidSchema, match="Cannot parse <null> schema"):
        parse(" \n", {})


def test_comments_are_accepted_as_in_java() -> None:
    assert parse('/* a */ {"type": "string"} // b', {}).canonical == '"string"'


def test_a_name_means_first_the_type_of_its_namespace_then_that_without() -> None:
    types = [fixed("x.F", 1), fixed("F", 2), record("x.R", field("f", "F")), record("y.R", field("f", "F"))]
    mentions = [inner["fields"][0]["type"] for inner in json.loads(parsed(types).canonical)[2:]]
    assert mentions == ["F", "F"]
    assert parsed(types).incompatibilities(parsed(types)) == []


def test_references_define_names() -> None:
    references = {"com.Address": record("com.Address", field("street", "string"))}
    schema = record("com.Person", field("home", "Address"), field("work", "com.Address"))
    assert json.loads(parsed(schema, references).canonical)["fields"][0]["type"] == "Address"
    with pytest.raises(InvalidSchema, match=r"Undefined schema: com\.Address"):
        parsed(schema)


def test_a_registered_schema_may_have_any_default() -> None:
    text = json.dumps(record("R", field("f", "int", default="old")))
    with pytest.raises(InvalidSchema):
        FORMATS["AVRO"](text, {})
    assert '"default":"old"' in REGISTERED_FORMATS["AVRO"](text, {}).canonical
    assert FORMATS["AVRO"](json.dumps(record("S", field("r", "R"))), {"R": text})
