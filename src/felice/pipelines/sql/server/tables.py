"""The rows of a table, kept in this machine for SELECT without EMIT: a topic's newest records in a file of SQLite.

Keeps true: rows and the offsets up to which they were read are written in one transaction. So after kill -9 the
            follower continues where the file ends, and never counts a record twice or leaves one out.
            If the topic was deleted or created again, the rows of its file are discarded.
How:        one connection for the follower; each reader has its own. Write-ahead logging lets them read meanwhile.
            Readers read in pages. While a SELECT is open, SQLite must keep all rows that the SELECT may still read in
            its log, and the log would grow without bound.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from felice.client.error import KafkaException
from felice.client.model import TopicPartition
from felice.pipelines.sql.catalogue import SESSION, SourceInfo
from felice.pipelines.sql.server.cluster import Cluster, is_end, record_of
from felice.pipelines.sql.server.failures import reason_of
from felice.pipelines.streams.task import TopicRecord

_log = logging.getLogger("felice.sql")

_LAYOUT = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS offsets (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB NOT NULL, timestamp INTEGER NOT NULL) WITHOUT ROWID;
"""
_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA busy_timeout=10000")
MOST_AT_ONCE = 5_000
PAGE_ROWS, PAGE_BYTES = 500, 1 << 20
"""The maximum rows and bytes of a page. The last row may exceed the maximum of bytes."""
POLL_S = 0.2
RETRY_S = 1.0
CAUGHT_UP_S = 30.0
"""How long a reader waits for the rows that the topic had when it came."""

StoredRow = tuple[bytes, bytes, int]
"""Key, value and timestamp of a record."""


def opened(path: Path) -> sqlite3.Connection:
    """A connection to a file of rows. Each thread may use it, one at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for one in _PRAGMAS:
            connection.execute(one)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _laid_out(path: Path) -> sqlite3.Connection:
    connection = opened(path)
    try:
        connection.executescript(_LAYOUT)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


class TableRows:
    """The rows of one table. With `retention_ms` those are deleted that are so much older than the newest one: the
    windows of a table.
    """

    def __init__(self, path: Path, retention_ms: int | None = None) -> None:
        self.path = path
        self._retention_ms = retention_ms
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._write = _laid_out(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:  # It is damaged; the topic has all rows.
            _log.warning("a file of rows is made again", extra={"path": str(path), "reason": str(error)})
            self.delete()
            self._write = _laid_out(path)
        if retention_ms is not None:
            self._write.execute("CREATE INDEX IF NOT EXISTS by_time ON rows (timestamp)")
        (newest,) = self._write.execute("SELECT max(timestamp) FROM rows").fetchone()
        self._newest = newest or 0

    def close(self) -> None:
        """Close the file."""
        self._write.close()

    def delete(self) -> None:
        """Delete the closed file, with its log."""
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def of_topic(self, identity: str) -> None:
        """Throw the rows away unless they are of the topic with this identity."""
        found = self._write.execute("SELECT value FROM facts WHERE name = 'topic'").fetchone()
        if found is not None and found[0] == identity:
            return
        with self._write:
            self._write.execute("BEGIN")
            for table in ("rows", "offsets", "facts"):
                self._write.execute(f"DELETE FROM {table}")
            self._write.execute("INSERT INTO facts VALUES ('topic', ?)", (identity,))

    def offsets(self) -> dict[int, int]:
        """The offset of the next record, by partition."""
        return dict(self._write.execute("SELECT partition, offset FROM offsets"))

    def take(self, records: Sequence[TopicRecord], offsets: Mapping[int, int]) -> None:
        """Take records, in their order, and the offsets after them. Rows whose retention is over are deleted."""
        with self._write:
            self._write.execute("BEGIN")
            for record in records:
                if record.key is None:
                    continue
                if record.value is None:
                    self._write.execute("DELETE FROM rows WHERE key = ?", (record.key,))
                else:
                    self._write.execute(
                        "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
                        (record.key, record.value, record.timestamp),
                    )
            self._write.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?)", offsets.items())
            if self._retention_ms is not None:
                self._newest = max([self._newest, *(one.timestamp for one in records)])
                self._write.execute(
                    "DELETE FROM rows WHERE timestamp < ?", (self._newest - self._retention_ms,)
                )

    def rows(self, keys: Sequence[bytes] | None, window_bytes: int) -> Iterator[StoredRow]:
        """The rows of these keys, without their windows' bytes, or all rows, in pages.

        Between two pages nothing is open in the file, so a slow reader does not keep its log from being written back.
        What is written between them is seen in the later ones.
        """
        with closing(opened(self.path)) as connection:
            if keys is None:
                yield from _paged(connection, b"", None, None)
                return
            for key in keys:
                yield from _paged(connection, key, key + b"\xff" * window_bytes, len(key) + window_bytes)


def _paged(
    connection: sqlite3.Connection, low: bytes, high: bytes | None, length: int | None
) -> Iterator[StoredRow]:
    """The rows whose keys are from `low` to `high`, in their order, of keys with this length."""
    above = ">="
    while True:
        text, values = f"SELECT key, value, timestamp FROM rows WHERE key {above} ?", [low]
        if high is not None:
            text, values = f"{text} AND key <= ?", [low, high]
        page, size, is_last = list[StoredRow](), 0, False
        with closing(connection.execute(f"{text} ORDER BY key LIMIT {PAGE_ROWS}", values)) as found:
            while size < PAGE_BYTES:
                row = found.fetchone()
                if row is None:
                    is_last = len(page) < PAGE_ROWS
                    break
                page.append(row)
                size += len(row[0]) + len(row[1])
        for row in page:
            if length is None or len(row[0]) == length:
                yield row
        if is_last or not page:
            return
        low, above = page[-1][0], ">"


def window_bytes(source: SourceInfo) -> int:
    """How many bytes Kafka's windowed serializers write after a key."""
    if source.window is None:
        return 0
    return 16 if source.window.kind == SESSION else 8


