"""Every rule of compatibility has a case: the writer's schema, the reader's, and the path of the change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from felice.registry.formats.json_schema import JsonSchema, comparing, parse, rules
from felice.registry.formats.json_schema.rules import COMPATIBLE, INCOMPATIBLE, LIMITS
from felice.registry.formats.schema import OLD_READS_NEW

Json = Any

DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
OPEN = {"type": "object"}
CLOSED = {"type": "object", "additionalProperties": False}
PARTLY = {"type": "object", "additionalProperties": NUMBER}
ARRAY = {"type": "array"}


def having(base: Json, *required: str, **properties: Json) -> Json:
    """An object with properties, some of them required."""
    names = {"required": list(required)} if required else {}
    return {**base, "properties": properties, **names}


def tuple_of(*items: Json, additional: Json = True) -> Json:
    return {"type": "array", "items": list(items), "additionalItems": additional}


def modern(**keywords: Json) -> Json:
    return {"$schema": DRAFT_2020, **keywords}


CASES: dict[str, tuple[Json, Json, str]] = {
    "SCHEMA_ADDED": (ARRAY, {"type": "array", "items": TEXT}, "items"),
    "SCHEMA_REMOVED": ({"type": "array", "items": TEXT}, ARRAY, "items"),
    "TYPE_CHANGED": (having(OPEN, a=TEXT), having(OPEN, a=WHOLE), "properties/a"),
    "TYPE_EXTENDED": (WHOLE, NUMBER, ""),
    "TYPE_NARROWED": (NUMBER, WHOLE, ""),
    "PATTERN_ADDED": (TEXT, {**TEXT, "pattern": "a"}, "pattern"),
    "PATTERN_REMOVED": ({**TEXT, "pattern": "a"}, TEXT, "pattern"),
    "PATTERN_CHANGED": ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, "pattern"),
    "MULTIPLE_OF_ADDED": (NUMBER, {**NUMBER, "multipleOf": 2}, "multipleOf"),
    "MULTIPLE_OF_REMOVED": ({**NUMBER, "multipleOf": 2}, NUMBER, "multipleOf"),
    "MULTIPLE_OF_EXPANDED": ({**NUMBER, "multipleOf": 0.5}, {**NUMBER, "multipleOf": 1}, "multipleOf"),
    "MULTIPLE_OF_REDUCED": ({**NUMBER, "multipleOf": 6}, {**NUMBER, "multipleOf": 1.5}, "multipleOf"),
    "MULTIPLE_OF_CHANGED": ({**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 3}, "multipleOf"),
    "REQUIRED_ATTRIBUTE_ADDED": (having(OPEN, a=TEXT), having(OPEN, "a", a=TEXT), "required/a"),
    "REQUIRED_ATTRIBUTE_REMOVED": (having(OPEN, "a", a=TEXT), having(OPEN, a=TEXT), "required/a"),
    "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED": (
        having(OPEN, a=TEXT),
        having(OPEN, "a", a={**TEXT, "default": "x"}),
        "required/a",
    ),
    "ADDITIONAL_PROPERTIES_ADDED": (CLOSED, OPEN, "additionalProperties"),
    "ADDITIONAL_PROPERTIES_REMOVED": (OPEN, CLOSED, "additionalProperties"),
    "ADDITIONAL_PROPERTIES_EXTENDED": (PARTLY, OPEN, "additionalProperties"),
    "ADDITIONAL_PROPERTIES_NARROWED": (OPEN, PARTLY, "additionalProperties"),
    "UNEVALUATED_PROPERTIES_ADDED": (
        modern(type="object", unevaluatedProperties=False),
        modern(type="object"),
        "unevaluatedProperties",
    ),
    "UNEVALUATED_PROPERTIES_REMOVED": (
        modern(type="object"),
        modern(type="object", unevaluatedProperties=False),
        "unevaluatedProperties",
    ),
    "UNEVALUATED_PROPERTIES_EXTENDED": (
        modern(type="object", unevaluatedProperties=TEXT),
        modern(type="object"),
        "unevaluatedProperties",
    ),
    "UNEVALUATED_PROPERTIES_NARROWED": (
        modern(type="object", unevaluatedProperties=True),
        modern(type="object", unevaluatedProperties=TEXT),
        "unevaluatedProperties",
    ),
    "DEPENDENCY_ARRAY_ADDED": (OPEN, {**OPEN, "dependencies": {"a": ["b"]}}, "dependencies/a"),
    "DEPENDENCY_ARRAY_REMOVED": ({**OPEN, "dependencies": {"a": ["b"]}}, OPEN, "dependencies/a"),
    "DEPENDENCY_ARRAY_EXTENDED": (
        {**OPEN, "dependencies": {"a": ["b"]}},
        {**OPEN, "dependencies": {"a": ["c", "b"]}},
        "dependencies/a",
    ),
    "DEPENDENCY_ARRAY_NARROWED": (
        modern(type="object", dependentRequired={"a": ["b", "c"]}),
        modern(type="object", dependentRequired={"a": ["c"]}),
        "dependencies/a",
    ),
    "DEPENDENCY_ARRAY_CHANGED": (
        {**OPEN, "dependencies": {"a": ["b"]}},
        {**OPEN, "dependencies": {"a": ["c"]}},
        "dependencies/a",
    ),
    "DEPENDENCY_SCHEMA_ADDED": (OPEN, {**OPEN, "dependencies": {"a": OPEN}}, "dependencies/a"),
    "DEPENDENCY_SCHEMA_REMOVED": (
        modern(type="object", dependentSchemas={"a": OPEN}),
        modern(type="object"),
        "dependencies/a",
    ),
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (OPEN, having(OPEN, a=TEXT), "properties/a"),
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (OPEN, having(OPEN, "a", a=TEXT), "properties/a"),
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": (
        OPEN,
        having(OPEN, "a", a={**TEXT, "default": ""}),
        "properties/a",
    ),
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": (
        OPEN,
        having(OPEN, a={}, b=True),
        "properties/b",
    ),
    "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (CLOSED, having(CLOSED, a=TEXT), "properties/a"),
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (CLOSED, having(CLOSED, "a", a=TEXT), "properties/a"),
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        CLOSED,
        having(CLOSED, "a", a={**TEXT, "default": ""}),
        "properties/a",
    ),
    "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL": (having(OPEN, a=TEXT), OPEN, "properties/a"),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (having(CLOSED, a=TEXT), CLOSED, "properties/a"),
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        having(CLOSED, a=False),
        CLOSED,
        "properties/a",
    ),
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        having(PARTLY, a=WHOLE),
        PARTLY,
        "properties/a",
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        having(PARTLY, a=TEXT),
        PARTLY,
        "properties/a",
    ),
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        PARTLY,
        having(PARTLY, a=NUMBER),
        "properties/a",
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        PARTLY,
        having(PARTLY, a=WHOLE),
        "properties/a",
    ),
    "UNIQUE_ITEMS_ADDED": (ARRAY, {**ARRAY, "uniqueItems": True}, "uniqueItems"),
    "UNIQUE_ITEMS_REMOVED": ({**ARRAY, "uniqueItems": True}, {**ARRAY, "uniqueItems": False}, "uniqueItems"),
    "ADDITIONAL_ITEMS_ADDED": (tuple_of(TEXT, additional=False), tuple_of(TEXT), "additionalItems"),
    "ADDITIONAL_ITEMS_REMOVED": (tuple_of(TEXT), tuple_of(TEXT, additional=False), "additionalItems"),
    "ADDITIONAL_ITEMS_EXTENDED": (
        tuple_of(TEXT, additional=TEXT),
        tuple_of(TEXT, additional={}),
        "additionalItems",
    ),
    "ADDITIONAL_ITEMS_NARROWED": (tuple_of(TEXT), tuple_of(TEXT, additional=TEXT), "additionalItems"),
    "UNEVALUATED_ITEMS_ADDED": (
        modern(type="array", unevaluatedItems=False),
        modern(type="array", unevaluatedItems=TEXT),
        "unevaluatedItems",
    ),
    "UNEVALUATED_ITEMS_REMOVED": (
        modern(type="array", unevaluatedItems=TEXT),
        modern(type="array", unevaluatedItems=False),
        "unevaluatedItems",
    ),
    "UNEVALUATED_ITEMS_EXTENDED": (
        modern(type="array", unevaluatedItems=TEXT),
        modern(type="array", unevaluatedItems={}),
        "unevaluatedItems",
    ),
    "UNEVALUATED_ITEMS_NARROWED": (
        modern(type="array"),
        modern(type="array", unevaluatedItems=TEXT),
        "unevaluatedItems",
    ),
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": (tuple_of(TEXT), tuple_of(TEXT, WHOLE), "items/1"),
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": (tuple_of(TEXT), tuple_of(TEXT, {}), "items/1"),
    "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL": (
        tuple_of(TEXT, additional=False),
        tuple_of(TEXT, WHOLE, additional=False),
        "items/1",
    ),
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        modern(type="array", prefixItems=[TEXT], items=WHOLE),
        modern(type="array", prefixItems=[TEXT, NUMBER], items=WHOLE),
        "items/1",
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        tuple_of(TEXT, additional=NUMBER),
        tuple_of(TEXT, WHOLE, additional=NUMBER),
        "items/1",
    ),
    "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL": (tuple_of(TEXT, WHOLE), tuple_of(TEXT), "items/1"),
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        tuple_of(TEXT, WHOLE, additional=False),
        tuple_of(TEXT, additional=False),
        "items/1",
    ),
    "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        tuple_of(TEXT, False, additional=False),
        tuple_of(TEXT, additional=False),
        "items/1",
    ),
    "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        tuple_of(TEXT, WHOLE, additional=NUMBER),
        tuple_of(TEXT, additional=NUMBER),
        "items/1",
    ),
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        tuple_of(TEXT, TEXT, additional=NUMBER),
        tuple_of(TEXT, additional=NUMBER),
        "items/1",
    ),
    "ENUM_ARRAY_EXTENDED": ({"enum": [1, "a"]}, {"enum": ["a", 1, {"b": 1, "c": 2}]}, "enum"),
    "ENUM_ARRAY_NARROWED": ({"enum": [1, {"c": 2, "b": 1}]}, {"enum": [{"b": 1, "c": 2}]}, "enum"),
    "ENUM_ARRAY_CHANGED": ({"enum": [1, 2]}, {"enum": ["1", 2]}, "enum"),
    "COMBINED_TYPE_EXTENDED": ({"allOf": [TEXT, {"enum": ["a"]}]}, {"anyOf": [{"enum": ["a"]}, TEXT]}, ""),
    "COMBINED_TYPE_CHANGED": ({"anyOf": [TEXT, WHOLE]}, {"oneOf": [TEXT, WHOLE]}, ""),
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": ({"oneOf": [TEXT, NUMBER]}, {"oneOf": [TEXT, WHOLE]}, ""),
    "PRODUCT_TYPE_EXTENDED": (
        {"allOf": [OPEN, {"not": TEXT}]},
        {"allOf": [OPEN, {"not": TEXT}, {"not": WHOLE}]},
        "",
    ),
    "PRODUCT_TYPE_NARROWED": (
        {"allOf": [OPEN, {"enum": [1]}, {"not": TEXT}]},
        {"allOf": [OPEN, {"not": TEXT}]},
        "",
    ),
    "SUM_TYPE_EXTENDED": ({"type": ["string", "null"]}, {"type": ["null", "integer", "string"]}, ""),
    "SUM_TYPE_NARROWED": ({"type": ["string", "null", "integer"]}, {"type": ["string", "null"]}, ""),
    "NOT_TYPE_EXTENDED": ({"not": WHOLE}, {"not": NUMBER}, "not"),
    "NOT_TYPE_NARROWED": ({"not": NUMBER}, {"not": WHOLE}, "not"),
}


def _limit_cases() -> dict[str, tuple[Json, Json, str]]:
    cases: dict[str, tuple[Json, Json, str]] = {}
    for limit in LIMITS:
        schema = modern if "Contains" in limit.keyword else dict
        without, two, three = schema(), schema(), schema()
        for schema_of, value in ((without, None), (two, 2), (three, 3.5 if "imum" in limit.keyword else 3)):
            schema_of["type"] = {"L": "string", "P": "object", "I": "array", "C": "array"}.get(
                limit.keyword[3], "number"
            )
            if value is not None:
                schema_of[limit.keyword] = value
        cases[f"{limit.name}_ADDED"] = (without, two, limit.keyword)
        cases[f"{limit.name}_REMOVED"] = (two, without, limit.keyword)
        cases[f"{limit.name}_INCREASED"] = (two, three, limit.keyword)
        cases[f"{limit.name}_DECREASED"] = (three, two, limit.keyword)
    return cases


CASES |= _limit_cases()


def parsed(schema: Json) -> JsonSchema:
    return parse(json.dumps(schema), {})


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == INCOMPATIBLE.keys() | COMPATIBLE


@pytest.mark.parametrize("name", sorted(INCOMPATIBLE))
def test_an_incompatible_change_is_reported_with_its_path(name: str) -> None:
    writer, reader, path = CASES[name]
    reasons = parsed(reader).incompatibilities(parsed(writer))
    description = INCOMPATIBLE[name].format(path=f"#/{path}", reader="new", writer="old")
    assert f'{{errorType:"{name}", description:"{description}"}}' in reasons


@pytest.mark.parametrize("name", sorted(COMPATIBLE))
def test_a_compatible_change_is_recognised_and_not_reported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader, path = CASES[name]
    assert parsed(reader).incompatibilities(parsed(writer)) == []
    monkeypatch.setattr(comparing, "COMPATIBLE", rules.COMPATIBLE - {name})
    monkeypatch.setattr(comparing, "INCOMPATIBLE", rules.INCOMPATIBLE | {name: "changed"})
    changes = comparing.incompatible_changes(parsed(reader)._schema, parsed(writer)._schema)
    assert comparing.Change(name, tuple(path.split("/")) if path else ()) in changes


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_schema_accepts_its_own_data(name: str) -> None:
    for schema in CASES[name][:2]:
        assert parsed(schema).incompatibilities(parsed(schema)) == []


def test_the_schemas_are_called_by_their_roles() -> None:
    assert parsed(CLOSED).incompatibilities(parsed(OPEN), OLD_READS_NEW) == [
        '{errorType:"ADDITIONAL_PROPERTIES_REMOVED", description:"The keyword at path \'#/additionalProperties\' in '
        'the old schema is not present in the new schema"}'
    ]
