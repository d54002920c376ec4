"""Parses queries: SELECT with its clauses, in the order that they have."""

from __future__ import annotations

from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.expressions import expression_at
from felice.pipelines.sql.syntax.tokens import Kind
from felice.pipelines.sql.syntax.tree import (
    Duration,
    Expression,
    Join,
    Query,
    Selected,
    Source,
    Star,
    StructStar,
    Window,
    Within,
    placed,
)

_CLAUSES = ("WINDOW", "WHERE", "GROUP BY", "PARTITION BY", "HAVING", "EMIT", "LIMIT")


def query_at(cursor: Cursor) -> Query:
    """The query that comes next."""
    position = cursor.position
    cursor.expect_words("SELECT")
    columns = cursor.list_of(lambda: _column(cursor))
    cursor.expect_words("FROM")
    source, joins = _source(cursor), []
    while (kind := _join_kind(cursor)) is not None:
        joins.append(_join(cursor, kind))
    query = Query(
        columns,
        source,
        tuple(joins),
        _window(cursor) if cursor.take_words("WINDOW") else None,
        expression_at(cursor) if cursor.take_words("WHERE") else None,
        _grouping(cursor) if cursor.take_words("GROUP", "BY") else (),
        _grouping(cursor) if cursor.take_words("PARTITION", "BY") else (),
        expression_at(cursor) if cursor.take_words("HAVING") else None,
        cursor.one_of("CHANGES", "FINAL") if cursor.take_words("EMIT") else None,
        cursor.integer() if cursor.take_words("LIMIT") else None,
    )
    _refuse_clause(cursor)
    return placed(query, position)


def _refuse_clause(cursor: Cursor) -> None:
    """A clause that comes now is in the wrong place, or comes twice."""
    for clause in _CLAUSES:
        words = clause.split()
        if all(cursor.after_next(number).is_word(word) for number, word in enumerate(words)):
            raise cursor.refused(
                f"the end of the query (the order of clauses is FROM, {', '.join(_CLAUSES)})"
            )


def _column(cursor: Cursor) -> Selected | Star | StructStar:
    position = cursor.position
    if cursor.take_sign("*"):
        return placed(Star(), position)
    if cursor.after_next().is_sign(".") and cursor.after_next(2).is_sign("*"):
        source = cursor.name("a source")
        cursor.take()
        cursor.take()
        return placed(Star(source), position)
    expression = expression_at(cursor)
    if cursor.take_sign("->"):
        cursor.expect_sign("*")
        return placed(StructStar(expression), position)
    return placed(Selected(expression, _alias(cursor)), position)


def _alias(cursor: Cursor) -> str | None:
    if cursor.take_words("AS"):
        return cursor.name("an alias")
    return cursor.name() if cursor.next_may_be_alias else None


def _source(cursor: Cursor) -> Source:
    position = cursor.position
    name = cursor.name("a stream or table")
    return placed(Source(name, _alias(cursor)), position)


def _join_kind(cursor: Cursor) -> str | None:
    for kind in ("LEFT", "RIGHT", "FULL"):
        if cursor.take_words(kind):
            cursor.take_words("OUTER")
            cursor.expect_words("JOIN")
            return kind
    if cursor.take_words("INNER"):
        cursor.expect_words("JOIN")
        return "INNER"
    return "INNER" if cursor.take_words("JOIN") else None


def _join(cursor: Cursor, kind: str) -> Join:
    source = _source(cursor)
    within = _within(cursor) if cursor.take_words("WITHIN") else None
    cursor.expect_words("ON")
    return placed(Join(kind, source, expression_at(cursor), within), source.position)


def _within(cursor: Cursor) -> Within:
    position = cursor.position
    if cursor.take_sign("("):
        before = cursor.duration()
        cursor.expect_sign(",")
        after = cursor.duration()
        cursor.expect_sign(")")
    else:
        before = after = cursor.duration()
    grace = cursor.duration() if cursor.take_words("GRACE", "PERIOD") else None
    return placed(Within(before, after, grace), position)


_WINDOWS = ("TUMBLING", "HOPPING", "SESSION")


def _window(cursor: Cursor) -> Window:
    position = cursor.position
    if cursor.after_next().is_word(*_WINDOWS):
        cursor.name("a name of windows")  # It names nothing that a statement could refer to.
    kind = cursor.one_of(*_WINDOWS)
    cursor.expect_sign("(")
    if kind != "SESSION":
        cursor.expect_words("SIZE")
    size, advance = cursor.duration(), None
    if kind == "HOPPING":
        cursor.expect_sign(",")
        cursor.expect_words("ADVANCE", "BY")
        advance = cursor.duration()
    retention = _in_window(cursor, "RETENTION")
    grace = _in_window(cursor, "GRACE", "PERIOD")
    cursor.expect_sign(")")
    return placed(Window(kind, size, advance, retention, grace), position)


def _in_window(cursor: Cursor, *words: str) -> Duration | None:
    if not (cursor.next.is_sign(",") and cursor.after_next().is_word(words[0])):
        return None
    cursor.take()
    cursor.expect_words(*words)
    return cursor.duration()


def _grouping(cursor: Cursor) -> tuple[Expression, ...]:
    """Expressions, which may be in parentheses together."""
    if cursor.next.is_sign("(") and _closes_the_clause(cursor):
        return cursor.in_parentheses(lambda: expression_at(cursor))
    return cursor.list_of(lambda: expression_at(cursor))


def _closes_the_clause(cursor: Cursor) -> bool:
    """Whether the parenthesis that comes next encloses a list, and not the beginning of an expression."""
    depth, count, has_comma = 0, 0, False
    while (token := cursor.after_next(count)).kind is not Kind.END:
        if token.is_sign("(", "["):
            depth += 1
        elif token.is_sign(")", "]"):
            depth -= 1
            if depth == 0:
                return has_comma
        has_comma = has_comma or (depth == 1 and token.is_sign(","))
        count += 1
    return False
