"""The task of the sink: writes the records of a `put` in one transaction of the database.

Keeps true:  a `put` returns when its rows are committed. With `offsets.table` the offsets are committed with them. The
             next task begins at these offsets. So each record is written once, whatever is killed (W9).
             The records of one key are written in their order: a statement ends where an insert follows a delete, or
             the schema changes.
             A record that the database refuses is reported alone, if the connector's errors are tolerated.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy import MetaData, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.jdbc.columns import is_mysql, sql_value
from felice.pipelines.connect.connectors.jdbc.connections import engine_of, is_lost, reason_of, with_attempts
from felice.pipelines.connect.connectors.jdbc.sink_options import (
    INSERT,
    KAFKA,
    KAFKA_COLUMNS,
    NONE,
    OPTIONS,
    RECORD_KEY,
    UPSERT,
)
from felice.pipelines.connect.connectors.jdbc.table_changes import Wanted, added_columns, created
from felice.pipelines.connect.model.errors import ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import INT32, INT64, STRING, STRUCT, Schema, Struct, simple

_log = logging.getLogger("felice.connect.jdbc")


@dataclass(frozen=True, slots=True)
class _Row:
    """A record as a row of a table. `values` None: the row of these keys is deleted."""

    record: SinkRecord
    table: str
    columns: tuple[Wanted, ...]
    keys: Mapping[str, Any]
    values: Mapping[str, Any] | None


_Columns: TypeAlias = tuple[tuple[Wanted, ...], list[tuple[str, Schema]]]
"""The columns of a row, and the names and schemas of those that a record's value has."""