class Follower:
    """Keeps the rows of one table up to date."""

    def __init__(
        self, source: SourceInfo, path: Path, cluster: Cluster, retention_ms: int | None = None
    ) -> None:
        self.source = source
        self.rows = TableRows(path, retention_ms)
        self._cluster = cluster
        self._positions: dict[int, int] = {}
        self._identity: str | None = None
        """That of the topic whose rows these are."""
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.fault: str | None = None
        """Why the topic cannot be followed at present."""

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Follow no longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.rows.close()

    async def forget(self) -> None:
        """Follow no longer, and delete the file."""
        await self.stop()
        self.rows.delete()

    async def caught_up(self) -> None:
        """Wait until all records that the topic has now are in the rows. Raises `KafkaException` and TimeoutError."""
        try:
            async with asyncio.timeout(CAUGHT_UP_S):
                identity = await self._cluster.identity(self.source.topic)
                ends = await self._cluster.ends(self.source.topic)
                while self._identity != identity or any(
                    self._positions.get(number, 0) < end for number, end in ends.items()
                ):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            told = "" if self.fault is None else f": {self.fault}"
            raise TimeoutError(
                f"the rows of {self.source.name} were not read up to the end of {self.source.topic} in "
                f"{CAUGHT_UP_S:g} seconds{told}"
            ) from None

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except (KafkaException, OSError, sqlite3.Error) as error:
                if self.fault is None:
                    _log.warning(
                        "a table cannot be followed",
                        extra={"table": self.source.name, "reason": reason_of(error)},
                    )
                self.fault = reason_of(error)
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        topic = self.source.topic
        identity = await self._cluster.identity(topic)
        self.rows.of_topic(identity)
        self._positions = await asyncio.to_thread(self.rows.offsets)
        self._identity = identity
        self._moved.set()
        async with self._cluster.reading([topic], from_beginning=True) as (consumer, ends):
            consumer.assign(
                [TopicPartition(topic, number, self._positions.get(number, 0)) for _, number in ends]
            )
            self.fault = None
            while True:
                messages = await consumer.consume(MOST_AT_ONCE, POLL_S)
                if not messages:
                    continue
                moved = dict(self._positions)
                records = list[TopicRecord]()
                for one in messages:
                    number = one.partition() or 0
                    if is_end(one):
                        moved[number] = max(moved.get(number, 0), one.offset() or 0)
                        continue
                    records.append(record_of(one))
                    moved[number] = (one.offset() or 0) + 1
                await asyncio.to_thread(self.rows.take, records, moved)
                self._positions = moved
                self._moved.set()
