"""Transformations that take, wrap, drop, rename, add or mask fields."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    non_empty_list,
)
from felice.pipelines.connect.model.errors import ConfigError, DataError
from felice.pipelines.connect.model.record import ConnectRecord, SinkRecord
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
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
    Field,
    Schema,
    Struct,
    logical,
    simple,
    struct,
)
from felice.pipelines.connect.transforms.paths import SYNTAX, FieldPath
from felice.pipelines.connect.transforms.transformation import (
    R,
    SchemaCache,
    Transformation,
    basics,
    require_map,
    require_struct,
)

_REPLACES = Definition(
    "replace.null.with.default",
    Type.BOOLEAN,
    True,
    "Whether a null has its field's default in its place.",
    Importance.MEDIUM,
)


def _get(value: Struct, name: str, fills: bool) -> Any:
    return value[name] if fills else value.without_default(name)


class ExtractField(Transformation):
    """The whole key or value becomes one of its fields. Null stays null."""

    definitions: ClassVar = ConfigDefinitions(
        [Definition("field", Type.STRING, documentation="Field name to extract."), SYNTAX, _REPLACES]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._path = FieldPath(config["field"], config["field.syntax.version"])

    def apply(self, record: R) -> R | None:
        """The record with the field. A missing field is null without a schema, and an error with one."""
        schema, value = self.schema_of(record), self.value_of(record)
        if schema is None:
            found = None if value is None else self._path.of_map(require_map(value, "field extraction"))
            return self.with_part(record, None, found)
        whole = None if value is None else require_struct(value, "field extraction")
        member = self._path.schema(schema)
        if member is None:
            raise DataError(f"Unknown field: {self._path.text}")
        fills = self.config["replace.null.with.default"]
        found = None if whole is None else self._path.of_struct(whole, fills=fills)
        return self.with_part(record, member, found)


class HoistField(Transformation):
    """The key or value becomes the only field of a struct, or of a map if it has no schema."""

    definitions: ClassVar = ConfigDefinitions(
        [Definition("field", Type.STRING, documentation="Field name for the single field.")]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._wrapped = SchemaCache(lambda schema: struct({config["field"]: schema}))

    def apply(self, record: R) -> R | None:
        """The record with the wrapped part."""
        schema, value, name = self.schema_of(record), self.value_of(record), self.config["field"]
        if schema is None:
            return self.with_part(record, None, {name: value})
        made = self._wrapped(schema)
        return self.with_part(record, made, Struct(made, {name: value}))


class ValueToKey(Transformation):
    """The key becomes a struct or map of fields of the value."""

    has_parts: ClassVar = False
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "fields",
                Type.LIST,
                documentation="Fields of the value that become the key.",
                importance=Importance.HIGH,
                validator=non_empty_list,
            ),
            _REPLACES,
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._key_schema = SchemaCache(self._made)

    def _made(self, schema: Schema) -> Schema:
        fields: dict[str, Schema] = {}
        for name in self.config["fields"]:
            member = schema.field(name)
            if member is None:
                raise DataError(f"Field does not exist: {name}")
            fields[name] = member.schema
        return struct(fields)

    def apply(self, record: R) -> R | None:
        """The record with the new key."""
        names = self.config["fields"]
        if record.value_schema is None:
            given = require_map(record.value, "copying fields from value to key")
            return replace(record, key_schema=None, key={name: given.get(name) for name in names})
        value = require_struct(record.value, "copying fields from value to key")
        made, fills = self._key_schema(record.value_schema), self.config["replace.null.with.default"]
        return replace(
            record, key_schema=made, key=Struct(made, {name: _get(value, name, fills) for name in names})
        )


class ReplaceField(Transformation):
    """Leaves fields out (`exclude` wins over `include`) and renames them."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("exclude", Type.LIST, [], "Fields to exclude."),
            Definition("include", Type.LIST, [], "Fields to include; all others are left out."),
            Definition("renames", Type.LIST, [], "Pairs of names: old:new."),
            _REPLACES,
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._names: dict[str, str] = {}
        for pair in config["renames"]:
            old, colon, new = pair.partition(":")
            if not colon or not old or not new or ":" in new:
                raise ConfigError(
                    f"Invalid value {pair} for configuration renames: expected pairs such as foo:bar,abc:xyz"
                )
            self._names[old] = new
        self._changed = SchemaCache(self._made)

    def _keeps(self, name: str) -> bool:
        include = self.config["include"]
        return name not in self.config["exclude"] and (not include or name in include)

    def _made(self, schema: Schema) -> Schema:
        fields = tuple(
            Field(self._names.get(one.name, one.name), one.schema)
            for one in schema.fields
            if self._keeps(one.name)
        )
        return basics(schema, fields=fields)

    def apply(self, record: R) -> R | None:
        """The record with the fields that are left."""
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None:
            return record
        if schema is None:
            given = require_map(value, "field replacement")
            kept = {self._names.get(name, name): one for name, one in given.items() if self._keeps(name)}
            return self.with_part(record, None, kept)
        whole, made = require_struct(value, "field replacement"), self._changed(schema)
        fills = self.config["replace.null.with.default"]
        kept = {self._names.get(name, name): _get(whole, name, fills) for name in whole if self._keeps(name)}
        return self.with_part(record, made, Struct(made, kept))


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ZEROS: dict[str, Any] = {
    **dict.fromkeys((INT8, INT16, INT32, INT64), 0),
    **dict.fromkeys((FLOAT32, FLOAT64), 0.0),
    BOOLEAN: False,
    STRING: "",
    ARRAY: [],
    MAP: {},
}
_LOGICAL_ZEROS: dict[str | None, Any] = {
    DECIMAL: decimal.Decimal(0),
    DATE: _EPOCH.date(),
    TIME: datetime.time(),
    TIMESTAMP: _EPOCH,
}
_PYTHON_ZEROS: dict[type, Any] = {bool: False, int: 0, float: 0.0, str: "", list: [], dict: {}}


