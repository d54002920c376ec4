"""Schemas of Connect as JSON Schema, and back. Pure.

Keeps true:  a schema that became JSON Schema and comes back is the same: what only Connect has stands in keywords
             `connect.…`.
             What was written by another program becomes the nearest schema of Connect.
Source:      the rules and keywords of Confluent's `JsonSchemaData`: `connect.type`, `connect.index`, `connect.version`,
             `connect.parameters`; a title is a name, a description a doc, and `oneOf` with null is optional.
Differs:     other unions, and what `allOf` and `not` describe, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from felice.pipelines.connect.converters.json_values import Style, from_json, is_of_members, to_json
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAP,
    MOST_PARTS,
    SCALE,
    STRING,
    STRUCT,
    TYPES,
    Field,
    Schema,
)

_PLAIN = {
    **dict.fromkeys((INT8, INT16, INT32, INT64), "integer"),
    **dict.fromkeys((FLOAT32, FLOAT64), "number"),
    BOOLEAN: "boolean",
    STRING: "string",
    BYTES: "string",
}
_NAMES = {FLOAT32: "float32", FLOAT64: "float64"}
"""Connect's own names of types, where JSON envelopes have others."""
_BY_NAME = {name: kind for kind, name in _NAMES.items()} | {kind: kind for kind in TYPES}
_BY_TYPE = {"integer": INT64, "number": FLOAT64, "boolean": BOOLEAN, "string": STRING}
_NULL = {"type": "null"}
_DEPTH = 100


def json_schema(schema: Schema, style: Style, *, is_open: bool = True) -> dict[str, Any]:
    """The JSON Schema. `is_open`: whether objects may have other members. Raises `DataError`."""
    found = _typed(schema, style, is_open)
    if schema.has_default and schema.default is not None:
        found["default"] = to_json(replace(schema, has_default=False), schema.default, style)
    return {"oneOf": [_NULL, found]} if schema.optional else found


def _typed(schema: Schema, style: Style, is_open: bool) -> dict[str, Any]:
    found: dict[str, Any]
    if schema.type == STRUCT:
        members = {
            one.name: {**json_schema(one.schema, style, is_open=is_open), "connect.index": index}
            for index, one in enumerate(schema.fields)
        }
        found = {"type": "object", "properties": members}
        if not is_open:
            found["additionalProperties"] = False
    elif schema.type == ARRAY:
        assert schema.value_schema is not None
        found = {"type": "array", "items": json_schema(schema.value_schema, style, is_open=is_open)}
    elif schema.type == MAP:
        found = _map(schema, style, is_open)
    else:
        kind = "number" if schema.name == DECIMAL else _PLAIN[schema.type]
        found = {"type": kind}
        if schema.type not in (BOOLEAN, STRING):
            found["connect.type"] = _NAMES.get(schema.type, schema.type)
    if schema.name is not None:
        found["title"] = schema.name
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.doc is not None:
        found["description"] = schema.doc
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    return found


def _map(schema: Schema, style: Style, is_open: bool) -> dict[str, Any]:
    assert schema.key_schema is not None and schema.value_schema is not None
    values = json_schema(schema.value_schema, style, is_open=is_open)
    if is_of_members(schema.key_schema, style):
        return {"type": "object", "additionalProperties": values, "connect.type": MAP}
    entry = {"key": json_schema(schema.key_schema, style, is_open=is_open), "value": values}
    return {"type": "array", "items": {"type": "object", "properties": entry}, "connect.type": MAP}


