"""What files of statements would change on a server."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.server import entities
from felice.pipelines.sql.shell.changes import CREATE, EXTRA, KEEP, REPLACE, Existing, Step, steps_of
from felice.pipelines.sql.shell.foresight import Described, Foresight, type_in
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.types import (
    BIGINT,
    INTEGER,
    STRING,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON')"
NOTHING = Existing({}, {}, {})


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
        {"S": ("STREAM", STREAM)}, {"T": INTEGER}, {"INSERTQUERY_1": "INSERT INTO s SELECT * FROM o"}
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
    existing = Existing({"S": ("STREAM", STREAM)}, {}, {})
    wider = STREAM.replace("v INT", "v INT, w INT")
    assert steps_of({"a.sql": f"{wider};"}, existing, {}) == [
        Step(REPLACE, "S", wider.replace("CREATE STREAM", "CREATE OR REPLACE STREAM") + ";", file="a.sql")
    ]


def test_what_no_file_has_is_named_and_the_last_one_first() -> None:
    existing = Existing({"S": ("STREAM", STREAM), "R": ("TABLE", "CREATE TABLE r AS …")}, {}, {})
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
        ("INSERT INTO s SELECT * FROM o; INSERT INTO s SELECT *  FROM o;", "is made by two statements"),
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


def inserts(**queries: str) -> Existing:
    return Existing({}, {}, queries)


def test_a_changed_insert_replaces_the_query_that_it_was() -> None:
    """Both ran: the old one was not ended."""
    existing = inserts(
        INSERTQUERY_4="INSERT INTO s SELECT * FROM o WHERE v > 1;",
        INSERTQUERY_5="INSERT INTO s SELECT * FROM p",
    )
    text = "INSERT INTO s SELECT * FROM p; INSERT INTO s SELECT * FROM o WHERE v > 2; INSERT INTO s SELECT * FROM q;"
    steps = steps_of({"a.sql": text}, existing, {})
    assert [(one.action, one.statement) for one in steps] == [
        (KEEP, ""),
        (REPLACE, "TERMINATE INSERTQUERY_4; INSERT INTO s SELECT * FROM o WHERE v > 2;"),
        (CREATE, "INSERT INTO s SELECT * FROM q;"),
    ]


def test_an_insert_with_an_id_replaces_the_query_of_this_id() -> None:
    existing = inserts(
        MORE="INSERT INTO s WITH (QUERY_ID='more') SELECT * FROM o",
        INSERTQUERY_5="INSERT INTO s SELECT * FROM p",
    )
    text = "INSERT INTO s WITH (QUERY_ID='more') SELECT * FROM p; INSERT INTO s WITH (QUERY_ID='new') SELECT * FROM p;"
    steps = steps_of({"a.sql": text}, existing, {})
    assert [one.statement.partition(";")[0] for one in steps] == [
        "TERMINATE MORE",
        "INSERT INTO s WITH (QUERY_ID='new') SELECT * FROM p",
        "TERMINATE INSERTQUERY_5",
    ]
    assert (steps[2].action, steps[2].name) == (EXTRA, "query INSERTQUERY_5 into S")


def test_the_id_of_a_query_is_quoted_where_it_must_be() -> None:
    """The server refused TERMINATE."""
    text = "INSERT INTO s WITH (QUERY_ID='a-1') SELECT * FROM {};"
    existing = inserts(**{"A-1": text.format("o"), "B-1": text.format("o").replace("a-1", "b-1")})
    steps = steps_of({"a.sql": text.format("p")}, existing, {})
    assert [one.statement.partition(";")[0] for one in steps] == ["TERMINATE `A-1`", "TERMINATE `B-1`"]


def test_a_changed_type_is_replaced() -> None:
    """It was kept as it was."""
    text = "CREATE TYPE a AS INT; CREATE TYPE b AS ARRAY<a>; CREATE TYPE c AS STRING;"
    existing = Existing({}, {"A": STRING, "B": Array(STRING), "C": STRING}, {})
    assert [(one.action, one.statement) for one in steps_of({"a.sql": text}, existing, {})] == [
        (REPLACE, "DROP TYPE A; CREATE TYPE a AS INT;"),
        (REPLACE, "DROP TYPE B; CREATE TYPE b AS ARRAY<a>;"),
        (KEEP, ""),
    ]


@pytest.mark.parametrize(
    "type_",
    [INTEGER, Decimal(4, 2), Array(Map(STRING, BIGINT)), Map(BIGINT, Struct((("a", Array(STRING)),)))],
)
def test_types_are_read_as_the_server_writes_them(type_: SqlType) -> None:
    assert type_in(entities.schema(type_)) == type_


def described(
    name: str, statement: str, topic: str, *fields: tuple[str, SqlType, str | None], **more: str
) -> dict[str, object]:
    shown = [{"name": name, "schema": entities.schema(one), "type": role} for name, one, role in fields]
    return {"name": name, "statement": statement, "topic": topic, "fields": shown, **more}


K, V = ("K", STRING, "KEY"), ("V", INTEGER, None)
SERVER = Described(
    (
        described(
            "R", "CREATE STREAM r AS SELECT * FROM s", "R", K, V, keyFormat="KAFKA", valueFormat="JSON"
        ),
        described("S", STREAM, "s", K, V, ("ADDED", INTEGER, None), keyFormat="KAFKA", valueFormat="JSON"),
        described(
            "A", "CREATE STREAM a (k STRING KEY) WITH (kafka_topic='a')", "a", K, V, valueFormat="AVRO"
        ),
        described("O", "CREATE STREAM o AS SELECT k, own(v) AS w FROM s", "O", K, valueFormat="JSON"),
    ),
    {"T": INTEGER},
    {"s": 2, "R": 2, "a": 1, "old": 3},
    frozenset({"OWN", "UCASE"}),
    {"ksql.persistence.default.format.value": "JSON", "other": "x"},
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE STREAM x AS SELECT * FROM r; CREATE STREAM y AS SELECT k, v + 1 AS w FROM x;", None),
        ("CREATE STREAM x AS SELECT k, added FROM s;", None),
        ("CREATE STREAM x AS SELECT k, v FROM a;", None),
        ("CREATE STREAM x AS SELECT k, anything FROM o; CREATE STREAM y AS SELECT no FROM x;", None),
        ("CREATE STREAM x AS SELECT k, own(v) AS o FROM s; CREATE STREAM y AS SELECT no FROM x;", None),
        ("CREATE STREAM x (k STRING KEY, v t) WITH (kafka_topic='old');", None),
        ("CREATE TYPE t AS STRING; CREATE STREAM x (k STRING KEY, v t) WITH (kafka_topic='old');", None),
        (
            "CREATE STREAM x WITH (kafka_topic='old', value_format='AVRO'); CREATE STREAM y AS SELECT q FROM x;",
            None,
        ),
        ("INSERT INTO r SELECT k, v FROM s;", None),
        ("INSERT INTO r SELECT k, added + 1.5 AS v FROM s;", "Incompatible schema"),
        ("CREATE STREAM x AS SELECT k, w FROM s;", r"a\.sql, line 1:30: .*'W' cannot be resolved"),
        (
            "CREATE STREAM x AS SELECT k, v FROM r; CREATE STREAM y AS SELECT k, w FROM x;",
            "'W' cannot be resolved",
        ),
        (f"CREATE STREAM x AS SELECT k, w{' + v' * 2_000} AS sum FROM s;", "'W' cannot be resolved"),
        ("CREATE STREAM x AS SELECT k, w AS own FROM s;", "'W' cannot be resolved"),
        ("CREATE STREAM x AS SELECT * FROM nothing;", "NOTHING does not exist"),
        ("CREATE STREAM x AS SELECT k, uncase(v) AS w FROM s;", "UNCASE"),
        ("CREATE STREAM x (k STRING KEY, v u) WITH (kafka_topic='old');", "unknown type: U"),
        ("CREATE STREAM x (k STRING KEY, v INT) WITH (kafka_topic='no');", "there is no topic no"),
        ("CREATE STREAM s (k STRING KEY, w INT) WITH (kafka_topic='s');", "Cannot replace stream S"),
        ("CREATE TABLE x AS SELECT k, v FROM s;", "produces a STREAM"),
    ],
)
def test_statements_are_checked_with_what_the_earlier_ones_make(text: str, reason: str | None) -> None:
    """Only mistakes of syntax were found."""
    sources = {str(one["name"]): ("STREAM", str(one["statement"])) for one in SERVER.sources}
    existing = Existing(sources, SERVER.types, {})
    check = Foresight(SERVER, built_in()).check
    if reason is None:
        assert steps_of({"a.sql": text}, existing, {}, check)
    else:
        with pytest.raises(SqlError, match=reason):
            steps_of({"a.sql": text}, existing, {}, check)
