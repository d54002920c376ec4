"""Push queries that run in the server."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.analysis.queries import plan_of
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.statements import Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.server import rows
from felice.pipelines.sql.server.rows import PushRows, Read
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import Query
from felice.pipelines.streams.record import RecordMetadata
from felice.pipelines.streams.task import StreamsError, TopicRecord


def push(query: str) -> PushRows:
    statements = Statements(built_in(), {}, Topics())
    statements.execute(
        "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);"
    )
    (written,) = statements_of(query, {})
    assert isinstance(written.statement, Query)
    plan = plan_of(written.statement, statements.catalogue, built_in(), {}, target=None)
    return PushRows("q", plan, statements.tools())


def reads(count: int, start: int = 0) -> list[Read]:
    return [
        Read(TopicRecord("s", b"k%d" % number, b'{"v": 1}', number * 10_000), RecordMetadata("s", 1, number))
        for number in range(start, start + count)
    ]


def test_rows_know_where_their_records_were_read() -> None:
    found = push("SELECT k, rowpartition, rowoffset FROM s EMIT CHANGES;")._rows(reads(2, 5))
    assert [one.values for one in found] == [["k5", 1, 5], ["k6", 1, 6]]


def test_a_query_with_much_state_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_STATE_ROWS", 50)
    query = push("SELECT k, COUNT(*) AS n FROM s GROUP BY k EMIT CHANGES;")
    assert len(query._rows(reads(40))) == 40
    with pytest.raises(StreamsError, match="more than 50 rows of state"):
        query._rows(reads(40, 40))


def test_windows_that_are_over_cost_nothing() -> None:
    """Neither their rows stay, nor that they changed."""
    query = push(
        "SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) "
        "GROUP BY k EMIT CHANGES;"
    )
    for turn in range(20):
        query._rows(reads(100, turn * 100))
    assert query._driver.state_rows < 100
    assert not any(store._changed for store in query._driver._stores())
