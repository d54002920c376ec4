"""Statements of SQL: what they are parsed to, and what is said about a text that is none."""

from __future__ import annotations

from decimal import Decimal

import pytest

from felice.pipelines.sql.syntax import cursor
from felice.pipelines.sql.syntax.errors import Position, SqlSyntaxError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.statements import statement_of
from felice.pipelines.sql.syntax.tree import (
    AlterSource,
    ArrayType,
    AssertExists,
    AssertSource,
    AssertValues,
    Binary,
    Call,
    Column,
    ColumnDefinition,
    ControlQuery,
    CreateAsSelect,
    CreateConnector,
    CreateSource,
    CreateType,
    Define,
    Describe,
    Drop,
    Duration,
    Explain,
    InsertSelect,
    InsertValues,
    Join,
    Lambda,
    Literal,
    PrintTopic,
    Query,
    RunScript,
    Selected,
    SetProperty,
    Show,
    Source,
    Star,
    Statement,
    StructType,
    TypeName,
    Unary,
    Window,
    Within,
)

INT, STRING = TypeName("INT"), TypeName("STRING")
ALL_OF_S = Query((Star(),), Source("S"))
EMITTED = Query((Star(),), Source("S"), emit="CHANGES")
DAYS = Duration(1, "DAYS")


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            "create or replace stream if not exists s (k STRING KEY, `V` INT, h BYTES HEADER('x')) "
            "WITH (kafka_topic='t', 'Partitions'=3, wrap_single_value=false)",
            CreateSource(
                "STREAM",
                "S",
                (
                    ColumnDefinition("K", STRING, "KEY"),
                    ColumnDefinition("V", INT),
                    ColumnDefinition("H", TypeName("BYTES"), "HEADER", "x"),
                ),
                (
                    ("KAFKA_TOPIC", Literal("t")),
                    ("Partitions", Literal(3)),
                    ("WRAP_SINGLE_VALUE", Literal(False)),
                ),
                is_replacing=True,
                if_not_exists=True,
            ),
        ),
        (
            "CREATE SOURCE TABLE t (id INT PRIMARY KEY) WITH (x=-1)",
            CreateSource(
                "TABLE",
                "T",
                (ColumnDefinition("ID", INT, "PRIMARY KEY"),),
                (("X", Literal(-1)),),
                is_read_only=True,
            ),
        ),
        ("CREATE STREAM s WITH (x='y')", CreateSource("STREAM", "S", None, (("X", Literal("y")),))),
        (
            "CREATE TABLE t WITH (x='y') AS SELECT * FROM s EMIT CHANGES",
            CreateAsSelect("TABLE", "T", EMITTED, (("X", Literal("y")),)),
        ),
        ("INSERT INTO t SELECT * FROM s", InsertSelect("T", ALL_OF_S)),
        ("INSERT INTO t WITH (q='i') SELECT * FROM s", InsertSelect("T", ALL_OF_S, (("Q", Literal("i")),))),
        (
            "INSERT INTO t (a, `b`) VALUES (-1.50, 'x''y')",
            InsertValues("T", ("A", "b"), (Literal(Decimal("-1.50")), Literal("x'y"))),
        ),
        ("INSERT INTO t VALUES (1)", InsertValues("T", None, (Literal(1),))),
        (
            "CREATE SINK CONNECTOR IF NOT EXISTS c WITH ('a.b'='c')",
            CreateConnector("SINK", "C", (("a.b", Literal("c")),), if_not_exists=True),
        ),
        (
            "CREATE TYPE address AS STRUCT<street STRING, nr INT ARRAY, m MAP<STRING, DECIMAL(4, 2)>>",
            None,
        ),
        ("DROP STREAM IF EXISTS s DELETE TOPIC", Drop("STREAM", "S", True, True)),
        ("DROP TYPE t", Drop("TYPE", "T")),
        (
            "ALTER TABLE t ADD COLUMN a INT, ADD column STRING",
            AlterSource("TABLE", "T", (("A", INT), ("COLUMN", STRING))),
        ),
        ("ALTER SYSTEM 'a'='b'", SetProperty("a", "b", is_of_system=True)),
        ("LIST ALL TOPICS EXTENDED", Show("ALL TOPICS", True)),
        ("SHOW SOURCE CONNECTORS", Show("SOURCE CONNECTORS")),
        ("SHOW CONNECTOR PLUGINS", Show("CONNECTOR PLUGINS")),
        ("SHOW VARIABLES", Show("VARIABLES")),
        ("DESCRIBE s EXTENDED", Describe("SOURCE", "S", True)),
        ("DESCRIBE STREAMS EXTENDED", Describe("STREAMS", None, True)),
        ("DESCRIBE FUNCTION ucase", Describe("FUNCTION", "UCASE")),
        ("DESCRIBE function", Describe("SOURCE", "FUNCTION")),
        ("EXPLAIN SELECT * FROM s", Explain(ALL_OF_S)),
        ("EXPLAIN ctas_x_1", Explain("CTAS_X_1")),
        ("TERMINATE ALL", ControlQuery("TERMINATE", None)),
        ("PAUSE q_1", ControlQuery("PAUSE", "Q_1")),
        ("PRINT Orders FROM BEGINNING INTERVAL 2 LIMIT 3", PrintTopic("Orders", True, 2, 3)),
        ("PRINT 'a-b'", PrintTopic("a-b")),
        ("SET 'a'='b'", SetProperty("a", "b")),
        ("UNSET 'a'", SetProperty("a", None)),
        ("DEFINE v_a = 'x'", Define("v_a", "x")),
        ("UNDEFINE v_a", Define("v_a", None)),
        (
            "ASSERT NOT EXISTS TOPIC a WITH (partitions=2) TIMEOUT 3 SECONDS",
            AssertExists("TOPIC", "a", True, (("PARTITIONS", Literal(2)),), None, Duration(3, "SECONDS")),
        ),
        ("ASSERT SCHEMA SUBJECT 'x-value' ID 4", AssertExists("SCHEMA", "x-value", schema_id=4)),
        ("ASSERT VALUES t (a) VALUES (1)", AssertValues("T", ("A",), (Literal(1),))),
        ("ASSERT NULL VALUES t (k) KEY (1)", AssertValues("T", ("K",), (Literal(1),), is_tombstone=True)),
        ("ASSERT STREAM s (a INT)", AssertSource(CreateSource("STREAM", "S", (ColumnDefinition("A", INT),)))),
        ("RUN SCRIPT 'a.sql'", RunScript("a.sql")),
    ],
)
def test_statements(text: str, statement: Statement | None) -> None:
    found = statement_of(text)
    if statement is None:
        assert isinstance(found, CreateType) and isinstance(found.type, StructType)
        assert found.type.fields[1] == ("NR", ArrayType(INT))
    else:
        assert found == statement
    assert statement_of(f"-- a comment\n  {text} /* and\n another */ ;") == found


