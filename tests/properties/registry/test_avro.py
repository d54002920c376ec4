"""Properties of the texts and comparisons of random Avro schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hypothesis import assume, given
from hypothesis import strategies as st

from felice.registry.formats.avro import AvroSchema, parse
from felice.registry.formats.schema import InvalidSchema
from properties.registry.avro_schemas import Json, Schemas

SEEDS = st.integers(0, 2**32)


def parsed(schema: Json) -> AvroSchema:
    try:
        return parse(json.dumps(schema), {})
    except InvalidSchema:
        assume(False)
        raise AssertionError from None


def again(text: str) -> AvroSchema:
    try:
        return parse(text, {})
    except InvalidSchema as error:
        # Java writes the mention of a type without namespace inside one like the mention of a type inside it.
        assume("Duplicate in union" not in str(error) and "Invalid default" not in str(error))
        raise


def names_in(schema: Json, space: str = "") -> Iterator[str]:
    """The full names of the types that a schema defines."""
    if isinstance(schema, list):
        for one in schema:
            yield from names_in(one, space)
    elif isinstance(schema, dict):
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            name, own = str(schema["name"]), schema.get("namespace")
            full = name if "." in name else f"{space if own is None else own}.{name}".lstrip(".")
            yield full
            space = full.rpartition(".")[0]
        for key in ("type", "items", "values", "fields"):
            if not isinstance(inner := schema.get(key), str):
                yield from names_in(inner, space)


@given(SEEDS)
def test_the_canonical_text_is_its_own_canonical_text(seed: int) -> None:
    schema = parsed(Schemas(seed).schema())
    assert again(schema.canonical).canonical == schema.canonical


@given(SEEDS)
def test_the_normalized_text_is_its_own_normalized_text(seed: int) -> None:
    schema = parsed(Schemas(seed).schema())
    assert again(schema.normalized()).normalized() == schema.normalized()


@given(SEEDS)
def test_the_order_of_properties_does_not_change_the_normalized_text(seed: int) -> None:
    schemas = Schemas(seed)
    schema = schemas.schema()
    assert parsed(schema).normalized() == parsed(_shuffled(schema, schemas)).normalized()


@given(SEEDS)
def test_the_texts_of_a_schema_read_its_data(seed: int) -> None:
    given = Schemas(seed).schema()
    # In Java's texts, too, the mention of such a type without namespace may be taken for the one with a namespace.
    names = set(names_in(given))
    assume(not any("." in name and name.rpartition(".")[2] in names for name in names))
    schema = parsed(given)
    assume(not any("matches multiple fields" in reason for reason in schema.incompatibilities(schema)))
    assert schema.incompatibilities(schema) == []
    assert again(schema.normalized()).incompatibilities(schema) == []


@given(st.text())
def test_any_text_is_a_schema_or_invalid(text: str) -> None:
    try:
        parse(text, {})
    except InvalidSchema as error:
        assert "\n" not in str(error)


@given(SEEDS, st.data())
def test_any_damaged_schema_is_a_schema_or_invalid(seed: int, data: st.DataObject) -> None:
    text = json.dumps(Schemas(seed).schema())
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    damaged = (
        text[:start] + data.draw(st.sampled_from(["", "null", '"', "{}", "[", "1", "\\", "é"])) + text[end:]
    )
    try:
        schema = parse(damaged, {})
    except InvalidSchema as error:
        assert "\n" not in str(error)
    else:
        assert schema.incompatibilities(schema) is not None


def _shuffled(json: Json, schemas: Schemas) -> Json:
    """Another order of the members that have no meaning in their order."""
    if isinstance(json, list):
        return [_shuffled(inner, schemas) for inner in json]
    if isinstance(json, dict):
        names = list(json)
        schemas.random.shuffle(names)
        return {name: _shuffled(json[name], schemas) for name in names}
    return json
