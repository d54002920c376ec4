"""Schemas of Connect as schemas of Avro, and values both ways. Pure.

Keeps true:  a schema that became Avro's and comes back is the same: properties `connect.…` hold what only Connect has.
             What was written by another program becomes the nearest schema of Connect.
Source:      the rules and names of Confluent's `AvroData`: `connect.name`, `connect.version`, `connect.type`,
             `connect.default`, `connect.parameters`; records `ConnectDefault` and `MapEntry` in its namespace.
Differs:     unions of several types are refused. Enumerations are read as texts.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    MOST_PARTS,
    SCALE,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    Struct,
)

Avro = Any
"""A schema of Avro as JSON."""
Defined = dict[str, object]
"""The records that were defined, by their names."""

NAMESPACE = "io.confluent.connect.avro"
_RECORD, _ENTRY = "ConnectDefault", "MapEntry"
_PRECISION = 64
_WITHOUT_NAME = re.compile(rf"{re.escape(NAMESPACE)}\.{_RECORD}[0-9]*")
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE = {
    INT8: "int",
    INT16: "int",
    INT32: "int",
    INT64: "long",
    FLOAT32: "float",
    FLOAT64: "double",
    BOOLEAN: "boolean",
    STRING: "string",
    BYTES: "bytes",
}
_LOGICAL = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


# To Avro


def avro_schema(schema: Schema, seen: Defined | None = None) -> Avro:
    """The schema of Avro. A name that was defined before is only mentioned. Raises `DataError`."""
    seen = {} if seen is None else seen
    found = _typed(schema, seen)
    if not schema.optional:
        return found
    # The first type of a union is that of the default.
    return [found, "null"] if schema.has_default and schema.default is not None else ["null", found]


def _typed(schema: Schema, seen: Defined) -> Avro:
    made: dict[str, Any]
    if schema.type == STRUCT:
        name, is_new = _defined(schema.name, _RECORD, _bare(schema), seen)
        if not is_new:
            return name
        made = {"type": "record", **_name(name)}
        if schema.doc:
            made["doc"] = schema.doc
        made["fields"] = [_member(one, seen) for one in schema.fields]
    elif schema.type == ARRAY:
        assert schema.value_schema is not None
        made = {"type": "array", "items": avro_schema(schema.value_schema, seen)}
    elif schema.type == MAP:
        made = _map(schema, seen)
    else:
        made = {"type": _SIMPLE[schema.type]}
        if schema.type in (INT8, INT16):
            made["connect.type"] = schema.type
        if schema.name == DECIMAL:
            made |= {"scale": _scale(schema), "precision": _PRECISION, "logicalType": "decimal"}
        elif schema.name in _LOGICAL:
            made["logicalType"] = _LOGICAL[schema.name]
    made |= _properties(schema)
    return made["type"] if list(made) == ["type"] else made


def _properties(schema: Schema) -> dict[str, Any]:
    """What only Connect has."""
    found: dict[str, Any] = {}
    if schema.doc is not None and schema.type != STRUCT:
        found["connect.doc"] = schema.doc
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.has_default and schema.default is not None:
        found["connect.default"] = _json_default(schema, schema.default)
    if schema.name is not None:
        found["connect.name"] = schema.name
    return found


def _member(one: Field, seen: Defined) -> dict[str, Any]:
    made: dict[str, Any] = {"name": _allowed(one.name), "type": avro_schema(one.schema, seen)}
    if one.schema.doc and one.schema.type != STRUCT:
        made["doc"] = one.schema.doc
    if one.schema.has_default and one.schema.default is not None:
        made["default"] = _json_default(one.schema, one.schema.default)
    elif one.schema.optional:
        made["default"] = None
    return made


def _map(schema: Schema, seen: Defined) -> dict[str, Any]:
    keys, values = schema.key_schema, schema.value_schema
    assert keys is not None and values is not None
    if keys.type == STRING and not keys.optional:
        return {"type": "map", "values": avro_schema(values, seen)}
    name, is_new = _defined(None, _ENTRY, (keys, values), seen)
    items: Avro = name
    if is_new:
        items = {
            "type": "record",
            **_name(name),
            "fields": [
                {"name": "key", "type": avro_schema(keys, seen)},
                {"name": "value", "type": avro_schema(values, seen)},
            ],
            "connect.internal.type": _ENTRY,
        }
    return {"type": "array", "items": items}


def _bare(schema: Schema) -> Schema:
    """The schema without what stands beside its use."""
    return replace(schema, optional=False, has_default=False, default=None)


def _defined(name: str | None, kind: str, what: object, seen: Defined) -> tuple[str, bool]:
    """The name of a record, and whether it is to be defined here. Those without a name are numbered."""
    number = 1
    while True:
        found = name or f"{NAMESPACE}.{kind}{'' if number == 1 else number}"
        if found not in seen:
            seen[found] = what
            return found, True
        if seen[found] == what:
            return found, False
        if name is not None:
            raise DataError(f"two different structs have the name {name}")
        number += 1


def _name(name: str) -> dict[str, str]:
    namespace, dot, simple = name.rpartition(".")
    for part in name.split("."):
        _allowed(part)
    return {"name": simple, "namespace": namespace} if dot else {"name": name}


def _allowed(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise DataError(
            f"Avro has no names like {name!r:.60}: they have letters, digits and _, and begin with no digit"
        )
    return name


def _scale(schema: Schema) -> int:
    return int(schema.parameter(SCALE) or 0)


def _json_default(schema: Schema, value: Any) -> Any:
    """A default as Avro's JSON has it: bytes as text of the characters 0 to 255."""
    found = _plain(schema, value)
    if isinstance(found, bytes):
        return found.decode("latin-1")
    if isinstance(found, dict) and schema.type == STRUCT:
        return {one.name: _json_default(one.schema, value[one.name]) for one in schema.fields}
    if isinstance(found, list) and schema.value_schema is not None and schema.type == ARRAY:
        return [_json_default(schema.value_schema, one) for one in value]
    return found


