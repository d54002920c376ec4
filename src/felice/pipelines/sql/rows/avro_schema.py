"""Avro schemas as columns, and columns as the schema that ksqlDB makes of them; pure.

every field is nullable: ["null", type], default null
DECIMAL, DATE, TIME, TIMESTAMP     logical types decimal, date, time-millis, timestamp-millis
MAP                                an array of records with the fields key and value: a key may be of any type, or null
STRUCT in a column C               a record NAME_C; below maps NAME_C_MapKey and NAME_C_MapValue

A union of several types is a STRUCT, as in Connect. The STRUCT has a field for each type, and one field has a value. A
field has the name of its record or enumeration, or Avro's name of its type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.description import AVRO_NAMESPACE
from felice.pipelines.sql.rows.registry import References
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

DEFAULT_NAME = f"{AVRO_NAMESPACE}.KsqlDataSourceSchema"
MAP_ENTRY = "MapEntry"
ENTRY_TYPE = "connect.internal.type"
"""What marks the records that maps are made of."""
_OLD_ENTRY = "io.confluent.connect.avro.MapEntry"

MEMBER = "felice.member"
"""The property that marks a record which stands for a type of a union."""
BRANCHES = "felice.branches"
"""In the one type of a union of several: the records for its types, by the names of its fields."""

Node = Any
"""A part of a parsed schema: a name, a list (a union) or an object."""

_SIMPLE: dict[SqlType, Node] = {
    BOOLEAN: "boolean",
    INTEGER: "int",
    BIGINT: "long",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
    DATE: {"type": "int", "logicalType": "date"},
    TIME: {"type": "int", "logicalType": "time-millis"},
    TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
}
_TYPES: dict[str, SqlType] = {
    "boolean": BOOLEAN,
    "int": INTEGER,
    "long": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "enum": STRING,
    "fixed": BYTES,
}
_LOGICAL = {
    (node["type"], node["logicalType"]): type_ for type_, node in _SIMPLE.items() if isinstance(node, dict)
}


def field_name(name: str) -> str:
    """The name of the field of a column."""
    return name.replace(".", "_")


def schema_of(columns: Columns, full_name: str | None, is_bare: bool) -> str:
    """The schema of columns; with `is_bare`, of the single column's values."""
    name = full_name or DEFAULT_NAME
    if is_bare:
        ((_, type_),) = columns
        return json.dumps(_node(type_, name))
    return json.dumps(_record(columns, name))


def _record(fields: Columns, name: str) -> Node:
    made = [
        {"name": field_name(one), "type": ["null", _node(type_, f"{name}_{one}")], "default": None}
        for one, type_ in fields
    ]
    return _named(name) | {"fields": made}


def _named(name: str) -> dict[str, Any]:
    namespace, _, last = name.rpartition(".")
    return {"type": "record", "name": last} | ({"namespace": namespace} if namespace else {})


def _node(type_: SqlType, name: str) -> Node:
    match type_:
        case Decimal(precision, scale):
            return {"type": "bytes", "scale": scale, "precision": precision, "logicalType": "decimal"}
        case Array(element):
            return {"type": "array", "items": ["null", _node(element, name)]}
        case Map(key, member):
            pair = (("key", _node(key, f"{name}_MapKey")), ("value", _node(member, f"{name}_MapValue")))
            fields = [{"name": one, "type": ["null", node], "default": None} for one, node in pair]
            return {
                "type": "array",
                "items": _named(name) | {"fields": fields, ENTRY_TYPE: MAP_ENTRY},
            }
        case Struct(fields):
            return _record(fields, name)
        case _:
            return _SIMPLE[type_]


class Names:
    """The named types of a parsed schema."""

    def __init__(self, schema: Node) -> None:
        self._types = {node["name"]: node for node in _nodes(schema) if "name" in node}

    def resolved(self, node: Node) -> Node:
        """The node that a name stands for, with an object for each primitive type. A union stays as it is."""
        if isinstance(node, list):
            return node
        if isinstance(node, str):
            return self._types.get(node, {"type": node})
        inner = node["type"]
        return (
            node
            if isinstance(inner, str) and inner not in self._types
            else self.resolved(inner) | {name: value for name, value in node.items() if name != "type"}
        )

    def is_nullable(self, node: Node) -> bool:
        """Whether a node allows null."""
        found = self.resolved(node)
        return "null" in found if isinstance(found, list) else bool(found["type"] == "null")

    def alone(self, node: Node) -> tuple[Node, bool]:
        """The one type of a node that is not null, and whether null is also allowed. Raises ValueError for others."""
        found = self.resolved(node)
        if not isinstance(found, list):
            return found, False
        branches = [branch for branch in map(self.resolved, found) if branch["type"] != "null"]
        is_nullable = len(branches) < len(found)
        if len(branches) == 1 and not branches[0].get(MEMBER):
            return branches[0], is_nullable
        if not branches:
            raise ValueError("a union of no types is not supported")
        fields = [field for branch in branches for field in branch["fields"]]
        names = {field["name"]: branch["name"] for field, branch in zip(fields, branches, strict=True)}
        if len(names) != len(fields):
            raise ValueError("a union has two types of the same name")
        return {"type": "record", "name": branches[0]["name"], "fields": fields, BRANCHES: names}, is_nullable


