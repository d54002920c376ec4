"""Random schemas with values of theirs: formats of streams and columns of Spark read what they wrote, and refuse the
rest.
"""

from __future__ import annotations

import itertools
import json
import math
import struct
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from felice.client.schema_registry import Schema
from felice.pipelines.errors import FormatError
from felice.pipelines.registry_clients import RegistryAddress
from felice.streams import avro, json_schema, protobuf

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A schema, and its values."""

INT, LONG = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
FLOAT = st.floats(width=32, allow_nan=False)
DOUBLE = st.floats(allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
REGISTRY = "mock://round-trips"
_numbers = itertools.count()

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": st.binary(max_size=5),
    "string": TEXT,
}


def avro_types(depth: int = 3) -> st.SearchStrategy[Typed]:
    """Random Avro schemas without names of the same type twice."""
    leaves: st.SearchStrategy[Typed] = (
        st.sampled_from([*SIMPLE.items()]) | st.builds(_enum) | st.builds(_fixed)
    )
    if not depth:
        return leaves
    inner = avro_types(depth - 1)
    nullable = inner.filter(lambda one: not isinstance(one[0], list))
    return (
        leaves
        | inner.map(lambda one: ({"type": "array", "items": one[0]}, st.lists(one[1], max_size=3)))
        | inner.map(
            lambda one: ({"type": "map", "values": one[0]}, st.dictionaries(TEXT, one[1], max_size=3))
        )
        | nullable.map(lambda one: (["null", one[0]], st.none() | one[1]))
        | records(inner)
    )


def _enum() -> Typed:
    return {"type": "enum", "name": f"E{next(_numbers)}", "symbols": ["A", "B"]}, st.sampled_from("AB")


def _fixed() -> Typed:
    return {"type": "fixed", "name": f"F{next(_numbers)}", "size": 2}, st.binary(min_size=2, max_size=2)


def records(members: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Records of these members."""

    def record(types: list[Typed]) -> Typed:
        fields = [{"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(types)]
        values = {f"f{number}": one for number, (_, one) in enumerate(types)}
        return {"type": "record", "name": f"R{next(_numbers)}", "fields": fields}, st.fixed_dictionaries(
            values
        )

    return st.lists(members, max_size=4).map(record)


@given(records(avro_types()), st.data())
def test_avro(kind: Typed, data: st.DataObject) -> None:
    schema, values = kind
    format_ = avro(REGISTRY, json.dumps(schema))
    value = data.draw(values)
    assert format_.read(format_.write(value)) == value
    with pytest.raises(FormatError, match="the field more: 1 would be lost"):
        format_.encode(value | {"more": 1})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*SIMPLE, "array", "map"]), ANYTHING)
def test_avro_writes_no_other_value(kind: str, value: Any) -> None:
    schema = {"type": kind, "items": "long", "values": "double"}
    format_ = avro(REGISTRY, json.dumps(schema), subject="s")
    try:
        data = format_.encode(value)
    except FormatError:
        return
    if data is not None:
        found = format_.read(data)
        if kind == "float":
            value = math.nan if value != value else struct.unpack("<f", struct.pack("<f", value))[0]
        assert _same(found, value.encode() if kind == "bytes" and isinstance(value, str) else value)


@given(ANYTHING)
def test_json_writes_no_other_value(value: Any) -> None:
    format_ = json_schema(REGISTRY, "{}", subject="j")
    try:
        data = format_.encode({"": value})
    except FormatError:
        return
    assert format_.decode(data) == {"": value}


@given(
    st.dictionaries(
        TEXT, st.sampled_from([("integer", st.integers()), ("number", DOUBLE), ("string", TEXT)])
    ),
    st.data(),
)
def test_json_schema(members: dict[str, tuple[str, st.SearchStrategy[Any]]], data: st.DataObject) -> None:
    properties = {name: {"type": kind} for name, (kind, _) in members.items()}
    value = data.draw(st.fixed_dictionaries({name: one for name, (_, one) in members.items()}))
    format_ = json_schema(REGISTRY, json.dumps({"type": "object", "properties": properties}), subject="j")
    if all(math.isfinite(one) for one in value.values() if isinstance(one, float)):
        assert format_.read(format_.write(value)) == value


_P = FieldDescriptorProto
PROTOBUF: list[tuple[int, st.SearchStrategy[Any]]] = [
    (_P.TYPE_INT32, INT),
    (_P.TYPE_SINT64, LONG),
    (_P.TYPE_UINT32, st.integers(0, (1 << 32) - 1)),
    (_P.TYPE_FIXED64, st.integers(0, (1 << 64) - 1)),
    (_P.TYPE_BOOL, st.booleans()),
    (_P.TYPE_FLOAT, FLOAT),
    (_P.TYPE_DOUBLE, DOUBLE),
    (_P.TYPE_STRING, TEXT),
    (_P.TYPE_BYTES, st.binary(max_size=5)),
]


def message_class(kinds: list[int], repeated: list[bool]) -> Any:
    """The class of a message with fields of these kinds, and a field `inner` of its own type."""
    message = DescriptorProto(name="M")
    for number, (kind, many) in enumerate(zip(kinds, repeated, strict=True), 1):
        label = _P.LABEL_REPEATED if many else _P.LABEL_OPTIONAL
        message.field.add(name=f"f{number}", number=number, type=kind, label=label)  # type: ignore[arg-type]
    inner = message.field.add(name="inner", number=100, type=_P.TYPE_MESSAGE, label=_P.LABEL_OPTIONAL)
    inner.type_name = ".M"
    file = FileDescriptorProto(name=f"m{next(_numbers)}.proto", syntax="proto3", message_type=[message])
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("M"))


@given(st.lists(st.tuples(st.sampled_from(PROTOBUF), st.booleans()), max_size=5), st.data())
def test_protobuf(fields: list[tuple[tuple[int, st.SearchStrategy[Any]], bool]], data: st.DataObject) -> None:
    made = message_class([kind for (kind, _), _ in fields], [many for _, many in fields])

    def values() -> dict[str, Any]:
        return {
            f"f{number}": data.draw(st.lists(one, max_size=3) if many else one)
            for number, ((_, one), many) in enumerate(fields, 1)
        }

    message = made(**values(), inner=made(**values()))
    format_ = protobuf(REGISTRY, made, subject=f"p{next(_numbers)}")
    found = format_.read(format_.write(message))
    assert found == message and type(found) is made
    assert format_.unpack(format_.pack(message)) == message


@given(records(avro_types(2)), st.data())
def test_columns_of_avro(kind: Typed, data: st.DataObject) -> None:
    pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    from felice.pipelines.spark.registry.columns import _Reading, _Writing
    from felice.pipelines.spark.registry.target import Target

    schema, values = kind
    address, subject = RegistryAddress.of(REGISTRY), f"c{next(_numbers)}"
    address.client().register_schema(subject, Schema(json.dumps(schema), "AVRO"))
    target = Target.of(address, subject, None, "")
    column = pa.array(data.draw(st.lists(values, max_size=3)), to_arrow_type(target.coder().mapped.type))
    assert _Reading(target, "FAILFAST").column(_Writing(target).column(column)) == column


def _same(one: Any, other: Any) -> bool:
    """Whether both are equal and of one type; 1 and 1.0 are the same number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, int | float):
        return one == other or (one != one and other != other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
