"""The messages of the server's output plugin `pgoutput`, version 1. Pure.

Source: PostgreSQL's manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import ConnectError


class Unchanged:
    """The value of a column that is stored apart, and that the update did not change."""


UNCHANGED = Unchanged()
Value = str | Unchanged | None
"""A column's text as the type's output function gives it."""
Row = Sequence[Value]

_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins, which was committed at `commit_lsn`."""

    commit_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """It ends. The log goes on at `end_lsn`."""

    end_lsn: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a table. `is_key`: it is part of the replica identity."""

    name: str
    oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is for the changes that follow."""

    oid: int
    schema: str
    name: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was inserted (`c`), updated (`u`) or deleted (`d`).

    `old` is the row before, if the server gives it: whole, or only its key (`old_is_key`) with None elsewhere.
    """

    operation: str
    relation: int
    old: Row | None
    new: Row | None
    old_is_key: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were emptied."""

    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """A message without a change of a row: a type, an origin, a logical message."""


Message = Begin | Commit | Relation | Change | Truncate | Other
_OPERATIONS = {b"I": "c", b"U": "u", b"D": "d"}


def decode(data: bytes) -> Message:
    """The message. Raises `ConnectError` for bytes that are none."""
    try:
        return _Reader(data).message()
    except (struct.error, IndexError, ValueError) as error:
        raise ConnectError(f"the server sent a message of replication that cannot be read: {error}") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def message(self) -> Message:
        kind = self._bytes(1)
        if kind == b"B":
            lsn, us, xid = self._numbers(">QqI")
            return Begin(lsn, us + _EPOCH_US, xid)
        if kind == b"C":
            _, _, end, _ = self._numbers(">BQQq")
            return Commit(end)
        if kind == b"R":
            return self._relation()
        if kind in _OPERATIONS:
            return self._change(_OPERATIONS[kind])
        if kind == b"T":
            count, _ = self._numbers(">IB")
            return Truncate(tuple(self._numbers(">I")[0] for _ in range(count)))
        if kind in (b"O", b"Y", b"M"):
            return Other()
        raise ValueError(f"kind {kind!r}")

    def _relation(self) -> Relation:
        (oid,) = self._numbers(">I")
        schema, name = self._text(), self._text()
        _, count = self._numbers(">cH")
        columns = []
        for _ in range(count):
            (flags,) = self._numbers(">B")
            column = self._text()
            kind, modifier = self._numbers(">Ii")
            columns.append(RelationColumn(column, kind, modifier, bool(flags & 1)))
        return Relation(oid, schema or "pg_catalog", name, tuple(columns))

    def _change(self, operation: str) -> Change:
        (relation,) = self._numbers(">I")
        old: Row | None = None
        new: Row | None = None
        is_key = False
        kind = self._bytes(1)
        if kind in (b"K", b"O"):
            is_key = kind == b"K"
            old = self._row()
            kind = self._bytes(1) if operation == "u" else b""
        if kind == b"N":
            new = self._row()
        elif kind or operation != "d":
            raise ValueError(f"a row of kind {kind!r}")
        return Change(operation, relation, old, new, is_key)

    def _row(self) -> Row:
        (count,) = self._numbers(">H")
        found: list[Value] = []
        for _ in range(count):
            kind = self._bytes(1)
            if kind == b"n":
                found.append(None)
            elif kind == b"u":
                found.append(UNCHANGED)
            elif kind == b"t":
                (length,) = self._numbers(">I")
                found.append(self._bytes(length).decode())
            else:
                raise ValueError(f"a value of kind {kind!r}")
        return found

    def _numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def _bytes(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) != length:
            raise ValueError("it ends too soon")
        self._at += length
        return found

    def _text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found
