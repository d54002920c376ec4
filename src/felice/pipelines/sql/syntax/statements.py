"""Parses statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.errors import BEGIN, Position
from felice.pipelines.sql.syntax.expressions import expression_at, literal_at
from felice.pipelines.sql.syntax.queries import query_at
from felice.pipelines.sql.syntax.tokens import Kind, Token
from felice.pipelines.sql.syntax.tree import (
    AlterSource,
    AssertExists,
    AssertSource,
    AssertValues,
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
    Expression,
    InsertSelect,
    InsertValues,
    Literal,
    PrintTopic,
    Properties,
    RunScript,
    SetProperty,
    Show,
    Statement,
    Type,
    placed,
)
from felice.pipelines.sql.syntax.types import type_at


def statement_of(text: str | Sequence[Token], begin: Position = BEGIN) -> Statement:
    """The statement of a text, or of its tokens, which may end with a semicolon. The text begins at a position of a
    longer one. Raises `SqlSyntaxError`.
    """
    cursor = Cursor(text, begin)
    found = statement_at(cursor)
    cursor.take_sign(";")
    if cursor.next.kind is not Kind.END:
        raise cursor.refused("the end of the statement")
    return found


def statement_at(cursor: Cursor) -> Statement:
    """The statement that comes next."""
    position = cursor.position
    if cursor.next.is_word("SELECT"):
        return query_at(cursor)
    word = cursor.one_of(*_STATEMENTS) if cursor.next.is_word(*_STATEMENTS) else _refuse(cursor)
    return placed(_STATEMENTS[word](cursor), position)


def _refuse(cursor: Cursor) -> str:
    raise cursor.refused("a statement (such as SELECT, CREATE, INSERT INTO, DROP, SHOW or DESCRIBE)")


def _create(cursor: Cursor) -> Statement:
    is_replacing = cursor.take_words("OR", "REPLACE")
    if not is_replacing and cursor.take_words("TYPE"):
        return _create_type(cursor)
    if (
        cursor.next.is_word("SOURCE", "SINK")
        and cursor.after_next().is_word("CONNECTOR")
        and not is_replacing
    ):
        return _create_connector(cursor)
    is_read_only = cursor.take_words("SOURCE")
    kind = cursor.one_of("STREAM", "TABLE")
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    name = cursor.name(f"the name of a {kind.lower()}")
    columns = _column_definitions(cursor)
    properties = _properties(cursor) if cursor.take_words("WITH") else ()
    if columns is None and not is_read_only and cursor.take_words("AS"):
        return CreateAsSelect(kind, name, query_at(cursor), properties, is_replacing, if_not_exists)
    return CreateSource(kind, name, columns, properties, is_replacing, is_read_only, if_not_exists)


def _create_type(cursor: Cursor) -> CreateType:
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    name = cursor.name("the name of a type")
    cursor.expect_words("AS")
    return CreateType(name, type_at(cursor), if_not_exists)


def _create_connector(cursor: Cursor) -> CreateConnector:
    kind = cursor.take().value
    cursor.expect_words("CONNECTOR")
    if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
    name = _name_or_text(cursor, "the name of a connector")
    cursor.expect_words("WITH")
    return CreateConnector(kind, name, _properties(cursor), if_not_exists)


def _column_definitions(cursor: Cursor) -> tuple[ColumnDefinition, ...] | None:
    return cursor.in_parentheses(lambda: _column_definition(cursor)) if cursor.next.is_sign("(") else None


def _column_definition(cursor: Cursor) -> ColumnDefinition:
    position, name, type_ = cursor.position, cursor.name("a column"), type_at(cursor)
    role = header = None
    if cursor.take_words("PRIMARY", "KEY"):
        role = "PRIMARY KEY"
    elif cursor.take_words("KEY"):
        role = "KEY"
    elif cursor.take_words("HEADERS"):
        role = "HEADERS"
    elif cursor.take_words("HEADER"):
        role = "HEADER"
        (header,) = cursor.in_parentheses(cursor.string)
    return placed(ColumnDefinition(name, type_, role, header), position)


def _properties(cursor: Cursor) -> Properties:
    def one() -> tuple[str, Literal]:
        name = cursor.string() if cursor.next.kind is Kind.TEXT else cursor.name("a property")
        cursor.expect_sign("=")
        return name, literal_at(cursor)

    return cursor.in_parentheses(one)


def _insert(cursor: Cursor) -> InsertSelect | InsertValues:
    cursor.expect_words("INTO")
    name = cursor.name("a stream or table")
    if cursor.take_words("WITH"):
        return InsertSelect(name, properties=_properties(cursor), query=query_at(cursor))
    if cursor.next.is_word("SELECT"):
        return InsertSelect(name, query_at(cursor))
    columns = _names(cursor)
    cursor.expect_words("VALUES")
    return InsertValues(name, columns, _values(cursor))


def _names(cursor: Cursor) -> tuple[str, ...] | None:
    if not cursor.next.is_sign("("):
        return None
    return cursor.in_parentheses(lambda: cursor.name("a column"))


def _values(cursor: Cursor) -> tuple[Expression, ...]:
    return cursor.in_parentheses(lambda: expression_at(cursor))


def _drop(cursor: Cursor) -> Drop:
    kind = cursor.one_of("STREAM", "TABLE", "CONNECTOR", "TYPE")
    if_exists = cursor.take_words("IF", "EXISTS")
    name = cursor.name(f"the name of a {kind.lower()}")
    deletes_topic = kind in ("STREAM", "TABLE") and cursor.take_words("DELETE", "TOPIC")
    return Drop(kind, name, if_exists, deletes_topic)


def _alter(cursor: Cursor) -> AlterSource | SetProperty:
    if cursor.take_words("SYSTEM"):
        name, value = _setting(cursor)
        return SetProperty(name, value, is_of_system=True)

    def added() -> tuple[str, Type]:
        cursor.expect_words("ADD")
        # COLUMN may also be the column's name.
        if cursor.next.is_word("COLUMN") and cursor.after_next(2).kind in (Kind.NAME, Kind.QUOTED):
            cursor.take()
        return cursor.name("a column"), type_at(cursor)

    kind = cursor.one_of("STREAM", "TABLE")
    return AlterSource(kind, cursor.name(f"the name of a {kind.lower()}"), cursor.list_of(added))


def _show(cursor: Cursor) -> Show:
    if cursor.take_words("ALL"):
        cursor.expect_words("TOPICS")
        return Show("ALL TOPICS", cursor.take_words("EXTENDED"))
    for words in (("SOURCE", "CONNECTORS"), ("SINK", "CONNECTORS"), ("CONNECTOR", "PLUGINS")):
        if cursor.take_words(*words):
            return Show(" ".join(words))
    what = cursor.one_of(*_EXTENDED, "FUNCTIONS", "TYPES", "VARIABLES", "PROPERTIES", "CONNECTORS")
    return Show(what, what in _EXTENDED and cursor.take_words("EXTENDED"))


_EXTENDED = ("STREAMS", "TABLES", "TOPICS", "QUERIES")


def _describe(cursor: Cursor) -> Describe:
    if cursor.next.is_word("STREAMS", "TABLES"):
        return Describe(cursor.take().value, None, cursor.take_words("EXTENDED"))
    if cursor.next.is_word("FUNCTION", "CONNECTOR") and cursor.after_next().kind in (Kind.NAME, Kind.QUOTED):
        kind = cursor.take().value
        return Describe(kind, cursor.name(f"the name of a {kind.lower()}"))
    return Describe("SOURCE", cursor.name("a stream or table"), cursor.take_words("EXTENDED"))


def _explain(cursor: Cursor) -> Explain:
    is_statement = cursor.next.is_word("SELECT", *_STATEMENTS) and cursor.after_next().kind is not Kind.END
    if is_statement and not cursor.after_next().is_sign(";"):
        with cursor.nested():
            return Explain(statement_at(cursor))
    return Explain(cursor.name("the id of a query, or a statement"))


def _control(action: str) -> Callable[[Cursor], ControlQuery]:
    def parse(cursor: Cursor) -> ControlQuery:
        return ControlQuery(
            action, None if cursor.take_words("ALL") else cursor.name("the id of a query, or ALL")
        )

    return parse


def _print(cursor: Cursor) -> PrintTopic:
    token = cursor.next
    # A topic's name is taken as it is written.
    topic = cursor.string() if token.kind is Kind.TEXT else _as_written(cursor)
    from_beginning = cursor.take_words("FROM", "BEGINNING")
    interval = cursor.integer() if cursor.take_words("INTERVAL") or cursor.take_words("SAMPLE") else None
    return PrintTopic(
        topic, from_beginning, interval, cursor.integer() if cursor.take_words("LIMIT") else None
    )


def _as_written(cursor: Cursor) -> str:
    token = cursor.next
    name = cursor.name("a topic")
    return name if token.kind is Kind.QUOTED else token.text


def _set(cursor: Cursor) -> SetProperty:
    return SetProperty(*_setting(cursor))


def _setting(cursor: Cursor) -> tuple[str, str]:
    name = cursor.string("the name of a property in single quotes")
    cursor.expect_sign("=")
    return name, cursor.string()


def _unset(cursor: Cursor) -> SetProperty:
    return SetProperty(cursor.string("the name of a property in single quotes"), None)


def _define(cursor: Cursor) -> Define:
    name = cursor.word("the name of a variable")
    cursor.expect_sign("=")
    return Define(name, cursor.string())


def _undefine(cursor: Cursor) -> Define:
    return Define(cursor.word("the name of a variable"), None)


def _assert(cursor: Cursor) -> AssertExists | AssertValues | AssertSource:
    is_tombstone = cursor.take_words("NULL")
    if is_tombstone or cursor.next.is_word("VALUES"):
        return _assert_values(cursor, is_tombstone)
    if cursor.next.is_word("STREAM", "TABLE"):
        return _assert_source(cursor)
    is_negated = cursor.take_words("NOT", "EXISTS")
    if cursor.take_words("TOPIC"):
        name = _name_or_text(cursor, "a topic", as_written=True)
        properties = _properties(cursor) if cursor.take_words("WITH") else ()
        return AssertExists("TOPIC", name, is_negated, properties, timeout=_timeout(cursor))
    if not cursor.take_words("SCHEMA"):
        raise cursor.refused(
            "TOPIC", "SCHEMA", *([] if is_negated else ["VALUES", "NULL VALUES", "STREAM", "TABLE"])
        )
    subject = _name_or_text(cursor, "a subject", as_written=True) if cursor.take_words("SUBJECT") else None
    schema_id = cursor.integer() if cursor.take_words("ID") else None
    if subject is None and schema_id is None:
        raise cursor.refused("SUBJECT", "ID")
    return AssertExists("SCHEMA", subject, is_negated, (), schema_id, _timeout(cursor))


def _assert_values(cursor: Cursor, is_tombstone: bool) -> AssertValues:
    cursor.expect_words("VALUES")
    name, columns = cursor.name("a stream or table"), _names(cursor)
    cursor.expect_words("KEY" if is_tombstone else "VALUES")
    return AssertValues(name, columns, _values(cursor), is_tombstone)


def _assert_source(cursor: Cursor) -> AssertSource:
    position, kind = cursor.position, cursor.take().value
    name, columns = cursor.name(f"the name of a {kind.lower()}"), _column_definitions(cursor)
    properties = _properties(cursor) if cursor.take_words("WITH") else ()
    return AssertSource(placed(CreateSource(kind, name, columns, properties), position))


def _timeout(cursor: Cursor) -> Duration | None:
    return cursor.duration() if cursor.take_words("TIMEOUT") else None


def _name_or_text(cursor: Cursor, what: str, *, as_written: bool = False) -> str:
    if cursor.next.kind is Kind.TEXT:
        return cursor.string()
    return _as_written(cursor) if as_written else cursor.name(what)


def _run(cursor: Cursor) -> RunScript:
    cursor.expect_words("SCRIPT")
    return RunScript(cursor.string("the path of a file in single quotes"))


_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": _create,
    "INSERT": _insert,
    "DROP": _drop,
    "ALTER": _alter,
    "SHOW": _show,
    "LIST": _show,
    "DESCRIBE": _describe,
    "EXPLAIN": _explain,
    "TERMINATE": _control("TERMINATE"),
    "PAUSE": _control("PAUSE"),
    "RESUME": _control("RESUME"),
    "PRINT": _print,
    "SET": _set,
    "UNSET": _unset,
    "DEFINE": _define,
    "UNDEFINE": _undefine,
    "ASSERT": _assert,
    "RUN": _run,
}
"""The statements by their first words."""