def _nodes(node: Node) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for one in node:
            yield from _nodes(one)
    elif isinstance(node, dict):
        if node.get("type") in ("record", "error", "enum", "fixed"):
            yield node
        for one in (node.get("type"), node.get("items"), node.get("values")):
            yield from _nodes(one)
        for field in node.get("fields", ()):
            yield from _nodes(field["type"])


def entry_of(node: Node, names: Names) -> tuple[Node, Node] | None:
    """The types of key and value, if an array's node is that of a map."""
    items = names.resolved(node["items"])
    if isinstance(items, list) or items["type"] != "record":
        return None
    if items.get(ENTRY_TYPE) != MAP_ENTRY and items["name"] != _OLD_ENTRY:
        return None
    fields = {field["name"]: field["type"] for field in items["fields"]}
    return (fields["key"], fields["value"]) if set(fields) == {"key", "value"} else None


def decimal_type(node: Node) -> Decimal | None:
    """The type of the decimals that a node's bytes stand for; None if they are only bytes."""
    if node.get("logicalType") != "decimal" or node["type"] not in ("bytes", "fixed"):
        return None
    precision, scale = node.get("precision"), node.get("scale", 0)
    # Avro ignores a logical type that is not right.
    is_right = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision
    return Decimal(precision, scale) if is_right else None


def parsed(text: str, references: References) -> Node:
    """The parsed schema, in which each name is full. Raises ValueError for one that is not right."""
    from felice.client.schema_registry.avro_format import AvroFormat

    try:
        return _Unions().of_records(AvroFormat().parse(text, list(references)).schema)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"the Avro schema cannot be used: {error}") from error


def defaults_of(text: str, references: References) -> dict[str, Any]:
    """The defaults of a record's fields that cannot be null, by name. Raises ValueError.

    As in Connect, a field that can be null has no default other than null.
    """
    schema = parsed(text, references)
    names = Names(schema)
    return {
        one["name"]: one["default"]
        for one in (schema.get("fields", ()) if isinstance(schema, dict) else ())
        if one.get("default") is not None and not names.is_nullable(one["type"])
    }


class _Unions:
    """Makes the types of unions distinct: a record of one field has the same bytes as the field alone."""

    def __init__(self) -> None:
        self._count = 0

    def of_records(self, node: Node) -> Node:
        """The node with a record for each type of its unions, except in unions of null and one type."""
        if isinstance(node, list):
            is_plain = (len(node) == 2 and "null" in node) or node == ["null"]
            return [
                one if is_plain or one == "null" else self._member(one) for one in map(self.of_records, node)
            ]
        if not isinstance(node, dict):
            return node
        made = {name: self.of_records(node[name]) for name in ("type", "items", "values") if name in node}
        if "fields" in node:
            made["fields"] = list(map(self._field, node["fields"]))
        return node | made

    def _member(self, node: Node) -> Node:
        self._count += 1
        field = {"name": member_name(node), "type": node}
        return {"type": "record", "name": f"felice.Member{self._count}", "fields": [field], MEMBER: True}

    def _field(self, field: dict[str, Any]) -> dict[str, Any]:
        type_ = self.of_records(field["type"])
        default = field.get("default")
        first = type_[0] if isinstance(type_, list) else None
        if default is None or not isinstance(first, dict) or MEMBER not in first:
            return field | {"type": type_}
        # The default of a union is a value of its first type.
        return field | {"type": type_, "default": {first["fields"][0]["name"]: default}}


def member_name(node: Node) -> str:
    """How Connect names a type of a union."""
    if isinstance(node, str):
        return node.rpartition(".")[2]
    is_named = node["type"] in ("record", "error", "enum")
    return str(node["name"]).rpartition(".")[2] if is_named else str(node["type"])


def type_of_schema(text: str, references: References, fold: Callable[[str], str]) -> SqlType | None:
    """The type of a schema's values; None if SQL does not have it. Fields whose types SQL lacks are left out.

    `fold` makes the names of fields. Raises ValueError for a schema that is not right, or contains itself.
    """
    schema = parsed(text, references)
    return _type(schema, Names(schema), fold, ())


def _type(node: Node, names: Names, fold: Callable[[str], str], within: tuple[str, ...]) -> SqlType | None:
    try:
        found, _ = names.alone(node)
    except ValueError:
        return None
    kind = found["type"]
    if kind == "array":
        return _array_type(found, names, fold, within)
    if kind == "map":
        member = _type(found["values"], names, fold, within)
        return None if member is None else Map(STRING, member)
    if kind in ("record", "error"):
        return _struct_type(found, names, fold, within)
    if (decimals := decimal_type(found)) is not None:
        return decimals
    return _LOGICAL.get((kind, found.get("logicalType")), _TYPES.get(kind))


def _array_type(
    node: Node, names: Names, fold: Callable[[str], str], within: tuple[str, ...]
) -> SqlType | None:
    entry = entry_of(node, names)
    element = _type(node["items"] if entry is None else entry[1], names, fold, within)
    if element is None:
        return None
    return Array(element) if entry is None else Map(STRING, element)


def _struct_type(
    node: Node, names: Names, fold: Callable[[str], str], within: tuple[str, ...]
) -> SqlType | None:
    name = node["name"]
    if name in within:
        raise ValueError(f"the record {name} contains itself")
    types = ((field["name"], _type(field["type"], names, fold, (*within, name))) for field in node["fields"])
    fields = tuple((fold(one), type_) for one, type_ in types if type_ is not None)
    return Struct(fields) if fields else None
