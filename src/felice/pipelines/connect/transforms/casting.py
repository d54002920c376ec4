"""Cast: fields, or whole keys and values, become numbers, booleans or text, as Java converts them.

How:         Java narrows a whole number to its lowest bits, and cuts the fraction of a floating-point number, which
             stays within the limits of int or long. A text must be a number in Java's form.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    non_empty_list,
)
from felice.pipelines.connect.model.errors import ConfigError, DataError
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    DATE,
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
)
from felice.pipelines.connect.transforms.transformation import (
    R,
    SchemaCache,
    Transformation,
    basics,
    require_map,
    require_struct,
)
from felice.pipelines.java.texts import (
    milliseconds_of,
    moment_text,
    number_text,
    shortest_single,
    single,
)

TARGETS = {
    "int8": INT8,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "boolean": BOOLEAN,
    "string": STRING,
}
"""The types by the names that `spec` gives them."""

_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
_DAY_MS = 86_400_000
_JAVA_FLOAT = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)")


class Cast(Transformation):
    """See the module."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "spec",
                Type.LIST,
                documentation="Pairs of field and type, such as a:int32,b:string, or one type for the whole.",
                importance=Importance.HIGH,
                validator=non_empty_list,
            ),
            Definition("replace.null.with.default", Type.BOOLEAN, True),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        for pair in config["spec"]:
            name, colon, target = pair.rpartition(":")
            if target.strip().lower() not in TARGETS or (colon and (not name or ":" in name)):
                raise ConfigError(
                    f"Invalid value {pair} for configuration spec: expected field:type or a type"
                )
            if colon:
                self._fields[name.strip()] = TARGETS[target.strip().lower()]
            else:
                self._whole = TARGETS[target.strip().lower()]
        if self._whole is not None and len(config["spec"]) > 1:
            raise ConfigError(
                "Cast transformations that specify a type to cast the entire value to may ony specify a single cast "
                "in their spec"
            )
        self._changed = SchemaCache(self._made)

    def apply(self, record: R) -> R | None:
        """The record with the cast part. A null part passes unchanged."""
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None:
            return record
        if schema is None:
            return self.with_part(record, None, self._plain(value))
        made = self._changed(schema)
        if self._whole is not None:
            return self.with_part(record, made, cast(schema, value, self._whole))
        whole = require_struct(value, "cast types")
        get = whole.__getitem__ if self.config["replace.null.with.default"] else whole.without_default
        values = {}
        for one in schema.fields:
            found = get(one.name)
            target = self._fields.get(one.name)
            values[one.name] = found if target is None else cast(one.schema, found, target)
        return self.with_part(record, made, Struct(made, values))

    def _plain(self, value: Any) -> Any:
        if self._whole is not None:
            return cast(None, value, self._whole)
        given = require_map(value, "cast types")
        # As in Kafka, a field that was missing is there afterwards, and null.
        return {
            **given,
            **{name: cast(None, given.get(name), target) for name, target in self._fields.items()},
        }

    def _made(self, schema: Schema) -> Schema:
        if self._whole is not None:
            made = basics(schema, type=self._whole)
            made = made.made_optional() if schema.optional else made
        else:
            fields = tuple(
                Field(one.name, self._field(one.schema, self._fields.get(one.name))) for one in schema.fields
            )
            made = basics(schema, fields=fields)
            made = made.made_optional() if schema.optional else made
        if schema.has_default and self._whole is not None:
            return made.with_default(cast(schema, schema.default, self._whole))
        return made

    def _field(self, schema: Schema, target: str | None) -> Schema:
        if target is None:
            return schema
        made = Schema(target, schema.optional)
        if schema.has_default and schema.default is not None:
            return made.with_default(cast(schema, schema.default, target))
        return made


def cast(schema: Schema | None, value: Any, target: str) -> Any:
    """The value as another type. Raises `DataError` for one that cannot be converted."""
    if value is None:
        return None
    if (schema is not None and schema.type in (ARRAY, MAP, STRUCT)) or isinstance(
        value, list | dict | Struct
    ):
        kind = schema.type if schema is not None else type(value).__name__
        raise DataError(f"Cast transformation does not support casting from {kind}")
    if target == STRING:
        return _text(schema, value)
    if isinstance(value, datetime.date | datetime.time):
        value = _number_of(schema, value)
    if target == BOOLEAN:
        return _boolean(value)
    if target in _BITS:
        return _whole(value, _BITS[target])
    if target == FLOAT64:
        return _floating(value)
    number = single(_floating(value))
    # Without a schema nothing says that the number has 32 bits, so it gets the digits that a reader of 32 bits sees.
    return number if schema is not None or not math.isfinite(number) else float(shortest_single(number))


def _number_of(schema: Schema | None, value: Any) -> int:
    """A date as days, a time and a timestamp as milliseconds."""
    ms = milliseconds_of(value)
    return ms // _DAY_MS if schema is not None and schema.name == DATE else ms


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        if re.fullmatch(r"[+-]?[0-9]+", value) is None or not -(1 << bits - 1) <= int(value) < 1 << bits - 1:
            raise DataError(f'Value ("{value}") was out of range or is no number of {bits} bits')
        return int(value)
    if isinstance(value, float):
        limit = 1 << (63 if bits == 64 else 31)
        if math.isnan(value):
            return 0
        value = max(-limit, min(limit - 1, value if math.isinf(value) else int(value)))
    if isinstance(value, int | decimal.Decimal):
        half = 1 << bits - 1
        return (int(value) + half) % (2 * half) - half
    raise DataError(f"Unexpected type in Cast transformation: {type(value).__name__}")


def _floating(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip()
        if _JAVA_FLOAT.fullmatch(text) is None:
            raise DataError(f'For input string: "{value}"')
        return float(text.rstrip("fFdD") if text[-1:] in "fFdD" and "I" not in text else text)
    if isinstance(value, int | float | decimal.Decimal):
        return float(value)
    raise DataError(f"Unexpected type in Cast transformation: {type(value).__name__}")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int | float | decimal.Decimal):
        return _whole(value, 64) != 0
    raise DataError(f"Unexpected type in Cast transformation: {type(value).__name__}")


def _text(schema: Schema | None, value: Any) -> str:
    if schema is not None and schema.name in (DATE, TIME, TIMESTAMP):
        return moment_text(milliseconds_of(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number_text(value, is_single=schema is not None and schema.type == FLOAT32)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.standard_b64encode(value).decode()
    return str(value)
