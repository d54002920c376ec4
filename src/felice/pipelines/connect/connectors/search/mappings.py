"""The types of an index's members, from the schema of records.

Source: Confluent's Elasticsearch sink, `Mapping`.
"""

from __future__ import annotations

from typing import Any

from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAP,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Schema,
)

_TYPES = {
    BOOLEAN: "boolean",
    INT8: "byte",
    INT16: "short",
    INT32: "integer",
    INT64: "long",
    FLOAT32: "float",
    FLOAT64: "double",
    BYTES: "binary",
}
_LOGICAL = {DATE: "date", TIME: "date", TIMESTAMP: "date", DECIMAL: "double"}
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}


def mapping_of(schema: Schema | None, *, compact: bool) -> dict[str, Any]:
    """The mapping for documents of a schema. `compact`: maps are objects. Raises `DataError`."""
    if schema is None:
        raise DataError("a mapping needs the schema of values (schema.ignore=true lets the server guess)")
    if schema.name in _LOGICAL:
        return {"type": _LOGICAL[schema.name]}
    if schema.type == ARRAY:
        return mapping_of(schema.value_schema, compact=compact)
    if schema.type == STRUCT:
        return {"properties": {one.name: mapping_of(one.schema, compact=compact) for one in schema.fields}}
    if schema.type == MAP:
        assert schema.key_schema is not None
        if compact and schema.key_schema.type == STRING:
            return {"type": "object"}
        pair = {
            "key": mapping_of(schema.key_schema, compact=compact),
            "value": mapping_of(schema.value_schema, compact=compact),
        }
        return {"type": "nested", "properties": pair}
    if schema.type == STRING:
        return dict(_TEXT)
    found: dict[str, Any] = {"type": _TYPES[schema.type]}
    if schema.has_default and schema.default is not None and schema.type != BYTES:
        found["null_value"] = schema.default
    return found
