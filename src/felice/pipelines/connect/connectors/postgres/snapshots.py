"""The rows of all tables at one moment, and which transactions of the log that moment had seen.

Keeps true:  a change is in the rows or in the log after them, and never in both: the log begins before the moment, and
             its transactions that the moment had seen are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from psycopg2 import extensions, sql

from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.postgres.pgoutput import Row
from felice.pipelines.connect.connectors.postgres.server import Catalogue, connect, lsn_of
from felice.pipelines.connect.connectors.postgres.tables import Selection, Table

_XIDS = 1 << 32
"""The log has the lowest 32 bits of a transaction's number."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The transactions that a moment had seen: those below `first`, and those below `next` that are not `running`.

    After the place `until` in the log none of them follows.
    """

    first: int
    next: int
    running: tuple[int, ...]
    until: int

    def has(self, xid: int) -> bool:
        """Whether the moment had seen a transaction. `xid` has 32 bits."""
        full = self.next + (xid - self.next + _XIDS // 2) % _XIDS - _XIDS // 2
        return full < self.first or (full < self.next and full not in self.running)

    @property
    def text(self) -> str:
        """What an offset holds: the server's text of a snapshot, and the place."""
        return f"{self.first}:{self.next}:{','.join(map(str, self.running))}:{self.until}"

    @classmethod
    def of(cls, text: str) -> Seen:
        """The reverse. Raises `ValueError`."""
        first, following, running, until = text.split(":")
        return cls(
            int(first), int(following), tuple(int(one) for one in running.split(",") if one), int(until)
        )


class Snapshot:
    """Reads the rows of one moment. `close` it at the end."""

    def __init__(self, options: Mapping[str, Any], selection: Selection) -> None:
        self._options = options
        self._connection = connect(options)
        self._selection = selection
        try:
            self._connection.set_session(
                isolation_level=extensions.ISOLATION_LEVEL_REPEATABLE_READ, readonly=True, autocommit=False
            )
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT pg_current_snapshot()")
                seen: str = cursor.fetchone()[0]
                # Later than the moment, so that every transaction that it has seen was committed before.
                cursor.execute("SELECT pg_current_wal_insert_lsn()")
                until = lsn_of(cursor.fetchone()[0])
            self.seen = Seen.of(f"{seen}:{until}")
        except BaseException:
            self._connection.close()
            raise

    def rows(self) -> Iterator[tuple[Table, Row]]:
        """All rows, one table after another."""
        catalogue = Catalogue(self._connection, self._options, self._selection)
        for oid, schema, name in catalogue.tables():
            columns = catalogue.columns(oid)
            table = Table((schema, name), columns, catalogue.key(oid), self._options, self._selection)
            with self._connection.cursor("felice_snapshot") as cursor:
                cursor.itersize = self._options["snapshot.fetch.size"]
                members = [sql.Identifier(one.name) for one in columns]
                statement = sql.SQL("SELECT {} FROM {}").format(
                    sql.SQL(", ").join(members) or sql.SQL("1"), sql.Identifier(schema, name)
                )
                cursor.execute(statement)
                for row in cursor:
                    yield table, row

    def close(self) -> None:
        """Ends the moment."""
        self._connection.close()
