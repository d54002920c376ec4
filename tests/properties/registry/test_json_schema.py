"""Properties of random JSON schemas; `jsonschema` decides which values they accept."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.registry.formats.json_schema import JsonSchema, parse
from felice.registry.formats.schema import InvalidSchema

Json = Any
SEEDS = st.integers(0, 2**32)
NAMES = ["a", "b", "c"]
VALUES: list[Json] = [None, True, "", "ab", "abcd", 0, 1, 2, 6, -3, 2.5]


def schema_of(source: random.Random, depth: int = 3) -> Json:
    """A schema whose rules of compatibility are sound: `oneOf`, defaults and patterns are not among its keywords."""
    choice = source.random()
    if depth == 0 or choice < 0.35:
        return _leaf(source)
    if choice < 0.6:
        return _object(source, depth)
    if choice < 0.75:
        return _array(source, depth)
    if choice < 0.9:
        parts = [schema_of(source, depth - 1) for _ in range(source.randint(1, 3))]
        return {source.choice(["anyOf", "allOf"]): parts}
    return {"not": schema_of(source, depth - 1)} if choice < 0.93 else source.choice([True, False, {}])


def _leaf(source: random.Random) -> Json:
    if source.random() < 0.3:
        return {"enum": source.sample(VALUES[:6], source.randint(1, 4))}
    kind = source.choice(["string", "integer", "number", "boolean", "null", ["string", "integer"]])
    schema: dict[str, Json] = {"type": kind}
    if kind == "string":
        schema |= _some(source, {"minLength": source.randint(0, 2), "maxLength": source.randint(2, 4)})
    if kind in ("integer", "number"):
        limits = {"minimum": source.randint(-3, 1), "exclusiveMaximum": source.randint(1, 6)}
        schema |= _some(source, {**limits, "multipleOf": source.choice([1, 2, 3])})
    return schema


def _object(source: random.Random, depth: int) -> Json:
    properties = {name: schema_of(source, depth - 1) for name in _sample(source, NAMES)}
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    # Confluent's rules compare only the requirements of properties that both schemas name.
    required = _sample(source, list(properties))
    return schema | _some(
        source,
        {
            "required": required,
            "additionalProperties": source.choice([True, False, schema_of(source, depth - 1)]),
            "minProperties": source.randint(0, 1),
            "maxProperties": source.randint(1, 3),
            "dependencies": {"a": _sample(source, ["b", "c"])},
        },
    )


def _array(source: random.Random, depth: int) -> Json:
    schema: dict[str, Json] = {"type": "array"}
    if source.random() < 0.5:
        schema["items"] = schema_of(source, depth - 1)
    else:
        schema["items"] = [schema_of(source, depth - 1) for _ in range(source.randint(1, 3))]
        schema["additionalItems"] = source.choice([True, False, schema_of(source, depth - 1)])
    return schema | _some(
        source, {"minItems": source.randint(0, 2), "maxItems": source.randint(1, 3), "uniqueItems": True}
    )


def _sample(source: random.Random, names: list[str]) -> list[str]:
    return source.sample(names, source.randint(0, len(names)))


def _some(source: random.Random, keywords: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in keywords.items() if source.random() < 0.4}


def changed(source: random.Random, json_value: Json) -> Json:
    """The schema with a change or two."""
    if source.random() < 0.25:
        return schema_of(source, 1)
    if isinstance(json_value, dict):
        copy = {
            name: changed(source, inner)
            if isinstance(inner, (dict, list)) and source.random() < 0.3
            else inner
            for name, inner in json_value.items()
            if source.random() < 0.95 or name in ("type", "items")
        }
        return copy if not isinstance(json_value.get("type"), dict) else json_value
    if isinstance(json_value, list) and all(isinstance(inner, dict) for inner in json_value):
        return [*json_value, schema_of(source, 1)]
    return json_value


def value_of(source: random.Random, depth: int = 3) -> Json:
    choice = source.random()
    if depth == 0 or choice < 0.4:
        return source.choice(VALUES)
    if choice < 0.75:
        return {name: value_of(source, depth - 1) for name in _sample(source, [*NAMES, "d"])}
    return [value_of(source, depth - 1) for _ in range(source.randint(0, 3))]


def parsed(schema: Json) -> JsonSchema | None:
    try:
        return parse(json.dumps(schema), {})
    except InvalidSchema:
        return None


@settings(max_examples=300)
@given(SEEDS)
def test_a_reader_without_incompatible_changes_accepts_the_writers_data(seed: int) -> None:
    source = random.Random(seed)
    writer = schema_of(source)
    reader = changed(source, writer)
    new, old = parsed(reader), parsed(writer)
    if new is None or old is None or new.incompatibilities(old):
        return
    judge, accepts = jsonschema.Draft7Validator(writer), jsonschema.Draft7Validator(reader)
    for _ in range(30):
        value = value_of(source)
        if judge.is_valid(value):
            assert accepts.is_valid(value), f"{value} of {writer} is not valid for {reader}"


@given(SEEDS)
def test_a_schema_is_compatible_with_itself_and_with_its_normalized_text(seed: int) -> None:
    schema = parsed(schema_of(random.Random(seed)))
    assert schema is not None
    normal = parse(schema.normalized(), {})
    assert normal.normalized() == schema.normalized()
    assert schema.incompatibilities(schema) == normal.incompatibilities(schema) == []


@given(SEEDS)
def test_what_the_metaschema_accepts_is_accepted(seed: int) -> None:
    source = random.Random(seed)
    schema = changed(source, changed(source, schema_of(source)))
    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return
    assert parsed(schema) is not None


@given(st.text())
def test_any_text_is_a_schema_or_invalid(text: str) -> None:
    try:
        parse(text, {})
    except InvalidSchema as error:
        assert "\n" not in str(error)


@given(SEEDS, st.data())
def test_any_damaged_schema_is_a_schema_or_invalid(seed: int, data: st.DataObject) -> None:
    text = json.dumps(schema_of(random.Random(seed)))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    damaged = (
        text[:start]
        + data.draw(st.sampled_from(["", "null", '"', "{}", "[", "1", '"$ref":"#"', "é"]))
        + text[end:]
    )
    try:
        schema = parse(damaged, {})
    except InvalidSchema as error:
        assert "\n" not in str(error)
    else:
        assert schema.incompatibilities(schema) is not None
