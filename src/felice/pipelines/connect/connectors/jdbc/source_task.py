"""The task of the source: reads its tables in turn, and remembers in offsets where each one is.

Keeps true:  with equal times, an offset passes a time only when a row with a later one follows or the result has ended:
             a crash between two rows of one time repeats rows, and loses none.
             The end of a timestamp query is the database's own clock less the delay, read before the query.
             A database that is away is tried again; nothing is skipped meanwhile.
"""

from __future__ import annotations

import datetime
import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy import ColumnElement, Select, Table, column, func, literal, select, text
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import SQLAlchemyError

from felice.pipelines.connect.connector.base import SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.jdbc.columns import (
    UTC,
    ColumnType,
    column_type,
    is_mysql,
    value_type,
)
from felice.pipelines.connect.connectors.jdbc.connections import engine_of, is_lost, reason_of
from felice.pipelines.connect.connectors.jdbc.source_options import (
    BOTH,
    BULK,
    INCREMENTING,
    OPTIONS,
    TABLES,
    TIMESTAMP,
)
from felice.pipelines.connect.connectors.jdbc.tables import TableName, existing, incrementing_column
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.schema import INT8, INT16, INT32, INT64, Struct, struct

_log = logging.getLogger("felice.connect.jdbc")

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER, _TIME, _NANOS = "incrementing", "timestamp", "timestamp_nanos"
"""The names in offsets."""


class JdbcSourceTask(SourceTask):
    """Reads some tables, or one query."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; connects with the first `poll`."""
        options = OPTIONS.parse(dict(config))
        self._options = options
        self._engine = engine_of(options)
        self._failures = 0
        if options["query"]:
            self._readers: list[_Reader] = [_QueryReader(options)]
        else:
            names = config.get(TABLES, "")
            self._readers = [_TableReader(options, TableName.parse(one)) for one in names.split("\n") if one]
        offsets = self.context.offsets([one.place for one in self._readers])
        for reader, offset in zip(self._readers, offsets, strict=True):
            reader.resume(offset)
        self._turns = itertools.cycle(self._readers)

    def poll(self) -> Sequence[SourceRecord] | None:
        """A batch of the table whose turn it is; None when no table is due."""
        if not self._readers:
            self.stopping.wait(1)
            return None
        now_s = time.monotonic()
        for _ in self._readers:
            reader = next(self._turns)
            if reader.due_s <= now_s:
                return self._batch(reader)
        self.stopping.wait(min(1.0, max(0.0, min(one.due_s for one in self._readers) - now_s)))
        return None

    def _batch(self, reader: _Reader) -> Sequence[SourceRecord] | None:
        found: list[SourceRecord] = []
        try:
            if reader.rows is None:
                reader.open(self._engine.connect())
            for record in itertools.islice(reader.records(), self._options["batch.max.rows"]):
                found.append(record)
        except SQLAlchemyError as error:
            reader.close()
            if found:
                return found  # the reader goes on after them; the next call meets the error, if it stays
            self._tolerate(error)
            return None
        self._failures = 0
        if len(found) < self._options["batch.max.rows"]:
            reader.close()
            reader.due_s = time.monotonic() + self._options["poll.interval.ms"] / 1000
        return found or None

    def _tolerate(self, error: SQLAlchemyError) -> None:
        self._failures += 1
        if not is_lost(error) or self._failures >= max(1, self._options["connection.attempts"]):
            raise ConnectError(f"the database cannot be read: {reason_of(error)}") from error
        _log.warning("the database is away, and is tried again: %s", reason_of(error))
        self.stopping.wait(self._options["connection.backoff.ms"] / 1000)

    def close(self) -> None:
        """Closes the connections."""
        for reader in getattr(self, "_readers", ()):
            reader.close()
        if hasattr(self, "_engine"):
            self._engine.dispose()


