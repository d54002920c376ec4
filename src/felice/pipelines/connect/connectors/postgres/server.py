"""The server: connections, its catalogue, its slot and publication, and the stream of its log.

Keeps true:  no error or log line holds a password.
             The texts of values are those that `values` reads: no type is converted by the driver.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Any

import psycopg2
from psycopg2 import extensions, sql
from psycopg2.extras import LogicalReplicationConnection

from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.postgres.options import ALL_TABLES, DISABLED
from felice.pipelines.connect.connectors.postgres.pgoutput import Message, decode
from felice.pipelines.connect.connectors.postgres.tables import Column, Selection
from felice.pipelines.connect.connectors.postgres.values import SESSION, ServerType
from felice.pipelines.connect.model.errors import ConnectError, RetriableError

_CONNECT_S = 10
_LOST = ("08", "53", "57", "55006")
"""The beginnings of codes of errors that another attempt may not meet: connections, resources, a slot in use."""
_SOON = (
    "starting up",
    "shutting down",
    "too many",
    "connection slots",
    "recovery mode",
    "terminating",
    "is active for",
)
_RAW = extensions.new_type(tuple(extensions.string_types), "text", lambda value, cursor: value)

Connection = Any
"""A connection of psycopg2, which has no types."""


def failure_of(error: psycopg2.Error) -> ConnectError:
    """The error for the framework: one that is tried again, or one that fails the task."""
    text = " ".join(str(error).split()) or type(error).__name__
    code = error.pgcode or ""
    if code:
        may_pass = code.startswith(_LOST)
    else:  # the connection was not made, or was lost
        may_pass = not isinstance(error, psycopg2.ProgrammingError) and (
            "FATAL" not in text or any(one in text for one in _SOON)
        )
    return (RetriableError if may_pass else ConnectError)(f"the database answers: {text}")


def connect(options: Mapping[str, Any], *, replicates: bool = False) -> Connection:
    """A connection; with `replicates` one that can only stream the log."""
    password = options["database.password"]
    more: dict[str, Any] = {"connection_factory": LogicalReplicationConnection} if replicates else {}
    for name in ("sslrootcert", "sslcert", "sslkey"):
        if options[f"database.{name}"] is not None:
            more[name] = options[f"database.{name}"]
    connection = psycopg2.connect(
        host=options["database.hostname"],
        port=options["database.port"],
        user=options["database.user"],
        password=None if password is None else password.value,
        dbname=options["database.dbname"],
        sslmode=options["database.sslmode"],
        connect_timeout=_CONNECT_S,
        client_encoding="UTF8",
        options=" ".join(f"-c {name}={value}" for name, value in SESSION.items()),
        application_name="felice-connect",
        **more,
    )
    if not replicates:
        connection.autocommit = True
        extensions.register_type(_RAW, connection)
    return connection


def lsn_of(text: str) -> int:
    """The number of a place in the log, as `16/B374D848`."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """The same as a text."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class Slot:
    """What keeps the log for this connector. `lsn`: what the server was told to be done with."""

    lsn: int
    plugin: str


