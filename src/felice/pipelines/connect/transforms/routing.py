"""Transformations of topics and of schemas' names, and the filter that drops records."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    date_pattern,
    java_regex,
)
from felice.pipelines.connect.model.errors import ConfigError, DataError
from felice.pipelines.connect.model.schema import STRUCT, Schema, Struct
from felice.pipelines.connect.transforms.transformation import R, SchemaCache, Transformation
from felice.pipelines.java.patterns import replaced
from felice.pipelines.java.regex import compiled

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class RegexRouter(Transformation):
    """Another topic for records whose topic matches a regular expression as a whole."""

    has_parts: ClassVar = False
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("regex", Type.STRING, importance=Importance.HIGH, validator=java_regex),
            Definition("replacement", Type.STRING, importance=Importance.HIGH),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._regex = compiled(config["regex"])

    def apply(self, record: R) -> R | None:
        """The record, perhaps for another topic."""
        found = self._regex.fullmatch(record.topic)
        if found is None:
            return record
        try:
            return replace(record, topic=replaced(found, self.config["replacement"]))
        except ValueError as error:
            raise DataError(str(error)) from None


class TimestampRouter(Transformation):
    """A topic that contains the record's time: `topic.format` with `${topic}` and `${timestamp}`."""

    has_parts: ClassVar = False
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("topic.format", Type.STRING, "${topic}-${timestamp}", importance=Importance.HIGH),
            Definition("timestamp.format", Type.STRING, "yyyyMMdd", importance=Importance.HIGH),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._pattern = date_pattern("timestamp.format", config["timestamp.format"])

    def apply(self, record: R) -> R | None:
        """The record for its topic. Raises `DataError` for a record without a timestamp."""
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record.topic}")
        moment = _EPOCH + datetime.timedelta(milliseconds=record.timestamp)
        topic = self.config["topic.format"].replace("${topic}", record.topic)
        return replace(record, topic=topic.replace("${timestamp}", self._pattern.format(moment)))


class Filter(Transformation):
    """Drops every record; a predicate decides which records it gets."""

    has_parts: ClassVar = False

    def apply(self, record: R) -> R | None:
        """None."""
        return None


class SetSchemaMetadata(Transformation):
    """Sets the name and the version of the schema."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("schema.name", Type.STRING, None, importance=Importance.HIGH),
            Definition("schema.version", Type.INT, None, importance=Importance.HIGH),
            Definition("replace.null.with.default", Type.BOOLEAN, True),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        if config["schema.name"] is None and config["schema.version"] is None:
            raise ConfigError("Neither schema name nor version configured")
        self._named = SchemaCache(self._made)

    def _made(self, schema: Schema) -> Schema:
        name, version = self.config["schema.name"], self.config["schema.version"]
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )

    def apply(self, record: R) -> R | None:
        """The record with the schema. Null without a schema passes unchanged."""
        schema, value = self.schema_of(record), self.value_of(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        made = self._named(schema)
        if made.type == STRUCT and isinstance(value, Struct):
            fills = self.config["replace.null.with.default"]
            get = value.__getitem__ if fills else value.without_default
            value = Struct(made, {name: get(name) for name in value})
        return self.with_part(record, made, value)
