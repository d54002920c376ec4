"""Transformations of headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    non_empty_list,
    non_null,
    one_of,
)
from felice.pipelines.connect.converters.header_values import parsed
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import Schema, Struct
from felice.pipelines.connect.transforms.transformation import (
    R,
    SchemaCache,
    Transformation,
    basics,
    require_map,
    require_struct,
)


class DropHeaders(Transformation):
    """Drops the headers with these names."""

    has_parts: ClassVar = False
    definitions: ClassVar = ConfigDefinitions(
        [Definition("headers", Type.LIST, importance=Importance.HIGH, validator=non_empty_list)]
    )

    def apply(self, record: R) -> R | None:
        """The record without them."""
        names = set(self.config["headers"])
        return replace(record, headers=tuple(one for one in record.headers if one.name not in names))


class InsertHeader(Transformation):
    """Adds a header whose value is inferred from a text, as `SimpleHeaderConverter` does."""

    has_parts: ClassVar = False
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("header", Type.STRING, importance=Importance.HIGH, validator=non_null),
            Definition("value.literal", Type.STRING, importance=Importance.HIGH, validator=non_null),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._header = Header(config["header"], *parsed(config["value.literal"]))

    def apply(self, record: R) -> R | None:
        """The record with the header behind its others."""
        return replace(record, headers=(*record.headers, self._header))


class HeaderFrom(Transformation):
    """Copies or moves fields to headers."""

    definitions: ClassVar = ConfigDefinitions(
        [
            Definition("fields", Type.LIST, importance=Importance.HIGH, validator=non_empty_list),
            Definition("headers", Type.LIST, importance=Importance.HIGH, validator=non_empty_list),
            Definition(
                "operation", Type.STRING, importance=Importance.HIGH, validator=one_of("move", "copy")
            ),
            Definition("replace.null.with.default", Type.BOOLEAN, True),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        if len(config["fields"]) != len(config["headers"]):
            raise ConfigError("'fields' config must have the same number of elements as 'headers' config.")
        self._rest = SchemaCache(self._made)

    def _made(self, schema: Schema) -> Schema:
        names = self.config["fields"]
        return basics(schema, fields=tuple(one for one in schema.fields if one.name not in names))

    def apply(self, record: R) -> R | None:
        """The record with the headers, and without the fields if they are moved."""
        schema, value = self.schema_of(record), self.value_of(record)
        moves, names = self.config["operation"] == "move", self.config["fields"]
        pairs = list(zip(names, self.config["headers"], strict=True))
        if schema is None:
            given = require_map(value, f"header {self.config['operation']}")
            made = tuple(Header(header, None, given.get(name)) for name, header in pairs)
            rest = {name: one for name, one in given.items() if name not in names} if moves else given
            return replace(self.with_part(record, None, rest), headers=(*record.headers, *made))
        whole = require_struct(value, f"header {self.config['operation']}")
        get = whole.__getitem__ if self.config["replace.null.with.default"] else whole.without_default
        found = []
        for name, header in pairs:
            member = schema.field(name)
            found.append(Header(header, None if member is None else member.schema, get(name)))
        record = replace(record, headers=(*record.headers, *found))
        if not moves:
            return record
        left = self._rest(schema)
        return self.with_part(record, left, Struct(left, {one.name: get(one.name) for one in left.fields}))