class JdbcSinkTask(SinkTask):
    """Writes rows."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; connects with the first records. Raises `ConnectError`."""
        self._options = OPTIONS.parse(dict(config))
        self._zone = ZoneInfo(self._options["db.timezone"])
        self._name = config.get("name", "")
        self._engine = engine_of(self._options)
        self._stopped = threading.Event()
        self._tables: dict[str, Table] = {}
        self._last: tuple[Schema, tuple[Wanted, ...], _Columns] | None = None
        self._retries: int = self._options["max.retries"]
        self._offsets = _OffsetsTable(self._options["offsets.table"], self._name)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Goes on where the database says, if it keeps the offsets."""
        if self._offsets.is_used:
            found = with_attempts(
                self._engine, self._options, self._stopped, lambda one: self._offsets.read(one, partitions)
            )
            self.context.seek(found)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Writes the rows. Raises `RetriableError` while it may be tried again, and `ConnectError`."""
        if not records:
            return
        try:
            self._write(records)
        except SQLAlchemyError as error:
            self._tables.clear()
            self._after(error, records)
        else:
            self._retries = self._options["max.retries"]

    def _after(self, error: SQLAlchemyError, records: Sequence[SinkRecord]) -> None:
        reason = reason_of(error)
        # What the database refuses now it refuses again; only what may pass is tried again.
        if is_lost(error) and self._retries > 0:
            self._retries -= 1
            _log.warning("the database did not take %d records, and is tried again: %s", len(records), reason)
            self.context.set_timeout(self._options["retry.backoff.ms"])
            raise RetriableError(f"the database did not take the records: {reason}") from error
        if is_lost(error):
            raise ConnectError(f"the database did not take the records: {reason}") from error
        for record in records:
            try:
                self._write([record])
            except SQLAlchemyError as alone:
                self.context.report(
                    record, ConnectError(f"the database refuses the record: {reason_of(alone)}")
                )

    def stop(self) -> None:
        """Closes the connections."""
        if hasattr(self, "_engine"):
            self._stopped.set()
            self._engine.dispose()

    # Rows

    def _write(self, records: Sequence[SinkRecord]) -> None:
        rows = []
        for record in records:
            try:
                rows.append(self._row(record))
            except DataError as error:
                self.context.report(record, error)
        with self._engine.begin() as connection:
            for group in _in_order(rows, max(1, self._options["batch.size"] or 1)):
                self._write_group(connection, group)
            self._offsets.write(connection, records)

    def _row(self, record: SinkRecord) -> _Row:
        options = self._options
        table = options["table.name.format"].replace("${topic}", record.place[0])
        keys = self._keys(record)
        key_columns = [Wanted(name, schema, is_key=True) for name, schema, _ in keys]
        key_values = {name: sql_value(schema, value, self._zone) for name, schema, value in keys}
        if record.value is None:
            if not options["delete.enabled"]:
                raise DataError("a record has no value, and delete.enabled is false")
            return _Row(record, table, tuple(key_columns), key_values, None)
        schema, value = record.value_schema, record.value
        if not isinstance(value, Struct) or schema is None:
            raise DataError("the value must be a struct with a schema; use a converter with schemas")
        columns, members = self._columns(tuple(key_columns), schema)
        values = {name: sql_value(kind, value[name], self._zone) for name, kind in members}
        return _Row(record, table, columns, key_values, values)

    def _columns(self, keys: tuple[Wanted, ...], schema: Schema) -> _Columns:
        """The columns of a row, and the members of a value that are not keys. The last ones are kept."""
        if self._last is not None and self._last[0] is schema and self._last[1] == keys:
            return self._last[2]
        names, allowed = {one.name for one in keys}, self._options["fields.whitelist"]
        members = [
            (one.name, one.schema)
            for one in schema.fields
            if one.name not in names and (not allowed or one.name in allowed)
        ]
        found = (*keys, *(Wanted(*one) for one in members)), members
        self._last = schema, keys, found
        return found

    def _keys(self, record: SinkRecord) -> list[tuple[str, Schema, Any]]:
        mode, names = self._options["pk.mode"], self._options["pk.fields"]
        if mode == NONE:
            return []
        if mode == KAFKA:
            place = (*record.place, record.offset)
            kinds = (simple(STRING), simple(INT32), simple(INT64))
            return list(zip(names or KAFKA_COLUMNS, kinds, place, strict=True))
        what = "key" if mode == RECORD_KEY else "value"
        schema, value = (
            (record.key_schema, record.key) if mode == RECORD_KEY else (record.value_schema, record.value)
        )
        if schema is None or value is None:
            raise DataError(f"pk.mode={mode} needs a {what} with a schema, and a record has none")
        if schema.type != STRUCT:
            if len(names) != 1:
                raise DataError(f"pk.mode={mode} with a primitive {what} needs exactly one name in pk.fields")
            return [(names[0], schema, value)]
        found = []
        for name in names or [one.name for one in schema.fields]:
            member = schema.field(name)
            if member is None:
                raise DataError(f"pk.mode={mode}: the record's {what} has no member {name}")
            found.append((name, member.schema, value[name]))
        return found

    # Statements

    def _write_group(self, connection: Connection, group: Sequence[_Row]) -> None:
        first = group[0]
        table = self._table(connection, first)
        if first.values is None:
            statement: Any = sqlalchemy.delete(table).where(
                *(table.c[name] == sqlalchemy.bindparam(f"key_{name}") for name in first.keys)
            )
            connection.execute(
                statement, [{f"key_{name}": one for name, one in row.keys.items()} for row in group]
            )
            return
        names = [one.name for one in first.columns]
        if self._options["insert.mode"] in (INSERT, UPSERT):
            statement = self._insert(connection.dialect.name, table, list(first.keys), names)
            connection.execute(statement, [{**row.keys, **(row.values or {})} for row in group])
            return
        statement = (
            sqlalchemy.update(table)
            .where(*(table.c[name] == sqlalchemy.bindparam(f"key_{name}") for name in first.keys))
            .values({name: sqlalchemy.bindparam(f"set_{name}") for name in first.values})
        )
        connection.execute(
            statement,
            [
                {
                    **{f"key_{name}": one for name, one in row.keys.items()},
                    **{f"set_{name}": one for name, one in (row.values or {}).items()},
                }
                for row in group
            ],
        )

    def _insert(self, dialect: str, table: Table, keys: Sequence[str], names: Sequence[str]) -> Any:
        if self._options["insert.mode"] == INSERT:
            return sqlalchemy.insert(table)
        others = [name for name in names if name not in keys]
        if is_mysql(dialect):
            made = mysql.insert(table)
            # Without other columns the row stays as it is.
            return made.on_duplicate_key_update({name: made.inserted[name] for name in others or keys})
        if dialect not in _UPSERTS:
            raise ConnectError(f"insert.mode=upsert is not supported for databases of the kind {dialect}")
        upsert: Any = _UPSERTS[dialect](table)
        elements = [table.c[name] for name in keys]
        if not others:
            return upsert.on_conflict_do_nothing(index_elements=elements)
        return upsert.on_conflict_do_update(
            index_elements=elements, set_={name: upsert.excluded[name] for name in others}
        )

    def _table(self, connection: Connection, row: _Row) -> Table:
        """The table, which has all columns of the row. Raises `ConnectError`."""
        table = self._tables.get(row.table)
        if table is None:
            table = created(connection, row.table, row.columns, creates=self._options["auto.create"])
        missing = [one for one in row.columns if one.name not in table.c]
        if missing and row.values is not None:
            table = added_columns(connection, table, row.table, missing, evolves=self._options["auto.evolve"])
        self._tables[row.table] = table
        return table