def avro_value(schema: Schema, value: Any) -> Any:
    """The value for fastavro, whose schema is parsed without logical types. Raises `DataError`."""
    schema.check(value)
    return _plain(schema, value)


def _plain(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    if schema.type == STRUCT:
        return {one.name: _plain(one.schema, value[one.name]) for one in schema.fields}
    if schema.type == ARRAY:
        assert schema.value_schema is not None
        return [_plain(schema.value_schema, one) for one in value]
    if schema.type == MAP:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None and values is not None
        if keys.type == STRING and not keys.optional:
            return {key: _plain(values, one) for key, one in value.items()}
        return [{"key": _plain(keys, key), "value": _plain(values, one)} for key, one in value.items()]
    if schema.name == DECIMAL:
        unscaled = int(value.scaleb(_scale(schema), _EXACT))
        return unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    if schema.name == DATE:
        return (value - _EPOCH.date()).days
    if schema.name == TIME:
        since = datetime.timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
        )
        return since // _MS
    if schema.name == TIMESTAMP:
        return (value - _EPOCH) // _MS
    return value


_EXACT = decimal.Context(prec=10_000, traps=[decimal.Inexact, decimal.InvalidOperation])
_MS = datetime.timedelta(milliseconds=1)


# From Avro


def connect_schema(avro: Avro, *, known: dict[str, Schema] | None = None) -> Schema:
    """The schema of Connect.

    Raises `DataError` for what Connect cannot hold: recursion, unions of several types, more than `MOST_PARTS`.
    """
    found = _read(avro, {} if known is None else known, "")
    if _parts_of(found, {}) > MOST_PARTS:
        raise DataError(f"the Avro schema has more than {MOST_PARTS:,} parts")
    return found


def _parts_of(schema: Schema, known: dict[int, int]) -> int:
    """How many schemas one holds, itself included. A type that is used again counts again, and is looked at once."""
    parts = known.get(id(schema))
    if parts is None:
        inner = [one for one in (schema.key_schema, schema.value_schema) if one is not None]
        inner += [one.schema for one in schema.fields]
        parts = known[id(schema)] = 1 + sum(_parts_of(one, known) for one in inner)
    return parts


def _read(avro: Avro, known: dict[str, Schema], namespace: str) -> Schema:
    if isinstance(avro, str):
        if avro in _BY_AVRO:
            return Schema(_BY_AVRO[avro])
        name = avro if "." in avro or not namespace else f"{namespace}.{avro}"
        found = known.get(name) or known.get(avro)
        if found is None:
            raise DataError(f"the Avro type {avro} is not defined before its use, or it holds itself")
        return found
    if isinstance(avro, list):
        others = [one for one in avro if one != "null"]
        if len(others) != 1 or len(avro) != 2:
            raise DataError(f"a union of {len(avro)} types has no schema in Connect; one type and null has")
        return _read(others[0], known, namespace).made_optional()
    if not isinstance(avro, dict) or "type" not in avro:
        raise DataError(f"no schema of Avro: {avro!r:.60}")
    return _with_properties(_of_object(avro, known, namespace), avro)


def _of_object(avro: Mapping[str, Any], known: dict[str, Schema], namespace: str) -> Schema:
    kind = avro["type"]
    if kind == "record":
        return _record(avro, known, namespace)
    if kind == "array":
        items = _read(avro["items"], known, namespace)
        if isinstance(avro["items"], dict) and avro["items"].get("connect.internal.type") == _ENTRY:
            key, value = (items.field(name) for name in ("key", "value"))
            assert key is not None and value is not None
            return Schema(MAP, key_schema=key.schema, value_schema=value.schema)
        return Schema(ARRAY, value_schema=items)
    if kind == "map":
        return Schema(MAP, key_schema=Schema(STRING), value_schema=_read(avro["values"], known, namespace))
    if kind in ("enum", "fixed"):
        found = Schema(STRING if kind == "enum" else BYTES)
        known[_full_name(avro, namespace)] = found
        return _logical(found, avro)
    if isinstance(kind, str) and kind in _BY_AVRO:
        plain = Schema(avro.get("connect.type", _BY_AVRO[kind]))
        return _logical(plain, avro)
    return _read(kind, known, namespace)


