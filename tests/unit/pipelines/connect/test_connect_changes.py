"""Messages of PostgreSQL's log, and rows out of envelopes of changes."""

from __future__ import annotations

import contextlib
import struct as binary
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.connect.connectors.postgres.options import OPTIONS
from felice.pipelines.connect.connectors.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Relation,
    RelationColumn,
    Truncate,
    decode,
)
from felice.pipelines.connect.connectors.postgres.snapshots import Seen
from felice.pipelines.connect.connectors.postgres.tables import SOURCE, Column, Selection, Table
from felice.pipelines.connect.connectors.postgres.values import ServerType
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.schema import Struct
from felice.pipelines.connect.transforms.changes import ExtractNewRecordState


def text(value: str) -> bytes:
    return b"t" + binary.pack(">I", len(value)) + value.encode()


INSERT = b"I" + binary.pack(">I", 7) + b"N" + binary.pack(">H", 2) + text("1") + b"n"
UPDATE = (
    b"U" + binary.pack(">I", 7) + b"O" + binary.pack(">H", 1) + text("a") + b"N" + binary.pack(">H", 1) + b"u"
)
DELETE = b"D" + binary.pack(">I", 7) + b"K" + binary.pack(">H", 1) + text("1")
RELATION = (
    b"R"
    + binary.pack(">I", 7)
    + b"public\0items\0d"
    + binary.pack(">H", 1)
    + b"\1id\0"
    + binary.pack(">Ii", 23, -1)
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"B" + binary.pack(">QqI", 5, 1, 9), Begin(5, 946_684_800_000_001, 9)),
        (b"C" + binary.pack(">BQQq", 0, 5, 6, 1), Commit(6)),
        (RELATION, Relation(7, "public", "items", (RelationColumn("id", 23, -1, True),))),
        (INSERT, Change("c", 7, None, ["1", None], False)),
        (UPDATE, Change("u", 7, ["a"], [UNCHANGED], False)),
        (DELETE, Change("d", 7, ["1"], None, True)),
        (b"T" + binary.pack(">IBI", 1, 0, 7), Truncate((7,))),
    ],
)
def test_messages(data: bytes, message: Any) -> None:
    assert decode(data) == message
    for length in range(len(data)):
        with pytest.raises(ConnectError, match="cannot be read"):
            decode(data[:length])


@given(st.binary(max_size=60), st.sampled_from([INSERT, UPDATE, DELETE, RELATION, b""]))
def test_any_bytes_are_a_message_or_refused(data: bytes, start: bytes) -> None:
    with contextlib.suppress(ConnectError):
        decode(start[: len(start) // 2] + data)


def test_what_a_moment_has_seen() -> None:
    seen = Seen.of("100:105:100,103:77")
    assert [xid for xid in range(98, 108) if seen.has(xid)] == [98, 99, 101, 102, 104]
    assert Seen.of(seen.text) == seen and Seen.of("5:5::1") == Seen(5, 5, (), 1)
    # The log has 32 bits of a number, which begin again.
    turn = 1 << 32
    late = Seen(turn - 2, turn + 3, (turn + 1,), 0)
    assert [late.has(xid % turn) for xid in range(turn - 4, turn + 5)] == [True] * 5 + [
        False,
        True,
        False,
        False,
    ]


TABLE_OPTIONS = OPTIONS.parse(
    {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
)
COLUMNS = [Column("id", ServerType("int4"), -1, True), Column("name", ServerType("text"), -1, True)]
TABLE = Table(("public", "items"), COLUMNS, ["id"], TABLE_OPTIONS, Selection(TABLE_OPTIONS))


def change(operation: str, before: Any, after: Any) -> SourceRecord:
    source = {
        "version": "1",
        "connector": "c",
        "name": "p",
        "ts_ms": 5,
        "db": "d",
        "schema": "public",
        "table": "items",
        "lsn": 9,
    }
    value = Struct(
        TABLE.envelope, {"before": before, "after": after, "op": operation, "source": Struct(SOURCE, source)}
    )
    return SourceRecord("t", None, TABLE.key_schema, TABLE.key(["1", "a"]), TABLE.envelope, value)


def tombstone() -> SourceRecord:
    return SourceRecord("t", None, TABLE.key_schema, TABLE.key(["1", "a"]), None, None)


def made(**config: str) -> ExtractNewRecordState:
    given = {name.replace("_", "."): value for name, value in config.items()}
    return ExtractNewRecordState(ExtractNewRecordState.definitions.parse(given))


ROW = TABLE.value(["1", "a"])


def test_a_change_becomes_its_row() -> None:
    found = made(add_fields="op,table,source.ts_ms,lsn:place", add_headers="op").apply(change("u", None, ROW))
    assert (
        found is not None
        and found.value_schema is not None
        and found.value_schema.name == "p.public.items.Value"
    )
    assert dict(found.value.items()) == {
        "id": 1,
        "name": "a",
        "__op": "u",
        "__table": "items",
        "__source_ts_ms": 5,
        "__place": 9,
    }
    assert [(one.name, one.value) for one in found.headers] == [("__op", "u")]
    assert not found.value_schema.field("id").schema.optional  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("mode", "deleted", "after"),
    [
        ("drop", "nothing", "nothing"),
        ("tombstone", "nothing", "tombstone"),
        ("rewrite", "row", "nothing"),
        ("rewrite-with-tombstone", "row", "tombstone"),
        ("delete-to-tombstone", "tombstone", "nothing"),
    ],
)
def test_deletes(mode: str, deleted: str, after: str) -> None:
    transformation = made(delete_tombstone_handling_mode=mode)

    def kind(record: SourceRecord) -> str:
        found = transformation.apply(record)
        if found is None:
            return "nothing"
        if found.value is None:
            assert found.value_schema is None
            return "tombstone"
        assert found.value["__deleted"] == "true" and found.value["id"] == 1
        return "row"

    assert (kind(change("d", ROW, None)), kind(tombstone())) == (deleted, after)


def test_values_without_a_schema_and_other_records() -> None:
    envelope = {"before": None, "after": {"id": 1}, "op": "c", "source": {"table": "x"}}
    record = SourceRecord("t", None, None, None, None, envelope)
    found = made(add_fields="table").apply(record)
    assert found is not None and found.value == {"id": 1, "__table": "x"}
    other = SourceRecord("t", None, None, None, None, {"ts_ms": 1})
    assert made().apply(other) is other