class MaskField(Transformation):
    """Replaces fields with the zero of their type, or texts and numbers with `replacement`."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("fields", Type.LIST, importance=Importance.HIGH, validator=non_empty_list),
            Definition("replacement", Type.STRING, None, importance=Importance.LOW),
            _REPLACES,
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        if config["replacement"] == "":
            raise ConfigError("Invalid value  for configuration replacement: String must be non-empty")

    def apply(self, record: R) -> R | None:
        """The record with masked fields."""
        schema, value, names = self.schema_of(record), self.value_of(record), set(self.config["fields"])
        if schema is None:
            given = require_map(value, "mask fields")
            # As in Kafka, a field that was missing is there afterwards, and null.
            masked = {name: self._plain(given.get(name)) for name in self.config["fields"]}
            return self.with_part(record, None, {**given, **masked})
        whole, fills = require_struct(value, "mask fields"), self.config["replace.null.with.default"]
        made = {}
        for one in schema.fields:
            found = _get(whole, one.name, fills)
            made[one.name] = self._typed(one.schema, found) if one.name in names else found
        return self.with_part(record, schema, Struct(schema, made))

    def _plain(self, value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in _PYTHON_ZEROS:
            raise DataError(f"Cannot mask value of type: {type(value).__name__}")
        text = self.config["replacement"]
        if text is None:
            return _PYTHON_ZEROS[type(value)]
        return self._replacement(value, text)

    def _typed(self, schema: Schema, value: Any) -> Any:
        if value is None:
            return None
        text = self.config["replacement"]
        if text is not None:
            return self._replacement(value, text)
        if schema.name in _LOGICAL_ZEROS:
            return _LOGICAL_ZEROS[schema.name]
        if schema.type not in _ZEROS:
            raise DataError(f"Cannot mask value of type: {schema.type}")
        return _ZEROS[schema.type]

    def _replacement(self, value: Any, text: str) -> Any:
        kind = type(value)
        if kind not in (int, float, str, decimal.Decimal):
            raise DataError(f"Cannot mask value of type {kind.__name__} with custom replacement.")
        try:
            # As in Kafka, a whole number takes the whole part of the text.
            return int(decimal.Decimal(text)) if kind is int else kind(text)
        except (ValueError, ArithmeticError):
            raise DataError(f"Unable to convert {text} ({kind.__name__}) to a number") from None


class InsertField(Transformation):
    """Adds fields with topic, partition, offset and timestamp of a record, or with a fixed text.

    A field's name may end with `!` (required) or `?` (optional, which is usual).
    """

    _SOURCES: ClassVar = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field")
    definitions: ClassVar = ConfigDefinitions(
        [
            *(Definition(name, Type.STRING, None) for name in _SOURCES),
            Definition("static.value", Type.STRING, None),
            _REPLACES,
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._fields: dict[str, tuple[str, bool]] = {}
        for source in self._SOURCES:
            name = config[source]
            if name is not None:
                self._fields[source] = name.removesuffix("!").removesuffix("?"), not name.endswith("!")
        if not self._fields:
            raise ConfigError("No field insertion configured")
        if "static.field" in self._fields and config["static.value"] is None:
            raise ConfigError(
                "Invalid value null for configuration static.value: No value specified for static field"
            )
        self._extended = SchemaCache(self._made)

    def _made(self, schema: Schema) -> Schema:
        kinds = {
            "topic.field": simple(STRING),
            "partition.field": simple(INT32),
            "offset.field": simple(INT64),
            "timestamp.field": logical(TIMESTAMP),
            "static.field": simple(STRING),
        }
        added = tuple(
            Field(name, kinds[source].made_optional() if is_optional else kinds[source])
            for source, (name, is_optional) in self._fields.items()
        )
        return basics(schema, fields=(*schema.fields, *added))

    def apply(self, record: R) -> R | None:
        """The record with the fields. A tombstone passes unchanged."""
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None:
            return record
        if schema is None:
            given = require_map(value, "field insertion")
            return self.with_part(record, None, {**given, **self._values(record, is_plain=True)})
        whole, made = require_struct(value, "field insertion"), self._extended(schema)
        fills = self.config["replace.null.with.default"]
        kept = {name: _get(whole, name, fills) for name in whole}
        return self.with_part(record, made, Struct(made, {**kept, **self._values(record, is_plain=False)}))

    def _values(self, record: ConnectRecord, *, is_plain: bool) -> dict[str, Any]:
        time = record.timestamp
        values = {
            "topic.field": record.topic,
            "partition.field": record.partition,
            "timestamp.field": time
            if is_plain or time is None
            else _EPOCH + datetime.timedelta(milliseconds=time),
            "static.field": self.config["static.value"],
        }
        if "offset.field" in self._fields:
            if not isinstance(record, SinkRecord):
                raise DataError(
                    "Offset insertion is only supported for sink connectors, record is of type SourceRecord"
                )
            values["offset.field"] = record.offset
        # Without a schema, Kafka leaves out the partition and the timestamp that a record does not have.
        return {
            name: values[source]
            for source, (name, _) in self._fields.items()
            if not (values[source] is None and source in ("partition.field", "timestamp.field"))
        }


class Flatten(Transformation):
    """Nested structs and maps become fields whose names are joined by `delimiter`. Lists stay as they are."""

    definitions: ClassVar = ConfigDefinitions([Definition("delimiter", Type.STRING, "."), _REPLACES])

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._flat = SchemaCache(
            lambda schema: basics(schema, fields=tuple(self._members(schema, "", schema.optional)))
        )

    def apply(self, record: R) -> R | None:
        """The flat record. Null stays null."""
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None:
            return record
        if schema is None:
            flat: dict[str, Any] = {}
            self._plain(require_map(value, "flattening"), "", flat)
            return self.with_part(record, None, flat)
        whole, made = require_struct(value, "flattening"), self._flat(schema)
        values: dict[str, Any] = {}
        self._values(whole, schema, "", values)
        return self.with_part(record, made, Struct(made, values))

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.config['delimiter']}{name}" if prefix else name

    def _plain(self, given: dict[Any, Any], prefix: str, flat: dict[str, Any]) -> None:
        for name, value in given.items():
            if isinstance(value, dict):
                self._plain(value, self._name(prefix, name), flat)
            else:
                flat[self._name(prefix, name)] = value

    def _members(self, schema: Schema, prefix: str, is_optional: bool) -> list[Field]:
        found: list[Field] = []
        for one in schema.fields:
            name, inner = self._name(prefix, one.name), one.schema
            optional = is_optional or inner.optional
            if inner.type == STRUCT:
                found += self._members(inner, name, optional)
            elif inner.type == MAP:
                raise DataError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            else:
                found.append(Field(name, inner.made_optional() if is_optional else inner))
        return found

    def _values(self, whole: Struct | None, schema: Schema, prefix: str, values: dict[str, Any]) -> None:
        fills = self.config["replace.null.with.default"]
        for one in schema.fields:
            name = self._name(prefix, one.name)
            value = None if whole is None else _get(whole, one.name, fills)
            if one.schema.type == STRUCT:
                self._values(value, one.schema, name, values)
            else:
                values[name] = value
