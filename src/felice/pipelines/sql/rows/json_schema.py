"""JSON_SR: JSON with Confluent's header, and schemas of JSON Schema as columns; columns as the schema ksqlDB makes.

every property is nullable: oneOf null and its type; `connect.index` is the place of its column
INTEGER, BIGINT, DOUBLE            integer (connect.type int32, int64), number (float64)
DECIMAL, DATE, TIME, TIMESTAMP     numbers with Connect's title, such as org.apache.kafka.connect.data.Date
BYTES                              string (connect.type bytes)
MAP                                object (connect.type map) whose additionalProperties are the values
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from felice.pipelines.sql.rows.columns import Columns
from felice.pipelines.sql.rows.json import object_reader, object_writer, value_reader, value_writer
from felice.pipelines.sql.rows.registry import JSON, References, RegisteredText
from felice.pipelines.sql.rows.schema_format import SchemaFormat, expect_type
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

Node = Any

_CONNECT = "org.apache.kafka.connect.data."
_PRECISION = "connect.decimal.precision"
_DEFAULT_PRECISION = 64


def _logical(name: str, type_: str, kind: str) -> dict[str, Any]:
    return {"type": type_, "title": _CONNECT + name, "connect.version": 1, "connect.type": kind}


_SIMPLE: dict[SqlType, dict[str, Any]] = {
    BOOLEAN: {"type": "boolean"},
    INTEGER: {"type": "integer", "connect.type": "int32"},
    BIGINT: {"type": "integer", "connect.type": "int64"},
    DOUBLE: {"type": "number", "connect.type": "float64"},
    STRING: {"type": "string"},
    BYTES: {"type": "string", "connect.type": "bytes"},
    DATE: _logical("Date", "integer", "int32"),
    TIME: _logical("Time", "integer", "int32"),
    TIMESTAMP: _logical("Timestamp", "integer", "int64"),
}
_TITLES = {node["title"]: type_ for type_, node in _SIMPLE.items() if "title" in node}
_INTEGERS: dict[str | None, SqlType] = {"int8": INTEGER, "int16": INTEGER, "int32": INTEGER}


class JsonSchemaFormat(SchemaFormat):
    """Rows in JSON after the id of a JSON Schema, which does not decide how they are read."""

    name = "JSON_SR"

    def own_schema(self) -> tuple[str, str]:
        """The type and text of the schema of the columns."""
        return JSON, schema_of(self.columns, self.full_name, self.is_bare)

    def writer_of(self, schema: RegisteredText) -> Callable[[Any], bytes]:
        """The function that writes values."""
        expect_type(schema, JSON)
        if self.is_bare:
            return value_writer(self.columns[0][1])
        _check_needed(schema, {name for name, _ in self.columns})
        return object_writer(self.columns)

    def reader_of(self, schema: RegisteredText) -> Callable[[bytes], Any]:
        """The function that reads values."""
        expect_type(schema, JSON)
        return value_reader(self.columns[0][1]) if self.is_bare else object_reader(self.columns).read


def _check_needed(schema: RegisteredText, names: set[str]) -> None:
    """Raise ValueError for a property that a schema requires, and no column writes."""
    root = json.loads(schema.text)
    properties = root.get("properties") if isinstance(root, dict) else None
    if not properties:
        return
    for name in root.get("required", ()):
        node = properties.get(name)  # true, too, is a schema
        if name not in names and not (isinstance(node, dict) and "default" in node):
            raise ValueError(
                f"Missing default value for required field: [{name}]. This field appears in JSON_SR schema in Schema "
                "Registry"
            )


def schema_of(columns: Columns, full_name: str | None, is_bare: bool) -> str:
    """The schema of columns; with `is_bare`, of the single column's values."""
    node = _node(columns[0][1]) if is_bare else _object(columns)
    return json.dumps(node if full_name is None else node | {"title": full_name})


def _object(fields: Columns) -> dict[str, Any]:
    properties = {name: _nullable(type_, place) for place, (name, type_) in enumerate(fields)}
    return {"type": "object", "properties": properties}


def _nullable(type_: SqlType, place: int | None = None) -> Node:
    index = {} if place is None else {"connect.index": place}
    return index | {"oneOf": [{"type": "null"}, _node(type_)]}


