"""Comparisons beyond single rules: kinds, combinations, content models, references and large schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from felice.registry.formats.avro import parse as parse_avro
from felice.registry.formats.json_schema import JsonSchema, parse
from felice.registry.formats.json_schema.comparing import _matching
from felice.registry.formats.schema import DIFFERENT_TYPE

Json = Any
TEXT, WHOLE, NUMBER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "null"}
CLOSED = {"type": "object", "additionalProperties": False}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def parsed(schema: Json) -> JsonSchema:
    return parse(json.dumps(schema), {})


def changes(writer: Json, reader: Json) -> list[str]:
    """The names of the incompatible changes."""
    return [reason.split('"')[1] for reason in parsed(reader).incompatibilities(parsed(writer))]


CASES: list[tuple[str, Json, Json, list[str]]] = [
    ("everything is accepted by true", TEXT, True, []),
    ("everything is accepted by an empty schema", {"oneOf": [TEXT, WHOLE]}, {"title": "any"}, []),
    ("nothing is written with false", False, TEXT, []),
    ("true is not accepted by a type", True, TEXT, ["TYPE_CHANGED"]),
    ("true and an empty schema are the same", {}, True, []),
    ("one type becomes one of several", TEXT, {"type": ["string", "null"]}, []),
    ("one type becomes one of a union that widens it", WHOLE, {"oneOf": [NULL, NUMBER]}, []),
    ("one type becomes a union without it", TEXT, {"oneOf": [NULL, NUMBER]}, ["TYPE_CHANGED"]),
    ("a union of one becomes that type", {"anyOf": [TEXT]}, TEXT, []),
    ("a type becomes all of one", TEXT, {"allOf": [TEXT]}, []),
    ("a type becomes all of two", TEXT, {"allOf": [TEXT, {"maxLength": 3}]}, ["TYPE_CHANGED"]),
    ("oneOf becomes anyOf", {"oneOf": [TEXT, NULL]}, {"anyOf": [NULL, TEXT]}, []),
    ("anyOf of one becomes oneOf", {"anyOf": [TEXT]}, {"oneOf": [TEXT, NULL]}, []),
    ("oneOf of one becomes allOf of one", {"oneOf": [WHOLE]}, {"allOf": [NUMBER]}, []),
    ("oneOf of two becomes allOf", {"oneOf": [WHOLE, TEXT]}, {"allOf": [NUMBER]}, ["COMBINED_TYPE_CHANGED"]),
    ("a branch is widened", {"oneOf": [WHOLE, NULL]}, {"oneOf": [NULL, NUMBER]}, []),
    (
        "each branch needs a partner of its own",
        {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}]},
        {"oneOf": [WHOLE, TEXT]},
        ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"],
    ),
    ("repeated branches count once", {"oneOf": [TEXT, TEXT, NULL]}, {"oneOf": [TEXT, NULL]}, []),
    ("a const is changed", {"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED"]),
    ("a const of another order of members", {"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}, []),
    ("a format is changed", {**TEXT, "format": "date"}, {**TEXT, "format": "uuid"}, []),
    (
        "a title is changed",
        {**TEXT, "title": "a", "description": "b"},
        {**TEXT, "title": "c", "default": "d"},
        [],
    ),
    ("numbers are equal in value", {**NUMBER, "maximum": 1.0}, {**NUMBER, "maximum": 1}, []),
    ("kinds without a type", {"maxLength": 5}, {"maxLength": 4}, ["MAX_LENGTH_DECREASED"]),
    (
        "a pattern covers a removed property",
        {**CLOSED, "properties": {"x_a": WHOLE}},
        {**CLOSED, "patternProperties": {"^x_": NUMBER}},
        [],
    ),
    (
        "a pattern does not cover a removed property",
        {**CLOSED, "properties": {"y_a": WHOLE}},
        {**CLOSED, "patternProperties": {"^x_": NUMBER}},
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    (
        "a pattern that RE2 does not know covers nothing",
        {**CLOSED, "properties": {"x_a": WHOLE}},
        {**CLOSED, "patternProperties": {"^(?=x)": NUMBER}},
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    (
        "both faults of a covered property are reported",
        {"type": "object", "additionalProperties": {"type": "string", "maxLength": 5}},
        {
            "type": "object",
            "additionalProperties": {"type": "string", "maxLength": 5},
            "required": ["a"],
            "properties": {"a": {"type": "string", "maxLength": 4}},
        },
        [
            "MAX_LENGTH_DECREASED",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        ],
    ),
    (
        "a schema dependency is narrowed",
        {"dependencies": {"a": NUMBER}},
        {"dependencies": {"a": WHOLE}},
        ["TYPE_NARROWED"],
    ),
    (
        "draft 4: a maximum becomes exclusive",
        {"$schema": DRAFT_4, "type": "number", "maximum": 5},
        {"$schema": DRAFT_4, "type": "number", "maximum": 5, "exclusiveMaximum": True},
        ["EXCLUSIVE_MAXIMUM_ADDED"],
    ),
    (
        "draft 4: a maximum becomes inclusive",
        {"$schema": DRAFT_4, "type": "number", "maximum": 5, "exclusiveMaximum": True},
        {"$schema": DRAFT_4, "type": "number", "maximum": 5, "exclusiveMaximum": False},
        [],
    ),
]


@pytest.mark.parametrize(
    ("writer", "reader", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_incompatible_changes_of_a_pair(writer: Json, reader: Json, expected: list[str]) -> None:
    assert changes(writer, reader) == expected


def test_paths_lead_through_nested_schemas() -> None:
    def schema(limit: int) -> Json:
        leaf = {"type": "string", "maxLength": limit}
        inner = {"type": "array", "items": [{**CLOSED, "properties": {"b": leaf}}], "additionalItems": leaf}
        return {**CLOSED, "properties": {"a": inner}, "additionalProperties": leaf}

    (*reasons,) = parsed(schema(4)).incompatibilities(parsed(schema(5)))
    assert [reason.split("'")[1] for reason in reasons] == [
        "#/properties/a/items/0/properties/b/maxLength",
        "#/properties/a/additionalItems/maxLength",
        "#/additionalProperties/maxLength",
    ]


def linked(limit: int) -> Json:
    node = {
        "type": "object",
        "properties": {
            "next": {"oneOf": [{"$ref": "#/definitions/node"}, NULL]},
            "v": {"type": "string", "maxLength": limit},
        },
    }
    return {"definitions": {"node": node}, "$ref": "#/definitions/node"}


def test_recursive_schemas_are_compared_to_the_end() -> None:
    assert changes(linked(5), linked(6)) == []
    # The path through the recursion is the same schema again: the change is reported where it is met first.
    assert changes(linked(6), linked(5)) == ["MAX_LENGTH_DECREASED"]


def test_rings_of_different_lengths_are_compared_to_the_end() -> None:
    def ring(length: int) -> Json:
        def node(number: int) -> Json:
            following = {"$ref": f"#/definitions/p{(number + 1) % length}"}
            return {"type": "object", "properties": {"n": following}}

        return {
            "definitions": {f"p{number}": node(number) for number in range(length)},
            "$ref": "#/definitions/p0",
        }

    assert changes(ring(60), ring(61)) == []


def test_a_schema_of_another_format_is_incompatible() -> None:
    assert parsed(TEXT).incompatibilities(parse_avro('"string"', {})) == [DIFFERENT_TYPE]


def test_ten_thousand_branches_are_compared_at_once() -> None:
    schema = {"oneOf": [{**CLOSED, "properties": {f"p{number}": TEXT}} for number in range(10_000)]}
    assert changes(schema, {"oneOf": [*schema["oneOf"][::-1], NULL]}) == []


def test_branches_that_would_take_too_long_are_not_compared() -> None:
    def schema(name: str) -> Json:
        return {"oneOf": [{**CLOSED, "properties": {f"{name}{number}": TEXT}} for number in range(600)]}

    (reason,) = parsed(schema("a")).incompatibilities(parsed(schema("b")))
    assert reason == (
        "Unexpected exception during compatibility check: there are more than 200000 pairs of types to compare"
    )


@pytest.mark.parametrize(
    ("edges", "size"),
    [
        ([], 0),
        ([[0], [0]], 1),
        ([[0, 1], [0]], 2),
        ([[0], [0, 1], [1, 2], [2, 3]], 4),
        ([[1], [1], [0, 1, 2]], 2),
    ],
)
def test_a_maximum_matching(edges: list[list[int]], size: int) -> None:
    assert _matching(edges) == size