def test_a_query_has_its_clauses() -> None:
    found = statement_of(
        "SELECT a.k key, COUNT(*) AS n, s->f, TRANSFORM(x, (v, i) => v + i), m['a'][1] FROM a "
        "LEFT OUTER JOIN b AS bb WITHIN (1 DAY, 2 HOURS) GRACE PERIOD 3 MINUTES ON a.k = bb.k JOIN c ON a.k = c.k "
        "WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 1 SECOND, RETENTION 1 DAY, GRACE PERIOD 5 MILLISECONDS) "
        "WHERE NOT a.v > 1 AND a.w IS NOT NULL GROUP BY (a.k, b) PARTITION BY a.k HAVING COUNT(*) > 1 "
        "EMIT FINAL LIMIT 5;"
    )
    assert isinstance(found, Query)
    assert found.columns[0] == Selected(Column("K", "A"), "KEY")
    assert found.columns[1] == Selected(Call("COUNT", (Star(),)), "N")
    call = found.columns[3]
    assert isinstance(call, Selected) and isinstance(call.expression, Call)
    assert call.expression.arguments[1] == Lambda(("V", "I"), Binary("+", Column("V"), Column("I")))
    on = Binary("=", Column("K", "A"), Column("K", "BB"))
    hours, minutes = Duration(2, "HOURS"), Duration(3, "MINUTES")
    assert found.joins[0] == Join("LEFT", Source("B", "BB"), on, Within(DAYS, hours, minutes))
    assert found.joins[1].kind == "INNER" and found.joins[1].within is None
    assert found.window == Window(
        "HOPPING", Duration(10, "SECONDS"), Duration(1, "SECONDS"), DAYS, Duration(5, "MILLISECONDS")
    )
    assert found.window.grace is not None and found.window.grace.ms == 5
    assert isinstance(found.where, Binary) and found.where.operator == "AND"
    assert found.where.left == Unary("NOT", Binary(">", Column("V", "A"), Literal(1)))
    assert found.group_by == (Column("K", "A"), Column("B")) and found.partition_by == (Column("K", "A"),)
    assert (found.emit, found.limit) == ("FINAL", 5)


