"""Limits of Avro data that a few bytes could exceed, checked before fastavro reads them; pure.

Keeps true:  data that is read is nested at most `MAX_DEPTH` levels deep, and has at most `MAX_FREE_ITEMS` items that
             take no bytes.
Why:         fastavro's compiled functions call themselves for each level: a message of 5,000 bytes with a record that
             contains itself ends the process. An array of nulls of any length takes ten bytes.
How:         a schema without recursion and without items of no bytes cannot exceed these limits, and costs nothing.
             Otherwise the data is walked through once without making objects, unless it is too short to be nested deep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from felice.client.serialization import SerializationError

MAX_DEPTH = 1000
"""Levels of records, arrays, maps and unions. A thread with a stack of 1 MiB reads some 1,500."""

MAX_FREE_ITEMS = 100_000
"""Items that take no bytes, such as nulls, in all arrays of a message."""

_SHORT_BYTES = 250
_NAMED = ("record", "error", "enum", "fixed")
_SIZES = {"boolean": 1, "float": 4, "double": 8}


class _End(Exception):
    """The data ends too early; fastavro reports it."""


class Shape:
    """What a parsed schema allows its data to be."""

    def __init__(self, schema: Any) -> None:
        self.root = schema
        self.names: dict[str, Any] = {}
        self.recursive = False
        self.has_free_items = False
        self._define(schema)
        self._look(schema, frozenset())

    def _define(self, schema: Any) -> None:
        for part in _parts(schema):
            self._define(part)
        if isinstance(schema, dict) and schema.get("type") in _NAMED:
            self.names[schema["name"]] = schema

    def _look(self, schema: Any, inside: frozenset[str]) -> None:
        if isinstance(schema, str):
            self.recursive |= schema in inside
            return
        if isinstance(schema, dict):
            if schema.get("type") in _NAMED:
                inside |= {schema["name"]}
            if schema.get("type") == "array":
                self.has_free_items |= self.is_free(schema["items"], frozenset())
        for part in _parts(schema):
            self._look(part, inside)

    def is_free(self, schema: Any, seen: frozenset[str]) -> bool:
        """Whether a value takes no bytes."""
        if isinstance(schema, str):
            named = schema in self.names and schema not in seen
            return schema == "null" or (named and self.is_free(self.names[schema], seen | {schema}))
        if isinstance(schema, list):
            return False
        kind = schema["type"]
        if kind in ("record", "error"):
            inner = seen | {schema["name"]}
            return all(self.is_free(part["type"], inner) for part in schema["fields"])
        if kind == "fixed":
            return bool(schema["size"] == 0)
        return kind == "null" or (isinstance(kind, dict | list) and self.is_free(kind, seen))

    def check(self, data: bytes) -> None:
        """Raise `SerializationError` for data beyond the limits."""
        if self.has_free_items or (self.recursive and len(data) > _SHORT_BYTES):
            _Walk(self, data).check()


def _parts(schema: Any) -> list[Any]:
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return []
    kind = schema.get("type")
    if kind in ("record", "error"):
        return [field["type"] for field in schema["fields"]]
    if kind in ("array", "map"):
        return [schema["items" if kind == "array" else "values"]]
    return [kind] if isinstance(kind, dict | list) else []


class _Walk:
    def __init__(self, shape: Shape, data: bytes) -> None:
        self._shape, self._data, self._at, self._free = shape, data, 0, 0

    def check(self) -> None:
        levels: list[Iterator[Any]] = [iter([self._shape.root])]
        try:
            while levels:
                schema = next(levels[-1], self)
                if schema is self:
                    levels.pop()
                elif (inner := self._enter(schema)) is not None:
                    levels.append(inner)
                    if len(levels) > MAX_DEPTH:
                        raise SerializationError(f"the Avro data is nested more than {MAX_DEPTH} levels deep")
        except _End:
            return

    def _enter(self, schema: Any) -> Iterator[Any] | None:
        """Read a value, or begin one that has parts. Returns their schemas, each to be read before the next."""
        schema = self._shape.names.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(schema, list):
            index = self._long()
            return iter(schema[index : index + 1]) if index >= 0 else None
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            return iter([kind])
        if kind in ("record", "error"):
            return iter([field["type"] for field in schema["fields"]])
        if kind == "array":
            return self._blocks([schema["items"]], self._shape.is_free(schema["items"], frozenset()))
        if kind == "map":
            return self._blocks(["string", schema["values"]], False)
        self._skip(kind, schema)
        return None

    def _skip(self, kind: str, schema: Any) -> None:
        if kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("bytes", "string"):
            self._forward(self._long())
        elif kind == "fixed":
            self._forward(schema["size"])
        else:
            self._forward(_SIZES.get(kind, 0))

    def _blocks(self, item: list[Any], is_free: bool) -> Iterator[Any]:
        while (count := self._long()) != 0:
            if count < 0:
                count = -count
                self._long()
            if is_free:
                self._free += count
                if self._free > MAX_FREE_ITEMS:
                    raise SerializationError(
                        f"the Avro data has more than {MAX_FREE_ITEMS} items of no bytes"
                    )
                continue
            for _ in range(count):
                yield from item

    def _forward(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise _End

    def _long(self) -> int:
        value, shift = 0, 0
        while True:
            if self._at >= len(self._data):
                raise _End
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