class Catalogue:
    """Questions to the server's catalogue, over one connection."""

    def __init__(self, connection: Connection, options: Mapping[str, Any], selection: Selection) -> None:
        self._connection = connection
        self._options = options
        self._selection = selection
        self._types: dict[int, tuple[ServerType, int]] = {}

    def _rows(self, query: str | sql.Composable, *values: Any) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def check_wal_level(self) -> None:
        """Raises `ConnectError` if the server's log has not what is needed."""
        level = self._rows("SHOW wal_level")[0][0]
        if level != "logical":
            raise ConnectError(
                f"the server has wal_level={level}, and this connector needs wal_level=logical in postgresql.conf"
            )

    def tables(self) -> list[tuple[int, str, str]]:
        """The tables to read: their numbers, schemas and names, in order of names."""
        found = self._rows(
            "SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p' ORDER BY 2, 3"
        )
        return [
            (int(oid), schema, name) for oid, schema, name in found if self._selection.has_table(schema, name)
        ]

    def columns(self, oid: int) -> list[Column]:
        """The columns of a table, in their order."""
        found = self._rows(
            "SELECT attname, atttypid, atttypmod, attnotnull FROM pg_attribute "
            "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            oid,
        )
        return [
            Column(name, *self.type_of(int(kind), int(modifier)), required == "t")
            for name, kind, modifier, required in found
        ]

    def key(self, oid: int) -> list[str]:
        """The columns of a table's primary key, else of the index that identifies its rows, else none."""
        found = self._rows(
            "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indexrelid = (SELECT indexrelid FROM pg_index WHERE indrelid = %s "
            "AND (indisprimary OR indisreplident) ORDER BY indisprimary DESC LIMIT 1) ORDER BY k.place",
            oid,
        )
        return [name for (name,) in found]

    def type_of(self, oid: int, modifier: int) -> tuple[ServerType, int]:
        """A type and its modifier; of a domain, those of the type that it is made of."""
        known = self._types.get(oid)
        if known is None:
            known = self._types[oid] = self._look_up(oid)
        kind, own = known
        return kind, own if own >= 0 else modifier

    def _look_up(self, oid: int) -> tuple[ServerType, int]:
        found = self._rows(
            "SELECT typname, typtype, typcategory, typelem, typbasetype, typtypmod FROM pg_type WHERE oid = %s",
            oid,
        )
        if not found:
            return ServerType("unknown"), -1  # dropped since then: its values are texts
        name, kind, category, item, base, modifier = found[0]
        if kind == "d":
            inner, own = self.type_of(int(base), int(modifier))
            return inner, own
        if kind == "e":
            labels = self._rows(
                "SELECT enumlabel FROM pg_enum WHERE enumtypid = %s ORDER BY enumsortorder", oid
            )
            return ServerType(name, tuple(label for (label,) in labels)), -1
        if category == "A" and int(item):
            return ServerType(name, item=self.type_of(int(item), -1)[0]), -1
        return ServerType(name), -1

    # Slot and publication

    def slot(self) -> Slot | None:
        """The slot, or None. Raises `ConnectError` if its name is taken by one of another kind."""
        name, database = self._options["slot.name"], self._options["database.dbname"]
        found = self._rows(
            "SELECT confirmed_flush_lsn, plugin, database FROM pg_replication_slots WHERE slot_name = %s",
            name,
        )
        if not found:
            return None
        lsn, plugin, of = found[0]
        if plugin != "pgoutput" or of != database:
            raise ConnectError(
                f"the slot {name} is one of {plugin or 'physical replication'} in the database {of}: "
                "choose another slot.name"
            )
        return Slot(lsn_of(lsn), plugin)

    def create_slot(self) -> Slot:
        """Makes the slot: the server keeps its log from now on."""
        self._rows(
            "SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')", self._options["slot.name"]
        )
        slot = self.slot()
        assert slot is not None
        return slot

    def drop_slot(self) -> None:
        """Lets the server forget the log."""
        self._rows("SELECT pg_drop_replication_slot(%s)", self._options["slot.name"])

    def ensure_publication(self) -> None:
        """Makes the publication if it is missing. Raises `ConnectError` if it must not be made."""
        name = self._options["publication.name"]
        if self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", name):
            return
        mode = self._options["publication.autocreate.mode"]
        if mode == DISABLED:
            raise ConnectError(
                f"the publication {name} is missing, and publication.autocreate.mode is disabled"
            )
        statement = sql.SQL("CREATE PUBLICATION {} FOR ").format(sql.Identifier(name))
        if mode == ALL_TABLES:
            self._rows(statement + sql.SQL("ALL TABLES"))
            return
        tables = [sql.Identifier(schema, table) for _, schema, table in self.tables()]
        if not tables:
            raise ConnectError("no table fits table.include.list, so that the publication cannot be made")
        self._rows(statement + sql.SQL("TABLE ") + sql.SQL(", ").join(tables))


class Stream:
    """The log of the server, from a place on."""

    def __init__(self, options: Mapping[str, Any], lsn: int) -> None:
        self._connection = connect(options, replicates=True)
        self._interval_s: float = options["status.update.interval.ms"] / 1000
        self._confirmed, self._told_s = lsn, time.monotonic()
        try:
            self._cursor = self._connection.cursor()
            name = options["publication.name"].replace('"', '""')
            self._cursor.start_replication(
                slot_name=options["slot.name"],
                decode=False,
                start_lsn=lsn,
                options={"proto_version": "1", "publication_names": f'"{name}"'},
            )
        except BaseException:
            self._connection.close()
            raise

    def read(self, wait_s: float) -> Message | None:
        """The next message; None if there is none after this time."""
        if time.monotonic() - self._told_s >= self._interval_s:
            self.confirm(self._confirmed)
        found = self._cursor.read_message()
        if found is None and wait_s > 0:
            select.select([self._connection], [], [], wait_s)
            found = self._cursor.read_message()
        return None if found is None else decode(found.payload)

    @property
    def lsn(self) -> int:
        """How far the server has read its log. After `read` gave None: nothing before it is still to come."""
        return int(self._cursor.wal_end or 0)

    def confirm(self, lsn: int) -> None:
        """Tells the server that its log before this place is not needed any more."""
        self._confirmed, self._told_s = max(lsn, self._confirmed), time.monotonic()
        self._cursor.send_feedback(write_lsn=lsn, flush_lsn=lsn, reply=False, force=True)

    def close(self) -> None:
        """Ends the stream."""
        self._connection.close()
