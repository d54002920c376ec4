"""Debezium's transformation of envelopes of changes into plain rows.

Source: Debezium's manual, "New record state extraction".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    one_of,
)
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import STRING, Schema, Struct, simple, struct
from felice.pipelines.connect.transforms.transformation import R, Transformation

_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW
DROP, TOMBSTONE, REWRITE, REWRITE_BOTH, TO_TOMBSTONE = (
    "drop",
    "tombstone",
    "rewrite",
    "rewrite-with-tombstone",
    "delete-to-tombstone",
)
_DELETED = "__deleted"
_OF_ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns", "before", "after")


@dataclass(frozen=True, slots=True)
class _Added:
    """A member of the envelope that is kept: where it stands, and its new name."""

    path: tuple[str, ...]
    name: str


class ExtractNewRecordState(Transformation):
    """A record's value becomes the row after the change."""

    has_parts: ClassVar = False
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "delete.tombstone.handling.mode",
                Type.STRING,
                TOMBSTONE,
                "What becomes of a delete and of the tombstone after it: drop; tombstone: only the tombstone stays; "
                "rewrite: the row before, with __deleted; rewrite-with-tombstone; delete-to-tombstone.",
                _MEDIUM,
                one_of(DROP, TOMBSTONE, REWRITE, REWRITE_BOTH, TO_TOMBSTONE),
            ),
            Definition(
                "add.fields",
                Type.LIST,
                [],
                "Members of the envelope to add, as op, table, source.ts_ms; with :name another name.",
                _MEDIUM,
            ),
            Definition("add.fields.prefix", Type.STRING, "__", "The beginning of their names.", _LOW),
            Definition("add.headers", Type.LIST, [], "The same for headers.", _MEDIUM),
            Definition("add.headers.prefix", Type.STRING, "__", "The beginning of their names.", _LOW),
        ]
    )

    def __init__(self, config: Mapping[str, Any], part: str = "value") -> None:
        super().__init__(config, part)
        self._mode: str = config["delete.tombstone.handling.mode"]
        self._rewrites = self._mode in (REWRITE, REWRITE_BOTH)
        self._fields = [_added(one, config["add.fields.prefix"]) for one in config["add.fields"]]
        self._headers = [_added(one, config["add.headers.prefix"]) for one in config["add.headers"]]
        self._schemas: dict[Schema, Schema] = {}

    def apply(self, record: R) -> R | None:
        """The record with the row, or None for a delete or a tombstone that is left out."""
        envelope = record.value
        if envelope is None:
            return record if self._mode in (TOMBSTONE, REWRITE_BOTH) else None
        if not _is_envelope(envelope):
            return record  # a heartbeat, or another record
        record = replace(
            record, headers=(*record.headers, *self._more_headers(record.value_schema, envelope))
        )
        row, is_deleted = envelope["after"], envelope["op"] == "d"
        if row is None and self._rewrites:
            row = envelope["before"]
        if row is None:
            keeps = self._mode == TO_TOMBSTONE and is_deleted
            return replace(record, value_schema=None, value=None) if keeps else None
        more = {one.name: _found(envelope, one.path) for one in self._fields}
        if self._rewrites:
            more[_DELETED] = str(is_deleted).lower()
        if not isinstance(row, Struct):
            return replace(record, value={**row, **more})
        assert record.value_schema is not None
        schema = self._schema(record.value_schema, row.schema)
        return replace(record, value_schema=schema, value=Struct(schema, {**dict(row.items()), **more}))

    def _schema(self, envelope: Schema, row: Schema) -> Schema:
        found = self._schemas.get(envelope)
        if found is None:
            members = {one.name: one.schema for one in row.fields}
            members |= {one.name: _schema_of(envelope, one.path) for one in self._fields}
            if self._rewrites:
                members[_DELETED] = simple(STRING, optional=True)
            if len(self._schemas) >= 1000:
                self._schemas.clear()
            found = self._schemas[envelope] = struct(members, name=row.name, version=row.version)
        return found

    def _more_headers(self, schema: Schema | None, envelope: Any) -> list[Header]:
        return [
            Header(
                one.name, None if schema is None else _schema_of(schema, one.path), _found(envelope, one.path)
            )
            for one in self._headers
        ]


def _added(text: str, prefix: str) -> _Added:
    given, _, name = text.partition(":")
    path = tuple(given.split("."))
    if len(path) == 1 and path[0] not in _OF_ENVELOPE:
        path = ("source", path[0])
        return _Added(path, prefix + (name or path[1]))
    return _Added(path, prefix + (name or "_".join(path)))


def _is_envelope(value: Any) -> bool:
    if isinstance(value, Struct):
        return {"before", "after", "op", "source"} <= set(value)
    return isinstance(value, dict) and {"before", "after", "op", "source"} <= value.keys()


def _found(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if value is None:
            return None
        value = value[name] if isinstance(value, Struct) else value.get(name)
    return value


def _schema_of(schema: Schema, path: tuple[str, ...]) -> Schema:
    for name in path:
        member = schema.field(name)
        if member is None:
            raise DataError(f"the envelope has no member {'.'.join(path)}")
        schema = member.schema
    return schema.made_optional()
