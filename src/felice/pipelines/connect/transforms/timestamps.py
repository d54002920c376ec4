"""`TimestampConverter`: times as texts, as numbers since 1970, and as Connect's logical types.

Differs:     times outside the years 1 to 9999 are refused. Texts with dates before October 1582 are read by the
             Gregorian calendar, in Java by the Julian one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    date_pattern,
    one_of,
)
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError
from felice.pipelines.connect.model.schema import (
    DATE,
    INT64,
    STRING,
    STRUCT,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    Struct,
    logical,
)
from felice.pipelines.connect.transforms.transformation import (
    R,
    SchemaCache,
    Transformation,
    basics,
    require_map,
    require_struct,
)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_PER_MS = {
    "nanoseconds": (1_000_000, 1),
    "microseconds": (1_000, 1),
    "milliseconds": (1, 1),
    "seconds": (1, 1000),
}
"""How many units of `unix.precision` are in how many milliseconds."""
_LOGICAL = {"Date": DATE, "Time": TIME, "Timestamp": TIMESTAMP}


class TimestampConverter(Transformation):
    """Converts times between text, `unix` (a number since 1970), `Date`, `Time` and `Timestamp`.

    Without a schema only text and numbers are times, beside values of earlier transformations.
    """

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("field", Type.STRING, "", importance=Importance.HIGH),
            Definition(
                "target.type",
                Type.STRING,
                importance=Importance.HIGH,
                validator=one_of("string", "unix", "Date", "Time", "Timestamp"),
            ),
            Definition("format", Type.STRING, "", importance=Importance.MEDIUM),
            Definition(
                "unix.precision",
                Type.STRING,
                "milliseconds",
                importance=Importance.LOW,
                validator=one_of(*_PER_MS),
            ),
            Definition("replace.null.with.default", Type.BOOLEAN, True),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        pattern = config["format"]
        if config["target.type"] == "string" and not pattern.strip():
            raise ConfigError(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        self._pattern = date_pattern("format", pattern) if pattern.strip() else None
        self._units, self._ms = _PER_MS[config["unix.precision"]]
        self._changed = SchemaCache(self._made)

    def apply(self, record: R) -> R | None:
        """The record with the time in its new form. Raises `DataError`."""
        schema, value, name = self.schema_of(record), self.value_of(record), self.config["field"]
        if schema is None:
            if value is None or not name:
                return self.with_part(record, None, self._converted(value, None))
            given = require_map(value, "converting timestamp formats")
            return self.with_part(record, None, {**given, name: self._converted(given.get(name), None)})
        if not name:
            return self.with_part(
                record, self._type(optional=schema.optional), self._converted(value, schema)
            )
        whole = None if value is None else require_struct(value, "converting timestamp formats")
        changed = self._changed(schema)
        return self.with_part(record, changed, None if whole is None else self._struct(whole, changed))

    def _made(self, schema: Schema) -> Schema:
        if schema.type != STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        fields = tuple(
            Field(one.name, self._type(optional=one.schema.optional))
            if one.name == self.config["field"]
            else one
            for one in schema.fields
        )
        made = basics(schema, fields=fields, optional=schema.optional)
        if schema.has_default and schema.default is not None:
            return replace(made, has_default=True, default=self._struct(schema.default, made))
        return made

    def _struct(self, given: Struct, schema: Schema) -> Struct:
        get = given.__getitem__ if self.config["replace.null.with.default"] else given.without_default
        values = {}
        for one in given.schema.fields:
            value = get(one.name)
            values[one.name] = (
                self._converted(value, one.schema) if one.name == self.config["field"] else value
            )
        return Struct(schema, values)

    def _type(self, *, optional: bool) -> Schema:
        target = self.config["target.type"]
        if target in _LOGICAL:
            return logical(_LOGICAL[target], optional=optional)
        return Schema(STRING if target == "string" else INT64, optional)

    def _converted(self, value: Any, schema: Schema | None) -> Any:
        kind = _kind_of_schema(schema) if schema is not None else None
        if value is None:
            return None
        try:
            moment = _READ[kind or _kind_of_value(value)](self, value)
            return _WRITE[self.config["target.type"]](self, moment)
        except OverflowError:
            raise DataError(f"a time outside the years 1 to 9999: {value!r:.60}") from None

    # Readers and writers of each kind

    def _of_text(self, value: str) -> datetime.datetime:
        if self._pattern is None:
            raise DataError("TimestampConverter needs the option format for times that are texts")
        try:
            return self._pattern.parse(value)
        except ValueError as error:
            raise DataError(str(error)) from None

    def _of_unix(self, value: int) -> datetime.datetime:
        # As Java divides: towards zero.
        number = abs(value) * self._ms // self._units
        return _EPOCH + _MILLISECOND * (number if value >= 0 else -number)

    def _to_text(self, moment: datetime.datetime) -> str:
        assert self._pattern is not None
        return self._pattern.format(moment)

    def _to_unix(self, moment: datetime.datetime) -> int:
        milliseconds = (moment - _EPOCH) // _MILLISECOND
        number = abs(milliseconds) * self._units // self._ms
        return number if milliseconds >= 0 else -number


def _kind_of_schema(schema: Schema) -> str:
    for kind, name in _LOGICAL.items():
        if schema.name == name:
            return kind
    if schema.type == STRING:
        return "string"
    if schema.type == INT64:
        return "unix"
    raise ConnectError(f"Schema {schema.type} does not correspond to a known timestamp type format")


def _kind_of_value(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return "Timestamp"
    for kind, expected in (("Date", datetime.date), ("Time", datetime.time), ("string", str)):
        if isinstance(value, expected):
            return kind
    if type(value) is int:
        return "unix"
    raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")


_READ: dict[str, Callable[[TimestampConverter, Any], datetime.datetime]] = {
    "string": TimestampConverter._of_text,
    "unix": TimestampConverter._of_unix,
    "Date": lambda self, value: datetime.datetime.combine(value, datetime.time(), datetime.UTC),
    "Time": lambda self, value: datetime.datetime.combine(_EPOCH.date(), value, datetime.UTC),
    "Timestamp": lambda self, value: value,
}
_WRITE: dict[str, Callable[[TimestampConverter, datetime.datetime], Any]] = {
    "string": TimestampConverter._to_text,
    "unix": TimestampConverter._to_unix,
    "Date": lambda self, moment: moment.date(),
    "Time": lambda self, moment: moment.time(),
    "Timestamp": lambda self, moment: moment,
}
