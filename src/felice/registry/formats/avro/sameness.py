"""Whether two definitions of one name are equal: then a schema may contain both.

As Java's `Schema.equals`: names, fields, sizes, symbols and properties count, documentation and aliases do not.
"""

from __future__ import annotations

from felice.registry.formats.avro.model import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
)
from felice.registry.formats.json_text import Json, encode


def same(one: Schema, other: Schema) -> bool:
    """Whether two types are equal. Recursive types are compared once for each pair."""
    pairs, seen = [(one, other)], set[tuple[int, int]]()
    while pairs:
        left, right = pairs.pop()
        if left is right or (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        inner = _inner_pairs(left, right)
        if inner is None:
            return False
        pairs += inner
    return True


def _inner_pairs(one: Schema, other: Schema) -> list[tuple[Schema, Schema]] | None:
    """The types inside two types that must be equal, too; None if the two already differ."""
    match one, other:
        case Primitive(), Primitive():
            return [] if one.kind == other.kind and _same_json(one.props, other.props) else None
        case Array(), Array():
            return [(one.items, other.items)] if _same_json(one.props, other.props) else None
        case Map(), Map():
            return [(one.values, other.values)] if _same_json(one.props, other.props) else None
        case Union(), Union():
            same_size = len(one.branches) == len(other.branches)
            return list(zip(one.branches, other.branches, strict=True)) if same_size else None
        case Enum(), Enum():
            equal = one.symbols == other.symbols and one.name.full == other.name.full
            return [] if equal and _same_json(one.props, other.props) else None
        case Fixed(), Fixed():
            equal = one.size == other.size and one.name.full == other.name.full
            return [] if equal and _same_json(one.props, other.props) else None
        case Record(), Record():
            return _field_pairs(one, other)
    return None


def _field_pairs(one: Record, other: Record) -> list[tuple[Schema, Schema]] | None:
    equal = one.name.full == other.name.full and len(one.fields) == len(other.fields)
    if not equal or not _same_json(one.props, other.props):
        return None
    pairs = list(zip(one.fields, other.fields, strict=True))
    if not all(_same_field(left, right) for left, right in pairs):
        return None
    return [(left.type, right.type) for left, right in pairs]


def _same_field(one: Field, other: Field) -> bool:
    if (one.name, one.order, one.has_default) != (other.name, other.order, other.has_default):
        return False
    same_default = not one.has_default or _same_json(one.default, other.default)
    return same_default and _same_json(one.props, other.props)


def _same_json(one: Json, other: Json) -> bool:
    """Equality by type and value; the order of members does not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_json(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_json, one, other))
    return type(one) is type(other) and encode(one) == encode(other)
