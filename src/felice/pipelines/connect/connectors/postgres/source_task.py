"""The task of the source: rows as they are, then the log, and the offsets between them.

Keeps true:  a record's offset is the end of the last whole transaction, with the place of the record's own transaction
             and the number of its changes up to the record. The log gives the same changes in the same order again, so
             that a task that goes on leaves out exactly those that were committed.
             The task confirms the server's log only up to a committed offset: the server frees no more.
             A slot that is missing, or further than the offset, means lost changes: the task fails and says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.postgres.options import (
    ALWAYS,
    INITIAL_ONLY,
    NEVER,
    NO_DATA,
    OPTIONS,
)
from felice.pipelines.connect.connectors.postgres.pgoutput import (
    Begin,
    Change,
    Commit,
    Message,
    Relation,
    Row,
    Truncate,
)
from felice.pipelines.connect.connectors.postgres.snapshots import Seen
from felice.pipelines.connect.connectors.postgres.tables import SOURCE, Column, Selection, Table
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.record import Header, SourceRecord
from felice.pipelines.connect.model.schema import INT64, STRING, Struct, simple, struct

_log = logging.getLogger("felice.connect.postgres")

_SLICE_S = 0.5
"""The longest wait for a change, so that a stop is seen."""
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_HEARTBEAT_KEY = struct(
    {"serverName": simple(STRING)}, name="io.debezium.connector.common.ServerNameKey", version=1
)
_HEARTBEAT = struct({"ts_ms": simple(INT64)}, name="io.debezium.connector.common.Heartbeat", version=1)


@dataclass(frozen=True, slots=True)
class Position:
    """How far the log was read: whole transactions up to `lsn`, and `changes` of the one that was committed at `at`."""

    lsn: int
    at: int = 0
    changes: int = 0
    seen: Seen | None = None
    """What the rows have shown already."""
    in_rows: bool = False
    """Whether the rows are not read to their end."""

    def to_json(self) -> dict[str, Any]:
        """The offset."""
        found: dict[str, Any] = {"lsn": self.lsn}
        if self.changes:
            found |= {"lsn_commit": self.at, "changes": self.changes}
        if self.seen is not None:
            found["seen"] = self.seen.text
        if self.in_rows:
            found["snapshot"] = True
        return found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Position:
        """The position of an offset. Raises `ConnectError`."""
        try:
            seen = None if given.get("seen") is None else Seen.of(given["seen"])
            at, changes = int(given.get("lsn_commit", 0)), int(given.get("changes", 0))
            return cls(int(given["lsn"]), at, changes, seen, bool(given.get("snapshot")))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConnectError(f"the offset {dict(given)} is none of this connector: {error!r}") from None


class PostgresSourceTask(SourceTask):
    """Reads one database."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; connects with the first `poll`. Raises `ConnectError`."""
        try:
            import psycopg2  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConnectError(
                f"{error.name} is not installed: pip install 'felice[connect-postgres]'"
            ) from error
        options = self._options = OPTIONS.parse(dict(config))
        self._selection = Selection(options)
        self._place: Place = {"server": options["topic.prefix"]}
        found = self.context.offset(self._place)
        self._position = None if found is None else Position.from_json(found)
        mode = options["snapshot.mode"]
        is_new = self._position is None or self._position.in_rows
        self._wants_rows = mode == ALWAYS or (is_new and mode not in (NO_DATA, NEVER))
        self._reader: _Rows | _Log | None = None
        self._beat_s = time.monotonic()

    def poll(self) -> Sequence[SourceRecord] | None:
        """The next rows or changes. Raises `RetriableError` while the server is away."""
        import psycopg2

        from felice.pipelines.connect.connectors.postgres.server import failure_of

        try:
            records = self._read()
        except psycopg2.Error as error:
            self._disconnect()
            raise failure_of(error) from error
        except DataError as error:
            self._disconnect()
            raise ConnectError(str(error)) from error
        return records or None

    def offsets_committed(self, offsets: Sequence[tuple[Place, Place]]) -> None:
        """Lets the server free its log."""
        import psycopg2

        for _, offset in offsets:
            if isinstance(self._reader, _Log) and not offset.get("snapshot"):
                try:
                    self._reader.stream.confirm(int(offset["lsn"]))
                except psycopg2.Error as error:  # the next poll meets it, too
                    _log.warning(
                        "the server was not told how far its log was read: %s", " ".join(str(error).split())
                    )

    def close(self) -> None:
        """Closes the connections."""
        if not hasattr(self, "_options"):
            return
        self._disconnect()
        if self._options["slot.drop.on.stop"]:
            self._drop_slot()

    def _drop_slot(self) -> None:
        import psycopg2

        from felice.pipelines.connect.connectors.postgres.server import Catalogue, connect

        try:
            connection = connect(self._options)
            try:
                Catalogue(connection, self._options, self._selection).drop_slot()
            finally:
                connection.close()
        except psycopg2.Error as error:
            _log.warning("the slot was not dropped: %s", " ".join(str(error).split()))

    def _disconnect(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _read(self) -> list[SourceRecord]:
        if self._options["snapshot.mode"] == INITIAL_ONLY and not self._wants_rows:
            self.stopping.wait(_SLICE_S)
            return []
        if self._reader is None:
            self._reader = self._connect()
        most = self._options["max.batch.size"]
        if isinstance(self._reader, _Rows):
            found = list(self._reader.records(most))
            if found:
                self._position = found[-1][1]
            if self._reader.is_done:
                self._end_rows()
            return [record for record, _ in found]
        records, position = self._read_log(self._reader, most)
        # Only now: a failure on the way drops the records, which are read again from the old position.
        self._position = position
        return records + self._beat(self._reader)

    def _read_log(self, log: _Log, most: int) -> tuple[list[SourceRecord], Position | None]:
        """What the log has, and the position after it. Returns soon, also if none of many changes has a record."""
        records: list[SourceRecord] = []
        last = self._position
        wait_s = min(_SLICE_S, self._options["poll.interval.ms"] / 1000)
        end_s = time.monotonic() + _SLICE_S
        while len(records) < most and not self.stopping.is_set():
            message = log.stream.read(0 if records else wait_s)
            if message is None:
                break
            for record, position in log.records(message):
                records.append(record)
                last = position
            if time.monotonic() >= end_s:
                break
        return records, last

    def _end_rows(self) -> None:
        """The rows are read. The last of them had the position at which the log begins; without one it is here."""
        assert isinstance(self._reader, _Rows)
        self._position = self._reader.end
        self._wants_rows = False
        self._disconnect()

    def _connect(self) -> _Rows | _Log:
        from felice.pipelines.connect.connectors.postgres.server import Catalogue, connect

        connection = connect(self._options)
        try:
            catalogue = Catalogue(connection, self._options, self._selection)
            catalogue.check_wal_level()
            catalogue.ensure_publication()
            slot, position = catalogue.slot(), self._position
            if position is None or position.in_rows:
                slot = slot or catalogue.create_slot()
                position = self._position = Position(slot.lsn)
            elif slot is None or slot.lsn > position.lsn:
                self._refuse(None if slot is None else slot.lsn, position.lsn)
            if self._wants_rows:
                connection.close()
                return _Rows(self._options, self._selection, position, self._record)
            return _Log(connection, catalogue, self._options, self._selection, position, self._record)
        except BaseException:
            connection.close()
            raise

    def _refuse(self, slot_lsn: int | None, lsn: int) -> None:
        from felice.pipelines.connect.connectors.postgres.server import lsn_text

        name = self._options["slot.name"]
        has = "is missing" if slot_lsn is None else f"begins at {lsn_text(slot_lsn)}"
        raise ConnectError(
            f"changes may be lost: the offset is {lsn_text(lsn)}, and the slot {name} {has}. To read all rows "
            "again, stop the connector, delete its offsets and resume it"
        )

    def _record(
        self,
        table: Table,
        operation: str,
        key: Struct | None,
        value: Struct | None,
        position: Position,
        headers: Any = (),
    ) -> SourceRecord:
        schema = None if value is None else table.envelope
        return SourceRecord(
            table.topic,
            None,
            table.key_schema,
            key,
            schema,
            value,
            None,
            tuple(headers),
            source_partition=self._place,
            source_offset=position.to_json(),
        )

    def _beat(self, log: _Log) -> list[SourceRecord]:
        """A record with the offset, when it is time for one and no transaction is open."""
        interval_s = self._options["heartbeat.interval.ms"] / 1000
        if not interval_s or time.monotonic() - self._beat_s < interval_s or log.is_open:
            return []
        self._beat_s = time.monotonic()
        position = self._position = log.rest()
        prefix = self._options["topic.prefix"]
        return [
            SourceRecord(
                f"{self._options['topic.heartbeat.prefix']}.{prefix}",
                None,
                _HEARTBEAT_KEY,
                Struct(_HEARTBEAT_KEY, {"serverName": prefix}),
                _HEARTBEAT,
                Struct(_HEARTBEAT, {"ts_ms": int(time.time() * 1000)}),
                source_partition=self._place,
                source_offset=position.to_json(),
            )
        ]


class _Envelopes:
    """Makes envelopes: what happened to a row, and where it stands in the log."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name: str = options["topic.prefix"]
        self._database: str = options["database.dbname"]

    def made(
        self,
        table: Table,
        operation: str,
        before: Struct | None,
        after: Struct | None,
        *,
        us: int,
        lsn: int,
        xid: int | None = None,
        snapshot: str = "false",
    ) -> Struct:
        now_us = time.time_ns() // 1000
        source = {
            "version": "1",
            "connector": "postgresql",
            "name": self._name,
            "ts_ms": us // 1000,
            "ts_us": us,
            "ts_ns": us * 1000,
            "snapshot": snapshot,
            "db": self._database,
            "schema": table.schema,
            "table": table.name,
            "txId": xid,
            "lsn": lsn,
        }
        return Struct(
            table.envelope,
            {
                "before": before,
                "after": after,
                "source": Struct(SOURCE, source),
                "op": operation,
                "ts_ms": now_us // 1000,
                "ts_us": now_us,
                "ts_ns": now_us * 1000,
            },
        )


class _Rows:
    """Reads the rows of one moment."""

    def __init__(
        self, options: Mapping[str, Any], selection: Selection, start: Position, record: Any
    ) -> None:
        from felice.pipelines.connect.connectors.postgres.snapshots import Snapshot

        self._snapshot = Snapshot(options, selection)
        self._envelopes = _Envelopes(options)
        self._record = record
        self._us = time.time_ns() // 1000
        self._during = replace(start, in_rows=True)
        self.end = replace(start, seen=self._snapshot.seen, in_rows=False)
        """Where the log begins after the rows."""
        self._rows = self._snapshot.rows()
        try:
            self._ahead = next(self._rows, None)
        except BaseException:
            self.close()
            raise
        self._is_first = True
        _log.info("the rows of all tables are read")

    @property
    def is_done(self) -> bool:
        """Whether there is no other row."""
        return self._ahead is None

    def records(self, most: int) -> Iterator[tuple[SourceRecord, Position]]:
        """The next records, with the positions after them."""
        for _ in range(most):
            if self._ahead is None:
                return
            (table, row), self._ahead = self._ahead, next(self._rows, None)
            position = self.end if self._ahead is None else self._during
            mark = "last" if self._ahead is None else "first" if self._is_first else "true"
            self._is_first = False
            lsn = self._snapshot.seen.until
            value = self._envelopes.made(
                table, "r", None, table.value(row), us=self._us, lsn=lsn, snapshot=mark
            )
            yield self._record(table, "r", table.key(row), value, position), position

    def close(self) -> None:
        self._rows.close()  # type: ignore[attr-defined]
        self._snapshot.close()


class _Log:
    """Reads the log from a position on."""

    def __init__(
        self,
        connection: Any,
        catalogue: Any,
        options: Mapping[str, Any],
        selection: Selection,
        start: Position,
        record: Any,
    ) -> None:
        from felice.pipelines.connect.connectors.postgres.server import Stream

        self._connection = connection
        self._catalogue = catalogue
        self._options = options
        self._selection = selection
        self._record = record
        self._envelopes = _Envelopes(options)
        self._skipped = frozenset(options["skipped.operations"])
        self._tables: dict[int, Table | None] = {}
        self._start = start
        """Where reading began: changes up to it are left out."""
        self._lsn = start.lsn
        self._seen = start.seen
        self._transaction: Begin | None = None
        self._leaves_out = False
        self._changes = 0
        self.stream = Stream(options, start.lsn)
        _log.info("the log is read")

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._transaction is not None

    def rest(self) -> Position:
        """The position when nothing is left to read."""
        self._lsn = max(self._lsn, self.stream.lsn)
        return Position(self._lsn, seen=self._seen)

    def records(self, message: Message) -> Iterator[tuple[SourceRecord, Position]]:
        """The records of a message, with the positions after them. Raises `DataError`."""
        match message:
            case Begin():
                self._begin(message)
            case Commit():
                self._transaction, self._lsn = None, message.end_lsn
            case Relation():
                self._tables[message.oid] = self._table(message)
            case Change() | Truncate():
                yield from self._changed(message)

    def _begin(self, message: Begin) -> None:
        self._transaction, self._changes = message, 0
        if self._seen is not None and message.commit_lsn >= self._seen.until:
            self._seen = None
        self._leaves_out = self._seen is not None and self._seen.has(message.xid)

    def _changed(self, message: Change | Truncate) -> Iterator[tuple[SourceRecord, Position]]:
        if self._transaction is None:
            raise ConnectError("the server sent a change outside of a transaction")
        if self._leaves_out:
            return
        before = self._position
        # Counted also if it has no record, so that other options give the same numbers.
        self._changes += 1
        if self._transaction.commit_lsn == self._start.at and self._changes <= self._start.changes:
            return
        made = self._of_truncate(message) if isinstance(message, Truncate) else self._of_change(message)
        for number, (table, operation, key, value, headers) in enumerate(made, start=1):
            # A task that goes on between two records of a change makes both again.
            position = self._position if number == len(made) else before
            yield self._record(table, operation, key, value, position, headers), position

    @property
    def _position(self) -> Position:
        assert self._transaction is not None
        return Position(self._lsn, self._transaction.commit_lsn, self._changes, self._seen)

    def _of_truncate(self, message: Truncate) -> list[Any]:
        if "t" in self._skipped:
            return []
        tables = [self._tables.get(one) for one in message.relations]
        return [
            (one, "t", None, self._envelope(one, "t", None, None), ()) for one in tables if one is not None
        ]

    def _of_change(self, message: Change) -> list[Any]:
        table = self._known(message.relation)
        if table is None or message.operation in self._skipped:
            return []
        old, new = message.old, message.new
        if message.operation == "c":
            assert new is not None
            return [self._created(table, new)]
        if message.operation == "d":
            if old is None:
                raise DataError(
                    f"a row of {table.schema}.{table.name} was deleted, and the log does not say which"
                )
            return self._deleted(table, old, is_key=message.old_is_key)
        assert new is not None
        whole = None if message.old_is_key else old
        if old is not None and table.key_schema is not None:
            before, after = table.key(old), table.key(new)
            if before != after:
                gone = self._deleted(
                    table, old, is_key=message.old_is_key, headers=[Header(_NEW_KEY, table.key_schema, after)]
                )
                created = self._created(
                    table, new, whole, headers=[Header(_OLD_KEY, table.key_schema, before)]
                )
                return [*gone, created]
        was = None if whole is None else table.value(whole)
        value = self._envelope(table, "u", was, table.value(new, whole))
        return [(table, "u", table.key(new), value, ())]

    def _created(
        self, table: Table, row: Row, whole: Row | None = None, headers: Sequence[Header] = ()
    ) -> Any:
        value = self._envelope(table, "c", None, table.value(row, whole))
        return table, "c", table.key(row), value, headers

    def _deleted(self, table: Table, row: Row, *, is_key: bool, headers: Sequence[Header] = ()) -> list[Any]:
        key = table.key(row)
        value = self._envelope(table, "d", table.value(row, is_key=is_key), None)
        found: list[Any] = [(table, "d", key, value, headers)]
        if self._options["tombstones.on.delete"] and key is not None:
            found.append((table, "d", key, None, headers))
        return found

    def _envelope(self, table: Table, operation: str, before: Struct | None, after: Struct | None) -> Struct:
        assert self._transaction is not None
        begin = self._transaction
        return self._envelopes.made(
            table, operation, before, after, us=begin.commit_us, lsn=begin.commit_lsn, xid=begin.xid
        )

    def _known(self, relation: int) -> Table | None:
        if relation not in self._tables:
            raise ConnectError("the server sent a change of a table that it did not describe")
        return self._tables[relation]

    def _table(self, relation: Relation) -> Table | None:
        """The table as the log describes it. What only the catalogue knows is as it is today."""
        if not self._selection.has_table(relation.schema, relation.name):
            return None
        required = {one.name: one.is_required for one in self._catalogue.columns(relation.oid)}
        columns = []
        for one in relation.columns:
            kind, modifier = self._catalogue.type_of(one.oid, one.modifier)
            columns.append(Column(one.name, kind, modifier, required.get(one.name, False)))
        key = self._catalogue.key(relation.oid)
        names = {one.name for one in columns}
        if not set(key) <= names:  # it was another one then
            key = [one.name for one in relation.columns if one.is_key]
        return Table((relation.schema, relation.name), columns, key, self._options, self._selection)

    def close(self) -> None:
        self.stream.close()
        self._connection.close()
