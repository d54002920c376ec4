"""Avro schemas in few characters."""

from __future__ import annotations

import json
from typing import Any

from felice.registry.formats.avro import AvroSchema, parse

Json = Any


def record(name: str, *fields: Json, **members: Json) -> Json:
    return {"type": "record", "name": name, **members, "fields": list(fields)}


def field(name: str, schema: Json, **members: Json) -> Json:
    return {"name": name, "type": schema, **members}


def enum(name: str, symbols: str, **members: Json) -> Json:
    return {"type": "enum", "name": name, "symbols": list(symbols), **members}


def fixed(name: str, size: int, **members: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size, **members}


def array(items: Json) -> Json:
    return {"type": "array", "items": items}


def parsed(schema: Json, references: dict[str, Json] | None = None) -> AvroSchema:
    return parse(json.dumps(schema), {name: json.dumps(text) for name, text in (references or {}).items()})