def _logical(schema: Schema, avro: Mapping[str, Any]) -> Schema:
    name = avro.get("logicalType")
    if name == "decimal" and schema.type == BYTES:
        return Schema(BYTES, name=DECIMAL, version=1, parameters=((SCALE, str(avro.get("scale", 0))),))
    for ours, theirs in _LOGICAL.items():
        if name == theirs:
            return Schema(schema.type, name=ours, version=1)
    return schema


def _record(avro: Mapping[str, Any], known: dict[str, Schema], namespace: str) -> Schema:
    full = _full_name(avro, namespace)
    inner = full.rpartition(".")[0]
    fields = []
    for one in avro["fields"]:
        schema = _read(one["type"], known, inner)
        if one.get("doc") and schema.doc is None and schema.type != STRUCT:
            schema = _changed(schema, doc=one["doc"])
        if one.get("default") is not None:
            schema = schema.with_default(_default(schema, one["default"]))
        fields.append(Field(one["name"], schema))
    name = None if _WITHOUT_NAME.fullmatch(full) else full
    found = Schema(STRUCT, name=name, doc=avro.get("doc"), fields=tuple(fields))
    known[full] = _with_properties(found, avro)
    return found


def _with_properties(schema: Schema, avro: Mapping[str, Any]) -> Schema:
    changes: dict[str, Any] = {}
    if isinstance(name := avro.get("connect.name"), str):
        changes["name"] = name
    if isinstance(doc := avro.get("connect.doc"), str):
        changes["doc"] = doc
    if isinstance(version := avro.get("connect.version"), int) or "connect.name" in avro:
        changes["version"] = version
    if isinstance(parameters := avro.get("connect.parameters"), dict):
        changes["parameters"] = tuple((str(key), str(value)) for key, value in parameters.items())
    found = _changed(schema, **changes)
    if "connect.default" in avro and not found.has_default:
        found = found.with_default(_default(found, avro["connect.default"]))
    return found


def _changed(schema: Schema, **changes: Any) -> Schema:
    return replace(schema, **changes) if changes else schema


def _full_name(avro: Mapping[str, Any], namespace: str) -> str:
    name = str(avro["name"])
    if "." in name:
        return name
    own = avro.get("namespace", namespace)
    return f"{own}.{name}" if own else name


_BY_AVRO = {
    "int": INT32,
    "long": INT64,
    "float": FLOAT32,
    "double": FLOAT64,
    "boolean": BOOLEAN,
    "string": STRING,
    "bytes": BYTES,
}


def _default(schema: Schema, value: Any) -> Any:
    if schema.type == BYTES and isinstance(value, str):
        value = value.encode("latin-1")
    if schema.type == STRUCT and isinstance(value, dict):
        return Struct(
            schema,
            {
                one.name: None if value.get(one.name) is None else _default(one.schema, value[one.name])
                for one in schema.fields
            },
        )
    return connect_value(schema, value)


def connect_value(schema: Schema, value: Any) -> Any:
    """The value of Connect for what fastavro read without logical types. Raises `DataError`."""
    if value is None:
        return None
    if schema.type == STRUCT:
        return Struct(schema, {one.name: connect_value(one.schema, value[one.name]) for one in schema.fields})
    if schema.type == ARRAY:
        assert schema.value_schema is not None
        return [connect_value(schema.value_schema, one) for one in value]
    if schema.type == MAP:
        return _read_map(schema, value)
    if schema.name == DECIMAL:
        number = int.from_bytes(value, "big", signed=True)
        return decimal.Decimal(number).scaleb(-_scale(schema), _EXACT)
    if schema.name == DATE:
        return _EPOCH.date() + datetime.timedelta(days=value)
    if schema.name == TIME:
        return (_EPOCH + datetime.timedelta(milliseconds=value)).time()
    if schema.name == TIMESTAMP:
        return _EPOCH + datetime.timedelta(milliseconds=value)
    return float(value) if schema.type in (FLOAT32, FLOAT64) else value


def _read_map(schema: Schema, value: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[Any, Any]:
    keys, values = schema.key_schema, schema.value_schema
    assert keys is not None and values is not None
    if isinstance(value, Mapping):
        return {key: connect_value(values, one) for key, one in value.items()}
    return {connect_value(keys, one["key"]): connect_value(values, one["value"]) for one in value}
