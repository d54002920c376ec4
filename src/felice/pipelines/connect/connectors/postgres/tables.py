"""Which tables are read, and what their rows become: keys, values and envelopes with schemas. Pure.

Source: Debezium's manual, "PostgreSQL connector: data change events".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.postgres.pgoutput import UNCHANGED, Row
from felice.pipelines.connect.connectors.postgres.values import ColumnType, ServerType, column_type, neutral
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.schema import (
    BYTES,
    INT64,
    STRING,
    Schema,
    Struct,
    simple,
    struct,
)

_SYSTEM = ("pg_catalog", "information_schema")
_OPTIONAL_LONG, _OPTIONAL_TEXT = simple(INT64, optional=True), simple(STRING, optional=True)
SOURCE = struct(
    {
        "version": simple(STRING),
        "connector": simple(STRING),
        "name": simple(STRING),
        "ts_ms": simple(INT64),
        "snapshot": Schema(
            STRING,
            optional=True,
            name="io.debezium.data.Enum",
            version=1,
            parameters=(
                (
                    "allowed",
                    "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
                ),
            ),
        ).with_default("false"),
        "db": simple(STRING),
        "sequence": _OPTIONAL_TEXT,
        "ts_us": _OPTIONAL_LONG,
        "ts_ns": _OPTIONAL_LONG,
        "schema": simple(STRING),
        "table": simple(STRING),
        "txId": _OPTIONAL_LONG,
        "lsn": _OPTIONAL_LONG,
        "xmin": _OPTIONAL_LONG,
    },
    name="io.debezium.connector.postgresql.Source",
)
TRANSACTION = struct(
    {"id": simple(STRING), "total_order": simple(INT64), "data_collection_order": simple(INT64)},
    name="event.block",
    version=1,
    optional=True,
)


class Selection:
    """Which tables and columns are read."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._patterns = {
            (kind, verb): [re.compile(one, re.IGNORECASE) for one in options[f"{kind}.{verb}.list"]]
            for kind in ("schema", "table", "column")
            for verb in ("include", "exclude")
        }

    def has_table(self, schema: str, table: str) -> bool:
        """Whether a table is read."""
        if schema in _SYSTEM or schema.startswith("pg_toast"):
            return False
        return self._allows("schema", schema) and self._allows("table", f"{schema}.{table}")

    def has_column(self, schema: str, table: str, column: str) -> bool:
        """Whether a column of it is."""
        return self._allows("column", f"{schema}.{table}.{column}")

    def _allows(self, kind: str, name: str) -> bool:
        wanted, unwanted = self._patterns[kind, "include"], self._patterns[kind, "exclude"]
        if wanted:
            return any(one.fullmatch(name) for one in wanted)
        return not any(one.fullmatch(name) for one in unwanted)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, in the order of its rows."""

    name: str
    kind: ServerType
    modifier: int
    is_required: bool


@dataclass(frozen=True, slots=True)
class _Member:
    """A column that is read: its place in rows, its name, its type."""

    place: int
    name: str
    type: ColumnType

    @property
    def schema(self) -> Schema:
        """The schema of its values."""
        return self.type.schema


class Table:
    """A table whose rows become records."""

    def __init__(
        self,
        names: tuple[str, str],
        columns: Sequence[Column],
        key: Sequence[str],
        options: Mapping[str, Any],
        selection: Selection,
    ) -> None:
        """`names` are those of schema and table; `key` are the columns of the primary key."""
        self.schema, self.name = names
        self.topic = f"{options['topic.prefix']}.{self.schema}.{self.name}"
        self._placeholder: str = options["unavailable.value.placeholder"]
        self._members = []
        for place, one in enumerate(columns):
            if selection.has_column(*names, one.name):
                kind = column_type(one.kind, one.modifier, options, optional=not one.is_required)
                self._members.append(_Member(place, one.name, kind))
        key = _own_key(options["message.key.columns"], *names) or key
        self._key = [one for name in key for one in self._members if one.name == name]
        self._value_schema = struct(
            {one.name: one.schema for one in self._members}, name=f"{self.topic}.Value", optional=True
        )
        self.key_schema: Schema | None = None
        if self._key:
            self.key_schema = struct({one.name: one.schema for one in self._key}, name=f"{self.topic}.Key")
        self.envelope = struct(
            {
                "before": self._value_schema,
                "after": self._value_schema,
                "source": SOURCE,
                "transaction": TRANSACTION,
                "op": simple(STRING),
                "ts_ms": _OPTIONAL_LONG,
                "ts_us": _OPTIONAL_LONG,
                "ts_ns": _OPTIONAL_LONG,
            },
            name=f"{self.topic}.Envelope",
            version=2,
        )

    def key(self, row: Row) -> Struct | None:
        """The key of a row. Raises `DataError`."""
        if self.key_schema is None:
            return None
        return Struct(self.key_schema, {one.name: self._read(one, row, None) for one in self._key})

    def value(self, row: Row, old: Row | None = None, *, is_key: bool = False) -> Struct:
        """The value of a row; of columns that an update did not change, those of the `old` row. Raises `DataError`.

        `is_key`: the row has only the columns of its key; others have a neutral value where they need one.
        """
        found = {}
        for one in self._members:
            value = self._read(one, row, old)
            found[one.name] = neutral(one.schema) if value is None and is_key else value
        return Struct(self._value_schema, found)

    def _read(self, member: _Member, row: Row, old: Row | None) -> Any:
        text = row[member.place]
        if text is UNCHANGED and old is not None:
            text = old[member.place]
        if text is None:
            return None
        if not isinstance(text, str):
            return self._unavailable(member)
        try:
            return member.type.read(text)
        except (DataError, ValueError, IndexError, ArithmeticError) as error:
            raise DataError(f"column {member.name} of {self.schema}.{self.name}: {error}") from error

    def _unavailable(self, member: _Member) -> Any:
        kind = member.schema.type
        if kind == STRING:
            return self._placeholder
        if kind == BYTES and member.schema.name is None:
            return self._placeholder.encode()
        return neutral(member.schema)


def _own_key(text: str, schema: str, table: str) -> list[str]:
    """The columns that `message.key.columns` has for a table."""
    for part in filter(None, (one.strip() for one in text.split(";"))):
        pattern, _, names = part.rpartition(":")
        if re.fullmatch(pattern, f"{schema}.{table}", re.IGNORECASE):
            return [one.strip() for one in names.split(",")]
    return []
