"""Which texts are JSON schemas, how references are resolved, and the texts that are stored."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from felice.registry.formats import FORMATS, REGISTERED_FORMATS
from felice.registry.formats.json_schema import JsonSchema, parse
from felice.registry.formats.schema import MAX_DEPTH, InvalidSchema

Json = Any
DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def parsed(schema: Json, references: dict[str, Json] | None = None) -> JsonSchema:
    texts = {name: json.dumps(text) for name, text in (references or {}).items()}
    return parse(json.dumps(schema), texts)


def in_draft(draft: int, **keywords: Json) -> Json:
    return {"$schema": DRAFTS[draft], **keywords}


INVALID: list[tuple[Json, str]] = [
    ([], "an object or a boolean is expected, not []"),
    ("string", 'an object or a boolean is expected, not "string"'),
    ({"type": "text"}, "#: type must be one or several of array, boolean,"),
    ({"type": []}, "#: type must be"),
    (
        {"properties": {"a": {"properties": {"b": 5}}}},
        "#/properties/a: properties must be an object of schemas",
    ),
    ({"items": 1}, "#: items must be a schema or a list of schemas, not 1"),
    (in_draft(2020, items=[TEXT]), '#: items must be a schema, not [{"type":"string"}]'),
    ({"required": True}, "#: required must be a list of names, not true"),
    ({"required": ["a", 1]}, '#: required must be a list of names, not ["a",1]'),
    ({"enum": 1}, "#: enum must be a list"),
    ({"minLength": -1}, "#: minLength must be an integer that is not negative, not -1"),
    ({"maxItems": 1.5}, "#: maxItems must be an integer that is not negative, not 1.5"),
    ({"multipleOf": 0}, "#: multipleOf must be a number above 0"),
    ({"maximum": "1"}, '#: maximum must be a number, not "1"'),
    ({"exclusiveMaximum": True}, "#: exclusiveMaximum must be a number, not true"),
    (in_draft(4, exclusiveMaximum=1), "#: exclusiveMaximum must be a boolean, not 1"),
    ({"anyOf": []}, "#: anyOf must be a list of schemas, not []"),
    ({"not": 1}, "#: not must be a schema, not 1"),
    ({"dependencies": {"a": "b"}}, "#: dependencies must be an object of schemas or lists of names"),
    (
        in_draft(2019, dependentRequired={"a": TEXT}),
        "#: dependentRequired must be an object of lists of names",
    ),
    ({"patternProperties": {f"p{number}": {} for number in range(201)}}, "#: patternProperties must be"),
    ({"if": True, "then": {"type": 1}}, "#/then: type must be"),
    ({"contains": {"type": 1}}, "#/contains: type must be"),
    ({"propertyNames": {"type": 1}}, "#/propertyNames: type must be"),
    ({"$ref": "#/definitions/a"}, '#: $ref "#/definitions/a" is not in the schema or its references'),
    ({"$ref": "other.json"}, '#: $ref "other.json" is not in the schema or its references'),
    ({"properties": {"a": {"$ref": "#missing"}}}, '#/properties/a: $ref "#missing" is not in the schema'),
    ({"definitions": {"a": {"b": 5}}, "$ref": "#/definitions/a/b"}, "refers to 5, which is no schema"),
    ({"$ref": 5}, "#: $ref must be a URI, not 5"),
    ({"$ref": "#"}, '{"$ref":"#"} refers to itself'),
    ({"$ref": "http://[x"}, '$ref "http://[x" is not in the schema'),
    ({"$id": 5}, "the id of"),
    (
        {
            "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
            "anyOf": [{"$ref": "#/definitions/a"}],
        },
        "refers to itself",
    ),
    ({"properties": 5, "allOf": [{"$ref": "#a"}]}, "#: properties must be"),
    ({"properties": {"$$a": {}}}, "#/properties/$$a: Field names cannot start with $$ prefix"),
]


@pytest.mark.parametrize(("schema", "reason"), INVALID, ids=range(len(INVALID)))
def test_a_wrong_schema_is_refused_with_its_reason_and_place(schema: Json, reason: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parsed(schema)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_registered_schema_may_have_reserved_names() -> None:
    text = '{"properties":{"$$a":{}}}'
    assert REGISTERED_FORMATS["JSON"](text, {}).canonical == text
    with pytest.raises(InvalidSchema):
        FORMATS["JSON"](text, {})


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_metaschema_of_a_draft_is_a_schema_and_can_be_referred_to(draft: int) -> None:
    schema = parsed(in_draft(draft, properties={"schema": {"$ref": DRAFTS[draft]}}))
    assert schema.incompatibilities(schema) == []


@pytest.mark.parametrize(
    "schema",
    [
        True,
        False,
        {},
        {"unknown": {"type": 5}, "title": 5, "format": 1},
        {"definitions": {"unused": {"type": "nonsense"}}},
        {"$schema": "http://example.com/mine", "prefixItems": 5, "dependentRequired": 5},
        in_draft(4, const=1, contains=5, propertyNames=5),
        {"minLength": 2.0},
        {"$ref": "#/definitions/a", "type": 5, "definitions": {"a": {}}},
    ],
)
def test_unknown_and_unused_keywords_may_have_any_value(schema: Json) -> None:
    assert parsed(schema)


def compatible(one: Json, other: Json, references: dict[str, Json] | None = None) -> bool:
    return parsed(one, references).incompatibilities(parsed(other)) == []


RESOLVED: list[tuple[Json, dict[str, Json]]] = [
    ({"$ref": "text.json"}, {"text.json": TEXT}),
    ({"$ref": "./text.json"}, {"text.json": TEXT}),
    ({"$ref": "text.json#/definitions/a"}, {"text.json": {"definitions": {"a": TEXT}}}),
    ({"$ref": "text.json#a"}, {"text.json": {"definitions": {"a": {"$id": "#a", **TEXT}}}}),
    ({"$ref": "http://example.com/text.json"}, {"http://example.com/text.json": TEXT}),
    ({"$id": "http://example.com/root.json", "allOf": [{"$ref": "text.json"}]}, {"text.json": TEXT}),
    (
        {"$id": "http://example.com/root.json", "allOf": [{"$ref": "text.json"}]},
        {"http://example.com/text.json": TEXT},
    ),
    (
        {"$ref": "http://a.com/a.json"},
        {
            "b.json": TEXT,
            "http://a.com/a.json": {"$id": "http://a.com/a.json", "allOf": [{"$ref": "b.json"}]},
        },
    ),
    ({"$ref": "one.json"}, {"two.json": TEXT, "one.json": {"$ref": "two.json"}}),
    ({"$ref": "#/definitions/a%20b~1c", "definitions": {"a b/c": TEXT}}, {}),
    ({"$ref": "#/properties/a", "properties": {"a": TEXT}}, {}),
    (in_draft(2020, **{"$ref": "#t", "$defs": {"t": {"$anchor": "t", **TEXT}}}), {}),
    (in_draft(2020, **{"$ref": "/t", "$id": "http://a.com/", "$defs": {"t": {"$id": "/t", **TEXT}}}), {}),
    (in_draft(2020, **{"$dynamicRef": "#t", "$defs": {"t": {"$dynamicAnchor": "t", **TEXT}}}), {}),
    (in_draft(2020, **{"$ref": "old.json"}), {"old.json": in_draft(4, **TEXT)}),
]


@pytest.mark.parametrize(("schema", "references"), RESOLVED, ids=range(len(RESOLVED)))
def test_references_are_resolved(schema: Json, references: dict[str, Json]) -> None:
    assert compatible(schema, {"allOf": [TEXT]} if "allOf" in schema else TEXT, references)
    assert not compatible(schema, WHOLE, references)


def test_the_keywords_of_a_reference_are_those_of_its_own_draft() -> None:
    reference = in_draft(4, type="number", maximum=5, exclusiveMaximum=True)
    reader = parsed(in_draft(2020, **{"$ref": "old.json"}), {"old.json": reference})
    assert reader.incompatibilities(parsed({"type": "number", "maximum": 5}))


def test_keywords_beside_a_reference_count_since_2019() -> None:
    keywords = {"$ref": "#/definitions/a", "maxLength": 5, "definitions": {"a": TEXT}}
    assert compatible(keywords, TEXT)
    assert not compatible(in_draft(2019, **keywords), TEXT)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for uri in (
        "http://127.0.0.1:1/a.json",
        "https://example.com/a.json",
        "file:///etc/passwd",
        "ftp://example.com/a",
    ):
        with pytest.raises(InvalidSchema, match="is not in the schema or its references"):
            parsed({"$ref": uri})


def test_the_canonical_text_keeps_order_and_numbers() -> None:
    text = '{ "b": [1.50, 1e3, 10000000000000000000000, -0.0, 1E-7, true, null, "\\u00e9/"],\n "a": {} }'
    assert (
        parse(text, {}).canonical
        == '{"b":[1.50,1E+3,10000000000000000000000,-0.0,1E-7,true,null,"é/"],"a":{}}'
    )


def test_the_normalized_text_has_its_members_sorted() -> None:
    one = parse('{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":1.0}', {})
    assert one.normalized() == '{"a":1.0,"b":{"c":[{"e":2,"f":1}],"d":1}}'
    assert parse(one.normalized(), {}).normalized() == one.normalized()
    assert one.formatted("resolved") == one.canonical


HOSTILE = {
    "brackets": "[" * 5_000_000,
    "too large": '{"title":"' + "a" * 5_300_000 + '"}',
    "large exponent": '{"maximum":1e999999999}',
    "huge exponent": '{"maximum":1e99999999999999999999}',
    "many digits": '{"maximum":' + "9" * 100_000 + "}",
    "half a pair": '{"title":"\\ud800"}',
    "not a number": '{"maximum":NaN}',
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(HOSTILE[name], {})


@pytest.mark.parametrize("opening", ['{"not":', '{"items":', '{"properties":{"a":', '{"allOf":[', '{"if":'])
def test_the_deepest_schemas_are_loaded_and_compared(opening: str) -> None:
    closing = {"{": "}", "[": "]"}
    depth = MAX_DEPTH // sum(opening.count(bracket) for bracket in closing)
    end = "".join(closing[char] for char in reversed(opening) if char in closing)
    schema = parse(opening * (depth - 1) + "{}" + end * (depth - 1), {})
    assert schema.incompatibilities(schema) == []
    with pytest.raises(InvalidSchema, match="deeper than"):
        parse(opening * (depth + 1) + "{}" + end * (depth + 1), {})


def test_long_chains_of_references_and_many_anchors_are_loaded() -> None:
    chain = {f"p{number}": {"$ref": f"#/$defs/p{number + 1}"} for number in range(3_000)} | {"p3000": TEXT}
    anchors = {f"q{number}": {"$anchor": f"a{number}"} for number in range(2_000)}
    parts = [{"$ref": f"#a{number}"} for number in range(2_000)]
    schema = parsed(
        in_draft(
            2020, **{"$defs": chain | anchors, "allOf": parts, "properties": {"a": {"$ref": "#/$defs/p0"}}}
        )
    )
    assert schema.incompatibilities(schema) == []
