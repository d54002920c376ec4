"""The canonical, normalized and resolved texts."""

from __future__ import annotations

import json

import pytest

from felice.registry.formats.schema import InvalidSchema
from unit.registry.formats.avro.schemas import Json, array, enum, field, fixed, parsed, record


def test_the_canonical_text_has_the_members_in_the_order_of_java() -> None:
    schema = {
        "aliases": ["Old", "x.Older", "y.Oldest"],
        "zeta": 1,
        "fields": [
            {
                "aliases": ["g"],
                "order": "descending",
                "type": {"type": "int"},
                "default": 1,
                "name": "f",
                "p": {},
            },
            {"name": "e", "order": "ascending", "type": enum("y.E", "AB", default="A", doc="d", q=None)},
            {"name": "h", "type": fixed("F", 2, namespace="", aliases=["G"]), "doc": "text"},
        ],
        "doc": "says",
        "namespace": "x",
        "name": "R",
        "type": "record",
    }
    assert parsed(schema).canonical == (
        '{"type":"record","name":"R","namespace":"x","doc":"says","fields":['
        '{"name":"f","type":"int","default":1,"order":"descending","aliases":["g"],"p":{}},'
        '{"name":"e","type":{"type":"enum","name":"E","namespace":"y","doc":"d","symbols":["A","B"],"default":"A",'
        '"q":null}},'
        '{"name":"h","type":{"type":"fixed","name":"F","namespace":"","size":2,"aliases":["G"]},"doc":"text"}],'
        '"zeta":1,"aliases":["Old","Older","y.Oldest"]}'
    )


REFERENCES = {"x.A": record("x.A", field("b", record("x.B"))), "x.E": enum("x.E", "AB")}


def test_the_canonical_text_names_references_and_the_resolved_text_defines_them() -> None:
    schema = parsed(record("x.R", field("a", "A"), field("e", "E"), field("e2", "x.E")), REFERENCES)
    assert [inner["type"] for inner in json.loads(schema.canonical)["fields"]] == ["A", "E", "E"]
    resolved = json.loads(schema.formatted("RESOLVED"))["fields"]
    assert resolved[0]["type"]["fields"][0]["type"]["name"] == "B"
    assert resolved[1]["type"]["symbols"] == ["A", "B"] and resolved[2]["type"] == "E"
    assert schema.formatted("other") == schema.formatted("") == schema.canonical
    assert parsed(json.loads(schema.canonical), REFERENCES).canonical == schema.canonical


def test_a_type_inside_a_reference_is_written_out_as_confluents_registry_does() -> None:
    schema = parsed(record("x.R", field("b", "B")), REFERENCES)
    assert json.loads(schema.canonical)["fields"][0]["type"] == {"type": "record", "name": "B", "fields": []}


def test_equivalent_schemas_have_one_normalized_text() -> None:
    one = record(
        "R",
        field(
            "f",
            {"type": "bytes", "scale": 2, "logicalType": "decimal", "precision": 4},
            b=1,
            a={"d": 1, "c": 2},
        ),
        field("g", "double", default=1, aliases=["z", "y"], order="ascending"),
        namespace="x",
        aliases=["B", "A"],
    )
    other = {
        "name": "x.R",
        "type": "record",
        "aliases": ["x.A", "x.B"],
        "fields": [
            {
                "a": {"c": 2, "d": 1},
                "type": {"precision": 4, "type": "bytes", "logicalType": "decimal", "scale": 2},
                "b": 1,
                "name": "f",
            },
            {"default": 1.0, "name": "g", "type": {"type": "double"}, "aliases": ["y", "z"]},
        ],
    }
    assert parsed(one).canonical != parsed(other).canonical
    assert parsed(one).normalized() == parsed(other).normalized()
    assert parsed(one).normalized() == (
        '{"type":"record","name":"R","namespace":"x","fields":['
        '{"name":"f","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2},"a":{"c":2,"d":1},"b":1},'
        '{"name":"g","type":"double","default":1.0,"aliases":["y","z"]}],"aliases":["A","B"]}'
    )


@pytest.mark.parametrize(
    ("schema", "normal"),
    [
        (
            {"type": "int", "z": 1, "logicalType": "date", "a": 2},
            {"type": "int", "logicalType": "date", "a": 2, "z": 1},
        ),
        (
            {"type": "int", "z": 1, "logicalType": "uuid", "a": 2},
            {"type": "int", "a": 2, "logicalType": "uuid", "z": 1},
        ),
        ({"type": "map", "values": "int", "b": 1, "a": 2}, {"type": "map", "values": "int", "a": 2, "b": 1}),
        (enum("E", "BA", doc=""), enum("E", "BA")),
        ({"type": "error", "name": "R", "fields": []}, {"type": "error", "name": "R", "fields": []}),
    ],
)
def test_the_normalized_text_sorts_properties_behind_the_logical_type(schema: Json, normal: Json) -> None:
    text = parsed(schema).normalized()
    names = list(normal)
    found = json.loads(text)
    assert found == normal
    assert [name for name in found if name in names[1:]] == [name for name in found if name in names[1:]]
    assert text.index(f'"{names[-1]}"') > text.index(f'"{names[1]}"')


def test_a_float_default_is_normalized_to_32_bits() -> None:
    schema = record(
        "R", field("f", "float", default=3.14159265358979), field("g", array("float"), default=[1])
    )
    assert '"default":3.1415927' in parsed(schema).normalized()
    assert '"default":[1.0]' in parsed(schema).normalized()


def test_normalizing_leaves_references_out() -> None:
    schema = parsed(record("x.R", field("a", "A"), field("b", "B", default={})), REFERENCES)
    assert json.loads(schema.normalized())["fields"][0]["type"] == "A"


def test_definitions_that_would_nest_too_deeply_in_the_canonical_text_are_refused() -> None:
    chain = [record(f"R{number}", field("f", f"R{number + 1}")) for number in range(5_000)]
    with pytest.raises(InvalidSchema, match="deeper than"):
        parsed([*chain, record("R5000")])


def test_a_chain_of_references_nests_only_in_the_resolved_text() -> None:
    references = {"R0": record("R0")}
    for number in range(1, 300):
        references[f"R{number}"] = record(f"R{number}", field("f", f"R{number - 1}"))
    schema = parsed(record("R", field("f", "R299")), references)
    assert schema.normalized() == schema.canonical
    with pytest.raises(InvalidSchema, match="deeper than"):
        schema.formatted("resolved")