def test_a_script_is_divided_and_variables_have_their_last_values() -> None:
    script = """
    DEFINE topic = 'a;b';  -- the semicolon is part of the text
    PRINT '${topic}';
    DEFINE topic = 'c'; ; PRINT ${topic};
    UNDEFINE topic
    """
    known: dict[str, str] = {"topic": "before"}
    found = list(statements_of(script, known))
    assert [one.text for one in found] == [
        "DEFINE topic = 'a;b'",
        "PRINT 'a;b'",
        "DEFINE topic = 'c'",
        "PRINT c",
        "UNDEFINE topic",
    ]
    assert [one.statement.topic for one in found if isinstance(one.statement, PrintTopic)] == ["a;b", "c"]
    assert known == {} and found[1].statement.position == Position(3, 5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE STREAM x AS\n  SELEC * FROM s", "line 2:3: expected SELECT, and got 'SELEC'"),
        (
            "SELECT * FROM topics",
            "line 1:15: expected a stream or table, and 'topics' is a reserved word; as a name it",
        ),
        (
            "SELECT a FROM s GROUP BY a WHERE b",
            "line 1:28: expected the end of the query (the order of clauses is FROM,",
        ),
        ("SELECT 'abc FROM s", "line 1:8: a text that does not end"),
        ("SELECT `\0group`.`0` FROM s", "line 1:8: a name with the character U+0000"),
        ("SELECT /* FROM s", "line 1:8: a comment that does not end"),
        ("SELECT a # b FROM s", "line 1:10: the character '#' has no meaning here"),
        (
            "SELECT 99999999999999999999 FROM s",
            "line 1:8: invalid numeric literal: 99999999999999999999 is outside the range of BIGINT",
        ),
        (
            "SELECT a FROM s WINDOW TUMBLING (SIZE 5 PARSECS)",
            "line 1:41: expected DAYS, HOURS, MINUTES, SECONDS or",
        ),
        (
            "SELECT a LIKE 'x' ESCAPE 'ab' FROM s",
            "line 1:26: expected a single character after ESCAPE, and got 'ab'",
        ),
        ("SELECT CASE a END FROM s", "line 1:15: expected WHEN, and got 'END'"),
        ("PRINT ${nope}", "line 1:1: the variable nope is not defined; DEFINE nope = '...';"),
        ("SELECT a FROM s; SELECT", "line 1:24: expected an expression, and got the end of the text"),
        ("CREATE STREAM s (a INT) WITH (b=c)", "line 1:33: expected a literal, and got 'c'"),
        ("", "expected a statement"),
        ("DROP QUERY x", "line 1:6: expected STREAM, TABLE, CONNECTOR or TYPE, and got 'QUERY'"),
    ],
)
def test_what_is_no_statement_is_told_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        list(statements_of(text)) or statement_of(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM s",
        "SELECT " + "NOT " * 10_000 + "a FROM s",
        "SELECT " + "- " * 10_000 + "a FROM s",
        "CREATE STREAM s (a " + "ARRAY<" * 10_000 + "INT" + ">" * 10_000 + ")",
        "EXPLAIN " * 10_000 + "SELECT * FROM s",
        "SELECT " + "f(" * 10_000 + ")" * 10_000 + " FROM s",
    ],
)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match="nested more than 64 times"):
        statement_of(text)


def test_a_long_statement_is_parsed() -> None:
    columns = ", ".join(f"a{number} + {number} AS b{number}" for number in range(20_000))
    found = statement_of(f"SELECT {columns} FROM s")
    assert isinstance(found, Query) and len(found.columns) == 20_000
    long = " AND ".join(["a = 1"] * 20_000)
    assert isinstance(statement_of(f"SELECT * FROM s WHERE {long}"), Query)


@pytest.mark.parametrize(
    "expression", ["1+{}", "-{}", "NOT {}", "a->{}", "f({}1)", "ARRAY[{}1]", "k IN ({}1)"]
)
def test_a_statement_has_a_limited_number_of_parts(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have a million characters, and half a million values took a server minutes."""
    monkeypatch.setattr(cursor, "MOST_PARTS", 50)
    begin, _, end = expression.partition("{}")
    inside = {"-": "1-", "NOT ": "TRUE AND NOT ", "a->": "a->"}.get(begin, "1+" if not end else "1,")
    text = f"SELECT {begin}{inside * 50}{'a' if begin == 'a->' else '1'}{end} FROM s"
    with pytest.raises(SqlSyntaxError, match="may have 50 values, calls and signs"):
        statement_of(text)


def test_a_length_of_time_is_a_bigint() -> None:
    text = "SELECT k, COUNT(*) FROM s WINDOW TUMBLING (SIZE {} MILLISECONDS) GROUP BY k EMIT CHANGES;"
    assert list(statements_of(text.format((1 << 63) - 1)))
    with pytest.raises(SqlSyntaxError, match="more milliseconds than a BIGINT has"):
        list(statements_of(text.format(1 << 63)))