_UPSERTS: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def _in_order(rows: Sequence[_Row], most: int) -> Iterator[list[_Row]]:
    """Groups of rows for one statement each, in the order of the records."""

    def kind(row: _Row) -> tuple[Any, ...]:
        return row.table, row.columns, row.values is None

    for _, found in itertools.groupby(rows, kind):
        group = list(found)
        for at in range(0, len(group), most):
            yield group[at : at + most]


class _OffsetsTable:
    """The table with the offsets of a connector's partitions; unused without a name."""

    def __init__(self, name: str, connector: str) -> None:
        self.is_used = bool(name)
        self._connector = connector
        self._table = Table(
            name or "unused",
            MetaData(),
            sqlalchemy.Column("connector", sqlalchemy.String(255), primary_key=True),
            sqlalchemy.Column("topic", sqlalchemy.String(249), primary_key=True),
            sqlalchemy.Column("partition", sqlalchemy.Integer, primary_key=True, autoincrement=False),
            sqlalchemy.Column("offset", sqlalchemy.BigInteger, nullable=False),
        )

    def read(
        self, connection: Connection, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offsets of partitions. Creates the table, and a row for each partition, so that writes lock it."""
        self._table.create(connection, checkfirst=True)
        connection.commit()
        columns = self._table.c
        rows = connection.execute(
            sqlalchemy.select(columns.topic, columns.partition, columns.offset).where(
                columns.connector == self._connector
            )
        )
        found = {(topic, number): offset for topic, number, offset in rows}
        return {one: found[one] for one in partitions if one in found}

    def write(self, connection: Connection, records: Sequence[SinkRecord]) -> None:
        """Sets the offsets after these records, in the transaction that writes them.

        Raises `ConnectError` if another task has written later ones: this one has lost the partition.
        """
        if not self.is_used:
            return
        firsts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for record in records:
            firsts.setdefault(record.place, record.offset)
            ends[record.place] = record.offset + 1
        columns = self._table.c
        for (topic, number), end in ends.items():
            place = {"connector": self._connector, "topic": topic, "partition": number}
            moved = connection.execute(
                sqlalchemy.update(self._table)
                .where(
                    columns.connector == self._connector,
                    columns.topic == topic,
                    columns.partition == number,
                    columns.offset <= firsts[topic, number],
                )
                .values(offset=end)
            )
            if moved.rowcount:
                continue
            known = connection.execute(
                sqlalchemy.select(columns.offset).where(
                    columns.connector == self._connector, columns.topic == topic, columns.partition == number
                )
            ).scalar_one_or_none()
            if known is not None:
                raise ConnectError(
                    f"records of {topic}-{number} from offset {firsts[topic, number]} are written already, "
                    f"up to {known}: another task has the partition"
                )
            connection.execute(sqlalchemy.insert(self._table).values(**place, offset=end))