class _Reader:
    """Reads one table or query, again and again."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._mode: str = options["mode"]
        self._zone = ZoneInfo(options["db.timezone"])
        self.due_s = 0.0
        self.rows: Iterator[SourceRecord] | None = None
        self._connection: Connection | None = None
        self._number_name: str = options["incrementing.column.name"]
        self._time_names: list[str] = options["timestamp.column.name"]
        self._number = -1
        self._at = _EPOCH

    # What tables and queries differ in

    place: Place
    topic: str

    def _prepare(self, connection: Connection) -> None:
        """Learns what is needed of the database."""
        raise NotImplementedError

    def _source(self) -> tuple[Any, ColumnElement[Any] | None, list[ColumnElement[Any]]]:
        """What is selected from, its column that grows, and its columns of times."""
        raise NotImplementedError

    def _types(self, rows: Sequence[Row[Any]], keys: Sequence[str]) -> dict[str, ColumnType]:
        """How the columns of a result are read."""
        raise NotImplementedError

    # Offsets

    def resume(self, offset: Place | None) -> None:
        """Goes on after an offset."""
        initial = self._options["timestamp.initial"]
        if initial is not None:
            self._at = (
                datetime.datetime.now(UTC)
                if initial == -1
                else _EPOCH + datetime.timedelta(milliseconds=initial)
            )
        if offset is None or self._mode == BULK:
            return
        if self._mode in (INCREMENTING, BOTH) and offset.get(_NUMBER) is not None:
            self._number = int(offset[_NUMBER])
        if self._mode in (TIMESTAMP, BOTH) and offset.get(_TIME) is not None:
            seconds, milliseconds = divmod(int(offset[_TIME]), 1000)
            micros = int(offset[_NANOS]) // 1000 if offset.get(_NANOS) is not None else milliseconds * 1000
            self._at = _EPOCH + datetime.timedelta(seconds=seconds, microseconds=micros)

    def _offset(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._mode in (INCREMENTING, BOTH):
            found[_NUMBER] = self._number
        if self._mode in (TIMESTAMP, BOTH):
            since = self._at - _EPOCH
            found[_TIME] = since // datetime.timedelta(milliseconds=1)
            found[_NANOS] = self._at.microsecond * 1000
        return found

    # Rows

    def open(self, connection: Connection) -> None:
        """Begins to read."""
        self._connection = connection
        self._prepare(connection)
        result = connection.execution_options(stream_results=True).execute(self._query(connection))
        self.rows = self._made(result)

    def records(self) -> Iterator[SourceRecord]:
        """The next records of the result that is open."""
        assert self.rows is not None
        return self.rows

    def close(self) -> None:
        """Ends the reading of a result."""
        self.rows = None
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except SQLAlchemyError as error:
                _log.debug("the end of a connection: %s", reason_of(error))

    def _query(self, connection: Connection) -> Any:
        source, number, times = self._source()
        query: Any = source if isinstance(source, Select) else select(source)
        if self._mode == INCREMENTING:
            assert number is not None
            query = query.where(number > self._number).order_by(number.asc())
        elif self._mode in (TIMESTAMP, BOTH):
            moment = times[0] if len(times) == 1 else func.coalesce(*times, type_=times[0].type)
            begin, end = self._bound(connection, self._at), self._bound(connection, self._end(connection))
            if self._mode == TIMESTAMP:
                query = query.where(moment > begin, moment < end).order_by(moment.asc())
            else:
                assert number is not None
                again = sqlalchemy.and_(moment == begin, number > self._number)
                query = query.where(moment < end, sqlalchemy.or_(again, moment > begin))
                query = query.order_by(moment.asc(), number.asc())
        if suffix := self._options["query.suffix"]:
            query = query.suffix_with(text(suffix))
        return query

    def _end(self, connection: Connection) -> datetime.datetime:
        """The database's clock less the delay."""
        now = connection.execute(_clock(connection.dialect.name)).scalar_one()
        if isinstance(now, str):
            now = datetime.datetime.fromisoformat(now)
        now = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
        delay = datetime.timedelta(milliseconds=self._options["timestamp.delay.interval.ms"])
        moment: datetime.datetime = now - delay
        return moment

    def _bound(self, connection: Connection, moment: datetime.datetime) -> Any:
        """A time as the column has it."""
        _, _, times = self._source()
        if getattr(times[0].type, "timezone", False):
            return moment
        naive = moment.astimezone(self._zone).replace(tzinfo=None)
        return literal(naive, times[0].type) if connection.dialect.name == "sqlite" else naive

    def _made(self, result: Any) -> Iterator[SourceRecord]:
        keys = list(result.keys())
        first = list(itertools.islice(result, self._options["batch.max.rows"]))
        types = self._types(first, keys)
        schema = struct({key: types[key].schema for key in keys}, name=self._name())
        rows = itertools.chain(first, result)
        for row, following in _with_next(rows):
            values = {
                key: None if value is None else types[key].convert(value)
                for key, value in zip(keys, row, strict=True)
            }
            self._advance(values, following, types, keys)
            yield SourceRecord(
                self.topic,
                None,
                None,
                None,
                schema,
                Struct(schema, values),
                source_partition=self.place,
                source_offset=self._offset(),
            )

    def _name(self) -> str | None:
        raise NotImplementedError

    def _advance(
        self,
        values: Mapping[str, Any],
        following: Row[Any] | None,
        types: Mapping[str, ColumnType],
        keys: Sequence[str],
    ) -> None:
        """Moves the offset over a row, if it may."""
        if self._mode in (INCREMENTING, BOTH):
            self._number = self._whole(values.get(self._number_name))
        if self._mode in (TIMESTAMP, BOTH):
            moment = self._moment(values)
            if self._mode == BOTH or following is None:
                self._at = moment
                return
            later = dict(zip(keys, following, strict=True))
            given = {
                name: None if later[name] is None else types[name].convert(later[name])
                for name in self._time_names
            }
            if self._moment(given) > moment:
                self._at = moment

    def _whole(self, value: Any) -> int:
        if value is None or value != int(value):
            raise ConnectError(
                f"the incrementing column {self._number_name} has the value {value}, which is no whole number"
            )
        return int(value)

    def _moment(self, values: Mapping[str, Any]) -> datetime.datetime:
        for name in self._time_names:
            found = values.get(name)
            if found is not None:
                if not isinstance(found, datetime.datetime):
                    raise ConnectError(f"the timestamp column {name} holds no timestamps")
                return found
        raise ConnectError("a row without a time was read")