class Reading:
    """Reads one JSON Schema."""

    def __init__(self, root: Any, style: Style, *, may_miss: bool) -> None:
        """`may_miss`: whether members that are not `required` are optional."""
        self._root, self._style, self._may_miss = root, style, may_miss
        self._parts = 0

    def schema(self) -> Schema:
        """The schema of Connect. Raises `DataError` for what Connect cannot hold."""
        return self._read(self._root, 0)

    def _read(self, given: Any, depth: int) -> Schema:
        if depth > _DEPTH:
            raise DataError("the JSON Schema is nested too deep, or it holds itself")
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise DataError(f"the JSON Schema has more than {MOST_PARTS:,} parts")
        given, optional = self._single(self._resolved(given))
        found = self._with_keywords(self._of(given, depth), given)
        return found.made_optional() if optional else found

    def _resolved(self, given: Any) -> dict[str, Any]:
        seen = 0
        while isinstance(given, dict) and "$ref" in given:
            given, seen = self._part(given["$ref"]), seen + 1
            if seen > _DEPTH:
                raise DataError("the JSON Schema has a $ref to itself")
        if not isinstance(given, dict):
            raise DataError(f"Connect needs a JSON Schema with a type, and has {given!r:.60}")
        return given

    def _part(self, reference: Any) -> Any:
        found = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise DataError(f"the JSON Schema refers to {reference!r:.60}, which is not in it")
        for name in filter(None, reference[1:].split("/")):
            name = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise DataError(f"the JSON Schema refers to {reference:.60}, which is not in it")
            found = found[name]
        return found

    def _single(self, given: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """A schema without null, and whether null was allowed. Raises `DataError` for other unions."""
        for keyword in ("oneOf", "anyOf"):
            if keyword in given:
                parts = [self._resolved(one) for one in given[keyword]]
                others = [one for one in parts if one.get("type") != "null"]
                if len(others) != 1:
                    raise DataError(f"a {keyword} of {len(parts)} schemas has no schema in Connect")
                inner, optional = self._single(others[0])
                return inner, optional or len(parts) > 1
        for keyword in ("allOf", "not", "if"):
            if keyword in given:
                raise DataError(f"the keyword {keyword} of JSON Schema has no schema in Connect")
        kinds = given.get("type")
        if isinstance(kinds, list):
            others = [one for one in kinds if one != "null"]
            if len(others) != 1:
                raise DataError(f"a value of {len(others)} types has no schema in Connect")
            return {**given, "type": others[0]}, len(others) < len(kinds)
        return given, False

    def _of(self, given: Mapping[str, Any], depth: int) -> Schema:
        kind = given.get("type", "string" if "enum" in given else None)
        own = given.get("connect.type")
        if own == MAP or (kind == "object" and not given.get("properties") and self._is_map(given)):
            return self._map(given, depth)
        if kind == "object":
            return self._struct(given, depth)
        if kind == "array":
            if "items" not in given:
                raise DataError("Array schema did not specify the items type")
            return Schema(ARRAY, value_schema=self._read(given["items"], depth + 1))
        if own is not None:
            if own not in _BY_NAME:
                raise DataError(f"Unsupported type {own!r:.40}")
            return Schema(_BY_NAME[own])
        if kind not in _BY_TYPE:
            raise DataError(f"Unsupported criterion: a JSON Schema of the type {kind!r:.40}")
        return Schema(_BY_TYPE[kind])

    @staticmethod
    def _is_map(given: Mapping[str, Any]) -> bool:
        return isinstance(given.get("additionalProperties"), dict)

    def _map(self, given: Mapping[str, Any], depth: int) -> Schema:
        if given.get("type") == "object":
            values = self._read(given.get("additionalProperties"), depth + 1)
            return Schema(MAP, key_schema=Schema(STRING), value_schema=values)
        entry = self._resolved(given.get("items")).get("properties", {})
        if not isinstance(entry, dict) or not {"key", "value"} <= entry.keys():
            raise DataError("a map of JSON Schema needs items with a key and a value")
        key, value = (self._read(entry[name], depth + 1) for name in ("key", "value"))
        return Schema(MAP, key_schema=key, value_schema=value)

    def _struct(self, given: Mapping[str, Any], depth: int) -> Schema:
        members = given.get("properties") or {}
        required = given.get("required") or [] if self._may_miss else members
        kept = frozenset(name for name in required if isinstance(name, str))
        # Members without a place keep their order, behind the others.
        names = sorted(members, key=lambda name: self._place(members[name]))
        fields = []
        for name in names:
            schema = self._read(members[name], depth + 1)
            fields.append(Field(name, schema if name in kept else schema.made_optional()))
        return Schema(STRUCT, fields=tuple(fields))

    @staticmethod
    def _place(member: Any) -> float:
        place = member.get("connect.index") if isinstance(member, dict) else None
        return place if isinstance(place, int) else float("inf")

    def _with_keywords(self, schema: Schema, given: Mapping[str, Any]) -> Schema:
        changes: dict[str, Any] = {}
        if isinstance(name := given.get("title"), str):
            changes["name"] = name
        if isinstance(version := given.get("connect.version"), int):
            changes["version"] = version
        if isinstance(doc := given.get("description"), str):
            changes["doc"] = doc
        if isinstance(parameters := given.get("connect.parameters"), dict):
            changes["parameters"] = tuple((str(name), str(value)) for name, value in parameters.items())
        found = replace(schema, **changes) if changes else schema
        if found.name == DECIMAL and found.parameter(SCALE) is None:
            raise DataError("Invalid Decimal schema: its parameter scale is missing")
        default = given.get("default")
        return found if default is None else found.with_default(from_json(found, default, self._style))
