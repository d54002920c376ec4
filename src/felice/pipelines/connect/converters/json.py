"""Kafka's JsonConverter: JSON, with or without an envelope of `schema` and `payload`.

How:         with `schemas.enable`, each value has its schema beside it; its text is kept for the schemas that were used
             last (`schemas.cache.size`). Without, structs become objects and their schemas are lost.
             `json_values` has the forms of the values.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    one_of_any_case,
)
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.json_values import (
    Style,
    from_json,
    json_bytes,
    parsed_json,
    plain,
    to_json,
)
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import (
    ARRAY,
    MAP,
    STRUCT,
    TYPES,
    Field,
    Schema,
)


class JsonConverter(Converter):
    """See the module."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "schemas.enable",
                Type.BOOLEAN,
                True,
                "Whether a schema is beside each value.",
                Importance.HIGH,
                group="Schemas",
                width="MEDIUM",
                display_name="Enable Schemas",
            ),
            Definition(
                "schemas.cache.size",
                Type.INT,
                1000,
                "The number of schemas that are kept.",
                Importance.HIGH,
                group="Schemas",
                width="MEDIUM",
                display_name="Schema Cache Size",
            ),
            Definition(
                "schema.content",
                Type.STRING,
                None,
                "With schemas.enable: the schema, as JSON, of all values that are read. They have no envelope then.",
                Importance.HIGH,
                group="Schemas",
                width="MEDIUM",
                display_name="Schema Content",
            ),
            Definition(
                "decimal.format",
                Type.STRING,
                "BASE64",
                "How decimals are written: BASE64 or NUMERIC.",
                Importance.LOW,
                one_of_any_case("BASE64", "NUMERIC"),
                "Serialization",
                width="MEDIUM",
                display_name="Decimal Format",
            ),
            Definition(
                "replace.null.with.default",
                Type.BOOLEAN,
                True,
                "Whether a null has its field's default in its place.",
                Importance.LOW,
                group="Serialization",
                width="MEDIUM",
                display_name="Replace null with default",
            ),
        ]
    )

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(config, is_key=is_key)
        self._has_schemas: bool = config["schemas.enable"]
        self._style = Style(
            config["decimal.format"].upper() == "NUMERIC", config["replace.null.with.default"]
        )
        self._decoder = json.JSONDecoder(parse_float=decimal.Decimal if self._has_schemas else None)
        self._capacity: int = config["schemas.cache.size"]
        self._written: dict[Schema, Any] = {}
        self._read: dict[str, Schema] = {}
        self._given = self._given_schema(config["schema.content"])

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The JSON of a value. None without a schema is a tombstone."""
        if schema is None and value is None:
            return None
        payload = to_json(schema, value, self._style)
        if self._has_schemas:
            payload = {"schema": None if schema is None else self._schema_json(schema), "payload": payload}
        return json_bytes(payload)

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The schema of the envelope, and the value that it describes."""
        if data is None:
            return None, None
        read = parsed_json(data, self._decoder)
        if not self._has_schemas:
            return None, read
        if self._given is not None:
            return self._given, from_json(self._given, read, self._style)
        if not isinstance(read, dict) or read.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
                "additional fields. If you are trying to deserialize plain JSON data, "
                "set schemas.enable=false in your converter configuration."
            )
        if read["schema"] is None:
            return None, plain(read["payload"])
        schema = self._schema_of(read["schema"])
        return schema, from_json(schema, read["payload"], self._style)

    # Schemas

    def _given_schema(self, text: str | None) -> Schema | None:
        """The schema of the option `schema.content` (KIP-1054). Raises `DataError`."""
        if not text or not self._has_schemas:
            return None
        try:
            described = json.loads(text)
            return None if described is None else self._schema_of(described)
        except (ValueError, RecursionError) as error:
            raise DataError(f"schema.content is no schema in JSON: {error}") from None

    def _schema_json(self, schema: Schema) -> Any:
        known = self._written.get(schema)
        if known is None:
            if len(self._written) >= self._capacity:
                self._written.pop(next(iter(self._written)), None)
            known = self._written[schema] = self._described(schema)
        return known

    def _described(self, schema: Schema) -> dict[str, Any]:
        made: dict[str, Any] = {"type": schema.type}
        if schema.type == ARRAY:
            assert schema.value_schema is not None
            made["items"] = self._described(schema.value_schema)
        elif schema.type == MAP:
            assert schema.key_schema is not None and schema.value_schema is not None
            made |= {
                "keys": self._described(schema.key_schema),
                "values": self._described(schema.value_schema),
            }
        elif schema.type == STRUCT:
            made["fields"] = [{**self._described(one.schema), "field": one.name} for one in schema.fields]
        made["optional"] = schema.optional
        for name, value in (("name", schema.name), ("version", schema.version), ("doc", schema.doc)):
            if value is not None:
                made[name] = value
        if schema.parameters:
            made["parameters"] = dict(schema.parameters)
        if schema.has_default:
            made["default"] = to_json(schema, schema.default, self._style)
        return made

    def _schema_of(self, described: Any) -> Schema:
        key = json.dumps(described, sort_keys=True, default=str)
        known = self._read.get(key)
        if known is None:
            if len(self._read) >= self._capacity:
                self._read.pop(next(iter(self._read)), None)
            known = self._read[key] = self._parsed(described)
        return known

    def _parsed(self, described: Any) -> Schema:
        if not isinstance(described, dict) or not isinstance(described.get("type"), str):
            raise DataError("Schema must contain 'type' field")
        kind = described["type"]
        if kind not in TYPES:
            raise DataError(f"Unknown schema type: {kind}")
        keys = values = None
        fields: tuple[Field, ...] = ()
        if kind == ARRAY:
            if not isinstance(described.get("items"), dict):
                raise DataError("Array schema did not specify the element type")
            values = self._parsed(described["items"])
        elif kind == MAP:
            if not isinstance(described.get("keys"), dict):
                raise DataError("Map schema did not specify the key type")
            if not isinstance(described.get("values"), dict):
                raise DataError("Map schema did not specify the value type")
            keys, values = self._parsed(described["keys"]), self._parsed(described["values"])
        elif kind == STRUCT:
            given = described.get("fields")
            if not isinstance(given, list):
                raise DataError('Struct schema\'s "fields" argument is not an array.')
            fields = tuple(self._member(one) for one in given)
        schema = Schema(
            kind,
            described.get("optional") is True,
            _text(described, "name"),
            _version(described),
            _text(described, "doc"),
            parameters=_parameters(described),
            fields=fields,
            key_schema=keys,
            value_schema=values,
        )
        default = from_json(schema, described["default"], self._style) if "default" in described else None
        return schema if default is None else schema.with_default(default)

    def _member(self, described: Any) -> Field:
        name = described.get("field") if isinstance(described, dict) else None
        if not isinstance(name, str):
            raise DataError("Struct schema's field name not specified properly")
        return Field(name, self._parsed(described))


def _text(described: Mapping[str, Any], name: str) -> str | None:
    """A member that counts only if it is a text, as in Kafka."""
    value = described.get(name)
    return value if isinstance(value, str) else None


def _version(described: Mapping[str, Any]) -> int | None:
    """A whole number of 32 bits, as Java narrows it."""
    value = described.get("version")
    half = 1 << 31
    return (value + half) % (2 * half) - half if type(value) is int else None


def _parameters(described: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    given = described.get("parameters")
    if not isinstance(given, dict):
        return ()
    if not all(isinstance(value, str) for value in given.values()):
        raise DataError("Schema parameters must have string values.")
    return tuple(sorted(given.items()))