def _with_next(rows: Iterator[Row[Any]]) -> Iterator[tuple[Row[Any], Row[Any] | None]]:
    """Each row with the one after it."""
    before: Row[Any] | None = None
    for row in rows:
        if before is not None:
            yield before, row
        before = row
    if before is not None:
        yield before, None


def _clock(dialect: str) -> Any:
    """The database's time: with a zone, or in UTC."""
    if is_mysql(dialect):
        return select(func.utc_timestamp(6))
    if dialect == "sqlite":
        return text("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
    return select(func.current_timestamp())


class _TableReader(_Reader):
    """Reads a table."""

    def __init__(self, options: Mapping[str, Any], table: TableName) -> None:
        super().__init__(options)
        self._table_name = table
        self.topic = options["topic.prefix"] + table.name
        self.place = {"protocol": "1", "table": table.full}
        self._table: Table

    def _prepare(self, connection: Connection) -> None:
        """Reads the table's columns each time: a column that came or went makes another schema."""
        self._table = existing(connection, self._table_name)
        dialect = connection.dialect.name
        best_fit = self._options["numeric.mapping"] == "best_fit"
        self._column_types = {
            one.name: column_type(
                one.type, dialect, self._zone, optional=bool(one.nullable), best_fit=best_fit
            )
            for one in self._table.columns
        }
        if self._mode in (INCREMENTING, BOTH):
            self._number_name = incrementing_column(self._table, self._options["incrementing.column.name"])
            kind = self._column_types[self._number_name].schema
            if kind.type not in (INT8, INT16, INT32, INT64) and kind.parameter("scale") != "0":
                raise ConnectError(f"the incrementing column {self._number_name} must hold whole numbers")
            self._check_not_null([self._number_name], "Incrementing column")
        if self._mode in (TIMESTAMP, BOTH):
            for name in self._time_names:
                if name not in self._table.columns:
                    raise ConnectError(
                        f"Timestamp column: {name} does not exist in the table {self._table.name}"
                    )
            self._check_not_null(self._time_names, "At least one timestamp column")

    def _check_not_null(self, names: Sequence[str], what: str) -> None:
        if self._options["validate.non.null"] and all(self._table.columns[name].nullable for name in names):
            raise ConnectError(
                f"{what} of the table {self._table_name.full} must be NOT NULL: {', '.join(names)}; rows with null are "
                "never read. validate.non.null=false allows it"
            )

    def _source(self) -> tuple[Any, ColumnElement[Any] | None, list[ColumnElement[Any]]]:
        columns = self._table.columns
        number = columns[self._number_name] if self._mode in (INCREMENTING, BOTH) else None
        return self._table, number, [columns[name] for name in self._time_names]

    def _types(self, rows: Sequence[Row[Any]], keys: Sequence[str]) -> dict[str, ColumnType]:
        return self._column_types

    def _name(self) -> str | None:
        return self._table_name.name


class _QueryReader(_Reader):
    """Reads a query. Its columns have the types of the first values that were seen."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.topic = options["topic.prefix"]
        self.place = {"query": "query"}
        self._known: dict[str, ColumnType] = {}
        self._dialect = ""

    def _prepare(self, connection: Connection) -> None:
        self._dialect = connection.dialect.name

    def _source(self) -> tuple[Any, ColumnElement[Any] | None, list[ColumnElement[Any]]]:
        grows = self._mode in (INCREMENTING, BOTH)
        number = column(self._number_name, sqlalchemy.BigInteger()) if grows else None
        times: list[ColumnElement[Any]] = [column(name, sqlalchemy.DateTime()) for name in self._time_names]
        inner = text(f"({self._options['query']}) AS felice_query".replace(":", "\\:"))
        return select(text("*")).select_from(inner), number, times

    def _types(self, rows: Sequence[Row[Any]], keys: Sequence[str]) -> dict[str, ColumnType]:
        found: dict[str, ColumnType] = {}
        best_fit = self._options["numeric.mapping"] == "best_fit"
        for at, key in enumerate(keys):
            value = next((row[at] for row in rows if row[at] is not None), None)
            kind = None if value is None else value_type(value)
            if kind is not None and key not in self._known:
                self._known[key] = column_type(
                    kind, self._dialect, self._zone, optional=True, best_fit=best_fit
                )
            unknown = column_type(sqlalchemy.Text(), self._dialect, self._zone, optional=True)
            found[key] = self._known.get(key, unknown)
        return found

    def _name(self) -> str | None:
        return None
