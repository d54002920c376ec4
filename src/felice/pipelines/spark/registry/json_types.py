"""JSON Schema's types as Spark's. What has no single type is a text of JSON.

Members may be null, also those that are required: values are not checked with their schemas when they are read.

Leaves out:  schemas that contain themselves.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from pyspark.sql.types import BooleanType, DoubleType, LongType, NullType, StringType

from felice.pipelines.spark.registry.mapping import Mapped, array_of, map_of, refused, struct_of

_SIMPLE = {
    "boolean": Mapped(BooleanType()),
    "integer": Mapped(LongType(), lambda value: int(value)),
    "number": Mapped(DoubleType(), lambda value: float(value)),
    "string": Mapped(StringType()),
    "null": Mapped(NullType(), nullable=True),
}


def json_mapping(schema: Any, references: dict[str, Any]) -> Mapped:
    """The type of a schema. `references` are the schemas that it names. Raises `QueryError` for one that has none."""
    return _Types(schema, references).of(schema, "", ())


def _as_text() -> Mapped:
    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    return Mapped(StringType(), text, json.loads)


class _Types:
    def __init__(self, root: Any, references: dict[str, Any]) -> None:
        self._root, self._references = root, references

    def of(self, schema: Any, path: str, opened: tuple[str, ...]) -> Mapped:
        """The type of a schema at a place in the whole. `opened` are the references that contain it."""
        if not isinstance(schema, dict):
            return _nullable(_as_text())
        if "$ref" in schema:
            name = schema["$ref"]
            if name in opened:
                raise refused(path, f"{name} contains itself")
            return self.of(self._target(name, path), path, (*opened, name))
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return self._one_of(schema[keyword], path, opened)
        kinds = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kinds, list):
            given = [kind for kind in kinds if kind != "null"]
            one = self._typed(schema, given[0], path, opened) if len(given) == 1 else _as_text()
            return _nullable(one) if "null" in kinds else one
        return _nullable(_as_text()) if kinds is None else self._typed(schema, kinds, path, opened)

    def _typed(self, schema: dict[str, Any], kind: str, path: str, opened: tuple[str, ...]) -> Mapped:
        if kind == "array":
            items = schema.get("items")
            return array_of(self.of(items, f"{path}[]", opened))
        if kind != "object":
            return _SIMPLE.get(kind) or _as_text()
        properties = schema.get("properties")
        if properties:
            return struct_of(
                (name, _nullable(self.of(one, f"{path}.{name}".lstrip("."), opened)))
                for name, one in properties.items()
            )
        return map_of(
            self.of(schema.get("additionalProperties"), f"{path}{{}}", opened), Mapped(StringType())
        )

    def _one_of(self, branches: list[Any], path: str, opened: tuple[str, ...]) -> Mapped:
        given = [one for one in branches if not (isinstance(one, dict) and one.get("type") == "null")]
        one = self.of(given[0], path, opened) if len(given) == 1 else _as_text()
        return _nullable(one) if len(given) < len(branches) else one

    def _target(self, name: str, path: str) -> Any:
        document, _, pointer = name.partition("#")
        found: Any = self._references.get(document) if document else self._root
        try:
            for step in pointer.lstrip("/").split("/") if pointer else ():
                step = unquote(step).replace("~1", "/").replace("~0", "~")
                found = found[int(step)] if isinstance(found, list) else found[step]
        except (KeyError, IndexError, TypeError, ValueError):
            found = None
        if found is None:
            raise refused(path, f"the reference {name} leads to nothing")
        return found


def _nullable(one: Mapped) -> Mapped:
    return Mapped(one.type, one.read, one.write, True)
