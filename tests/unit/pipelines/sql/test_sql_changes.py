"""What files of statements would change on a server."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.shell.changes import CREATE, EXTRA, KEEP, REPLACE, Existing, Step, steps_of
from felice.pipelines.sql.syntax.errors import SqlError

STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON')"
NOTHING = Existing({}, frozenset(), frozenset())


def test_everything_is_created_in_the_order_of_the_files() -> None:
    steps = steps_of(
        {"a.sql": f"CREATE TYPE t AS INT; {STREAM};", "b.sql": "CREATE STREAM r AS SELECT * FROM s;"},
        NOTHING,
        {},
    )
    assert [(one.action, one.name) for one in steps] == [(CREATE, "type T"), (CREATE, "S"), (CREATE, "R")]
    assert steps[2].statement == "CREATE STREAM r AS SELECT * FROM s;"


def test_what_the_server_has_is_kept_though_it_is_written_otherwise() -> None:
    existing = Existing(
        {"S": ("STREAM", STREAM)}, frozenset({"T"}), frozenset({"INSERT INTO s SELECT * FROM o"})
    )
    text = """
    -- The same, with other spaces and names in other letters.
    create or replace stream IF NOT EXISTS S (K string key, V integer) WITH (VALUE_FORMAT='JSON', kafka_topic='s');
    CREATE TYPE t AS INT;
    insert into s select * from o;
    """
    text = text.replace("integer", "int").replace(
        "VALUE_FORMAT='JSON', kafka_topic='s'", "kafka_topic='s', value_format='JSON'"
    )
    assert {one.action for one in steps_of({"a.sql": text}, existing, {})} == {KEEP}


def test_another_statement_replaces() -> None:
    existing = Existing({"S": ("STREAM", STREAM)}, frozenset(), frozenset())
    wider = STREAM.replace("v INT", "v INT, w INT")
    assert steps_of({"a.sql": f"{wider};"}, existing, {}) == [
        Step(REPLACE, "S", wider.replace("CREATE STREAM", "CREATE OR REPLACE STREAM") + ";", file="a.sql")
    ]


def test_what_no_file_has_is_named_and_the_last_one_first() -> None:
    existing = Existing(
        {"S": ("STREAM", STREAM), "R": ("TABLE", "CREATE TABLE r AS …")}, frozenset(), frozenset()
    )
    assert steps_of({"a.sql": "SET 'a'='b';"}, existing, {}) == [
        Step(EXTRA, "R", "DROP TABLE R;"),
        Step(EXTRA, "S", "DROP STREAM S;"),
    ]


def test_settings_and_variables_hold_within_a_file() -> None:
    first = f"DEFINE name='s'; SET 'auto.offset.reset'='earliest'; {STREAM.replace('STREAM s', 'STREAM ${name}')};"
    second = "CREATE STREAM r AS SELECT * FROM s;"
    steps = steps_of({"a.sql": first, "b.sql": second}, NOTHING, {})
    assert [one.settings for one in steps] == [{"auto.offset.reset": "earliest"}, {}]
    with pytest.raises(SqlError, match=r"b\.sql, line 1:\d+: .*name is not defined"):
        steps_of({"a.sql": first, "b.sql": second.replace("STREAM r", "STREAM ${name}")}, NOTHING, {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("INSERT INTO s VALUES (1);", "run other statements with felice sql -f FILE"),
        ("DROP STREAM s;", r"a\.sql, line 1:1: a file to apply may have CREATE"),
        (f"{STREAM}; {STREAM};", r"a\.sql, S is made by two statements, the first in a\.sql"),
        ("CREATE STREAM;", "expected"),
    ],
)
def test_files_that_cannot_be_applied(text: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        steps_of({"a.sql": text}, NOTHING, {})


def test_an_insert_is_named_after_its_select() -> None:
    text = "insert into s\n  select *\n  from Selected where v > 0;"
    (step,) = steps_of({"a.sql": text}, NOTHING, {})
    assert step.name == "insert into S: * from Selected where v > 0"
