"""The rows of tables in files of SQLite, and the keys by which a SELECT finds them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from felice.pipelines.sql.analysis.queries import plan_of
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.statements import Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.server.lookup import TableLookup
from felice.pipelines.sql.server.printing import guessed
from felice.pipelines.sql.server.rest import json_parts, pieces
from felice.pipelines.sql.server.tables import PAGE_BYTES, PAGE_ROWS, TableRows, window_bytes
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import Query
from felice.pipelines.streams.task import TopicRecord


def record(key: bytes | None, value: bytes | None, timestamp: int = 0) -> TopicRecord:
    return TopicRecord("t", key, value, timestamp)


def test_rows_and_offsets_stay(tmp_path: Path) -> None:
    rows = TableRows(tmp_path / "t.sqlite")
    rows.of_topic("first")
    rows.take(
        [record(b"a", b"1", 5), record(b"b", b"2"), record(None, b"x"), record(b"a", b"3", 7)], {0: 4, 1: 1}
    )
    rows.take([record(b"b", None)], {0: 5})
    rows.close()
    again = TableRows(tmp_path / "t.sqlite")
    again.of_topic("first")
    assert list(again.rows(None, 0)) == [(b"a", b"3", 7)]
    assert again.offsets() == {0: 5, 1: 1}
    again.of_topic("second")
    assert (list(again.rows(None, 0)), again.offsets()) == ([], {})
    again.close()
    again.delete()
    assert not list(tmp_path.iterdir())


def test_rows_of_keys_with_windows(tmp_path: Path) -> None:
    rows = TableRows(tmp_path / "t.sqlite")
    window = (5).to_bytes(8, "big")
    for key in (b"a", b"ab", b"a" + b"\xff" * 3):
        rows.take([record(key + window, key)], {0: 1})
    assert [value for _, value, _ in rows.rows([b"a"], 8)] == [b"a"]
    assert [value for _, value, _ in rows.rows([b"ab", b"a"], 8)] == [b"ab", b"a"]
    assert list(rows.rows([b"a"], 0)) == []
    rows.close()


def test_rows_of_old_windows_are_deleted(tmp_path: Path) -> None:
    rows = TableRows(tmp_path / "t.sqlite", retention_ms=100)
    rows.take([record(b"a", b"1", 1_000), record(b"b", b"2", 1_050)], {0: 2})
    rows.close()
    again = TableRows(tmp_path / "t.sqlite", retention_ms=100)
    again.take([record(b"c", b"3", 1_000)], {0: 3})
    assert [key for key, _, _ in again.rows(None, 0)] == [b"a", b"b", b"c"]
    again.take([record(b"d", b"4", 1_101)], {0: 4})
    assert [key for key, _, _ in again.rows(None, 0)] == [b"b", b"d"]
    again.close()


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("k = 'a'", [b"a"]),
        ("'a' = k AND n > 3", [b"a"]),
        ("n > 3 AND k IN ('a', 'b', 'a')", [b"a", b"b"]),
        ("t.k = 'a'", [b"a"]),
        ("k = 'a' OR n = 3", None),
        ("k NOT IN ('a')", None),
        ("UCASE(k) = 'a'", None),
        ("k > 'a'", None),
        ("n = 3", None),
    ],
)
def test_keys_that_where_names(condition: str, keys: list[bytes] | None) -> None:
    statements = Statements(built_in(), {}, Topics())
    statements.execute(
        "CREATE SOURCE TABLE t (k STRING PRIMARY KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
    )
    (written,) = statements_of(f"SELECT * FROM t WHERE {condition};", {})
    query = written.statement
    assert isinstance(query, Query)
    plan = plan_of(query, statements.catalogue, built_in(), {}, target=None)
    assert TableLookup(plan, query.where, statements.tools()).keys == keys
    assert window_bytes(plan.sides[0].source) == 0


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (None, (None, "<null>")),
        (b'{"a": 1}', ("JSON", '{"a": 1}')),
        (b"text", ("KAFKA_STRING", "text")),
        ((7).to_bytes(8, "big"), ("KAFKA_BIGINT or KAFKA_DOUBLE", "7")),
        ((7).to_bytes(4, "big"), ("KAFKA_INT", "7")),
        (b"\xff\xfe\xfd", ("BYTES", "fffefd")),
        (b"\0\0\0\0\x09\x02a", ("AVRO, PROTOBUF or JSON_SR", "schema 9, 0261")),
    ],
)
def test_formats_are_guessed(data: bytes | None, found: tuple[str | None, str]) -> None:
    assert guessed(data) == found


def test_large_rows_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    statements = Statements(built_in(), {}, Topics())
    statements.execute(
        "CREATE SOURCE TABLE t (k STRING PRIMARY KEY, v STRING) "
        "WITH (kafka_topic='t', value_format='JSON', partitions=1);"
    )
    (written,) = statements_of("SELECT k FROM t;", {})
    query = written.statement
    assert isinstance(query, Query)
    plan = plan_of(query, statements.catalogue, built_in(), {}, target=None)
    rows = TableRows(tmp_path / "t.sqlite")
    rows.take([record(b"%d" % number, b'{"V": "%s"}' % (b"x" * 400_000)) for number in range(7)], {0: 7})

    async def parts() -> list[int]:
        return [len(part) async for part in TableLookup(plan, None, statements.tools()).read(rows)]

    assert asyncio.run(parts()) == [3, 3, 1]
    rows.close()


def test_a_slow_reader_does_not_keep_the_log(tmp_path: Path) -> None:
    """An open SELECT did: the log grew with everything that was written meanwhile."""
    rows = TableRows(tmp_path / "t.sqlite")
    count = 3 * PAGE_ROWS
    rows.take([record(b"%05d" % number, b"x" * 100) for number in range(count)], {0: count})
    reader = rows.rows(None, 0)
    assert next(reader)[0] == b"00000"
    rows.take([record(b"%05d" % number, b"y" * 100) for number in range(count)], {0: 2 * count})
    busy, log, moved = rows._write.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (busy, log, moved) == (0, 0, 0)
    rest = list(reader)
    assert [key for key, _, _ in rest] == [b"%05d" % number for number in range(1, count)]
    assert rest[-1][1] == b"y" * 100
    rows.close()


def test_large_rows_make_small_pages(tmp_path: Path) -> None:
    rows = TableRows(tmp_path / "t.sqlite")
    window = (5).to_bytes(8, "big")
    keys = [b"a%d" % number for number in range(5)]
    rows.take([record(key + window, b"x" * PAGE_BYTES) for key in keys], {0: 5})
    assert [key[:2] for key, _, _ in rows.rows(None, 8)] == keys
    assert [key[:2] for key, _, _ in rows.rows([b"a3"], 8)] == [b"a3"]
    rows.close()


def test_rows_that_end_with_a_page(tmp_path: Path) -> None:
    rows = TableRows(tmp_path / "t.sqlite")
    for count in (0, 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS):
        rows.take([record(b"%05d" % number, b"x") for number in range(count)], {0: count})
        assert len(list(rows.rows(None, 0))) == count
    rows.close()


def test_parts_of_json_are_json() -> None:
    values: list[object] = [
        [],
        {},
        [[]],
        {"a": [1, {"b": None}], "c": {}},
        [{"d": [{"e": [{"f": "x"}]}]}],
        "é",
        1.5,
    ]
    for value in values:
        for depth in range(5):
            assert json.loads("".join(json_parts(value, depth))) == value
    assert len(list(json_parts(values))) > 10


def test_an_answer_is_written_in_pieces() -> None:
    async def sizes() -> list[int]:
        return [len(one) async for one in pieces("x" * 30_000 for _ in range(5))]

    assert asyncio.run(sizes()) == [90_000, 60_000]
