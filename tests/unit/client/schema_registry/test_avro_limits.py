"""Avro data of a few bytes neither ends the process nor fills its memory; all other data is read as before."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.client.schema_registry.avro_format import AvroFormat, decoded
from felice.client.schema_registry.avro_limits import MAX_DEPTH, MAX_FREE_ITEMS, Shape
from felice.client.serialization import SerializationError

LIST = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
TREE = {
    "type": "record",
    "namespace": "a",
    "name": "T",
    "fields": [
        {"name": "i", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "s", "type": "string"},
        {"name": "b", "type": ["bytes", "boolean", "double", "float"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "c", "type": {"type": "array", "items": "T"}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": ["null", "a.T"]}}},
    ],
}
NOTHING: dict[str, Any] = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "null"}]}

SHAPES: list[tuple[Any, bool, bool]] = [
    ("string", False, False),
    (["null", "int"], False, False),
    (LIST, True, False),
    (TREE, True, False),
    (NOTHING, False, False),
    ({"type": "array", "items": "null"}, False, True),
    ({"type": "array", "items": NOTHING}, False, True),
    ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, False, True),
    ({"type": "array", "items": ["null", "int"]}, False, False),
    ({"type": "map", "values": "null"}, False, False),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "R"}}]},
        True,
        False,
    ),
]


def parsed(schema: Any) -> Any:
    return AvroFormat().parse(json.dumps(schema), [])


@pytest.mark.parametrize(("schema", "recursive", "free"), SHAPES, ids=str)
def test_the_shape_tells_what_data_may_exceed(schema: Any, recursive: bool, free: bool) -> None:
    shape = Shape(parsed(schema).schema)
    assert (shape.recursive, shape.has_free_items) == (recursive, free)


@pytest.mark.parametrize("levels", [2000, 100_000, 1_000_000])
def test_data_that_is_nested_too_deep_is_refused(levels: int) -> None:
    with pytest.raises(SerializationError, match=f"more than {MAX_DEPTH} levels"):
        decoded(b"\x02" * levels + b"\x00", parsed(LIST), None)


def test_data_of_the_permitted_depth_is_read() -> None:
    levels = MAX_DEPTH // 2 - 2
    value = decoded(b"\x02" * levels + b"\x00", parsed(LIST), None)
    depth = 0
    while value["n"] is not None:
        value, depth = value["n"], depth + 1
    assert depth == levels


@pytest.mark.parametrize("items", ["null", NOTHING])
def test_a_long_array_of_nothing_is_refused(items: Any) -> None:
    schema = parsed({"type": "array", "items": items})
    with pytest.raises(SerializationError, match=f"more than {MAX_FREE_ITEMS} items"):
        decoded(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", schema, None)
    assert len(decoded(b"\x06\x05\x02\x00", schema, None)) == 6


def test_blocks_that_tell_their_size_are_counted_too() -> None:
    # A negative count says that the block's size in bytes follows.
    schema = parsed({"type": "array", "items": "null"})
    assert len(decoded(b"\x05\x00\x00", schema, None)) == 3
    with pytest.raises(SerializationError, match=f"more than {MAX_FREE_ITEMS} items"):
        decoded(b"\xff\xff\xff\xff\x0f\x00\x00", schema, None)
    nested = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "R"}}],
    }
    with pytest.raises(SerializationError, match=f"more than {MAX_DEPTH} levels"):
        decoded(b"\x01\x00" * 1000, parsed(nested), None)


def trees() -> st.SearchStrategy[Any]:
    base = {
        "i": st.just(0),
        "s": st.text(max_size=5),
        "b": st.one_of(st.binary(max_size=5), st.booleans(), st.just(0.5)),
        "e": st.sampled_from(["X", "Y"]),
        "f": st.binary(min_size=3, max_size=3),
    }
    leaf = st.fixed_dictionaries({**base, "c": st.just([]), "m": st.just({})})
    return st.recursive(
        leaf,
        lambda inner: st.fixed_dictionaries(
            {
                **base,
                "c": st.lists(inner, max_size=3),
                "m": st.dictionaries(
                    st.text(max_size=2), st.lists(st.none() | inner, max_size=2), max_size=2
                ),
            }
        ),
        max_leaves=8,
    )


PARSED_TREE = parsed(TREE)


@given(value=trees(), filler=st.integers(0, 400))
def test_good_data_passes_whatever_its_length(value: Any, filler: int) -> None:
    value = {**value, "s": "x" * filler}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED_TREE.schema, value)
    expected = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), PARSED_TREE.schema, None)
    assert decoded(out.getvalue(), PARSED_TREE, None) == expected


@given(data=st.binary(max_size=600))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for schema in (PARSED_TREE, parsed({"type": "array", "items": NOTHING})):
        try:
            decoded(data, schema, None)
        except SerializationError as error:
            assert "\n" not in str(error)