def _node(type_: SqlType) -> dict[str, Any]:
    match type_:
        case Decimal(precision, scale):
            parameters = {"scale": str(scale), _PRECISION: str(precision)}
            return _logical("Decimal", "number", "bytes") | {"connect.parameters": parameters}
        case Array(element):
            return {"type": "array", "items": _nullable(element)}
        case Map(_, member):
            return {"type": "object", "connect.type": "map", "additionalProperties": _nullable(member)}
        case Struct(fields):
            return _object(fields)
        case _:
            return _SIMPLE[type_]


def type_of_schema(text: str, references: References, fold: Callable[[str], str]) -> SqlType | None:
    """The type of a schema's values; as that of `avro_schema`."""
    return _Types(json.loads(text), dict(references), fold).of_root()


class _Types:
    """The types of a schema's parts; None for what SQL does not have."""

    def __init__(self, root: Node, references: dict[str, str], fold: Callable[[str], str]) -> None:
        self._root, self._references, self._fold = root, references, fold

    def of_root(self) -> SqlType | None:
        return self._of(self._root, ())

    def _of(self, node: Node, within: tuple[str, ...]) -> SqlType | None:
        if not isinstance(node, dict):
            return None
        if (reference := node.get("$ref")) is not None:
            if reference in within:
                raise ValueError(f"the schema {reference} contains itself")
            return self._of(self._referred(reference), (*within, reference))
        for choice in ("oneOf", "anyOf"):
            if choice in node:
                return self._of_choice(node[choice], within)
        kind = node.get("type")
        if isinstance(kind, list):
            return self._of_choice([node | {"type": one} for one in kind], within)
        if "enum" in node and kind in (None, "string"):
            return STRING
        return self._of_kind(node, kind, within)

    def _of_choice(self, nodes: list[Node], within: tuple[str, ...]) -> SqlType | None:
        others = [node for node in nodes if not (isinstance(node, dict) and node.get("type") == "null")]
        return self._of(others[0], within) if len(others) == 1 else None

    def _referred(self, reference: str) -> Node:
        name, _, pointer = reference.partition("#")
        found = json.loads(self._references[name]) if name in self._references else self._root
        if name and name not in self._references:
            raise ValueError(f"the schema refers to {name}, which is not one of its references")
        for part in filter(None, pointer.split("/")):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if found is None:
            raise ValueError(f"the schema refers to {reference}, which is not in it")
        return found

    def _of_kind(self, node: dict[str, Any], kind: Any, within: tuple[str, ...]) -> SqlType | None:
        connect = node.get("connect.type")
        title = str(node.get("title"))
        if title == f"{_CONNECT}Decimal":
            parameters = node.get("connect.parameters") or {}
            return Decimal(
                int(parameters.get(_PRECISION, _DEFAULT_PRECISION)), int(parameters.get("scale", 0))
            )
        if kind == "integer":
            return _TITLES.get(title) or _INTEGERS.get(connect, BIGINT)
        if kind == "number":
            return _TITLES.get(title) or _NUMBERS.get(connect, DOUBLE)
        if kind == "string":
            return BYTES if connect == "bytes" else STRING
        if kind == "boolean":
            return BOOLEAN
        if kind == "array":
            return self._of_array(node, connect, within)
        if kind == "object" or (kind is None and "properties" in node):
            return self._of_object(node, connect, within)
        return None

    def _of_array(self, node: dict[str, Any], connect: Any, within: tuple[str, ...]) -> SqlType | None:
        items = node.get("items")
        pair = items.get("properties") if connect == "map" and isinstance(items, dict) else None
        element = self._of(items if pair is None else pair.get("value"), within)
        if element is None:
            return None
        return Array(element) if pair is None else Map(STRING, element)

    def _of_object(self, node: dict[str, Any], connect: Any, within: tuple[str, ...]) -> SqlType | None:
        if connect == "map":
            member = self._of(node.get("additionalProperties"), within)
            return None if member is None else Map(STRING, member)
        placed = sorted(
            enumerate((node.get("properties") or {}).items()),
            key=lambda item: (
                item[1][1].get("connect.index", item[0]) if isinstance(item[1][1], dict) else item[0]
            ),
        )
        types = ((name, self._of(one, within)) for _, (name, one) in placed)
        fields = tuple((self._fold(name), type_) for name, type_ in types if type_ is not None)
        return Struct(fields) if fields else None


_NUMBERS: dict[str | None, SqlType] = {**_INTEGERS, "int64": BIGINT}
