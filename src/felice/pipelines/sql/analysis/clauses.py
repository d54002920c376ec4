"""Checks of the clauses of a query, and the rewriting of conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from felice.pipelines.sql.analysis.aggregation import first_of_kind, is_of_kind
from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.rewriting import parts_of, rewritten
from felice.pipelines.sql.expressions.comparisons import COMPARISONS, TIMES
from felice.pipelines.sql.expressions.moments import timestamp_of
from felice.pipelines.sql.functions.table import AGGREGATE, TABLE, FunctionTable
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import (
    Between,
    Binary,
    Case,
    Column,
    Expression,
    Literal,
    Query,
    Selected,
    placed,
)
from felice.pipelines.sql.syntax.writer import expression_text

ALL_ROWS = Literal(1)
"""The GROUP BY expression of a query with aggregates and without GROUP BY: all rows are one group."""


def with_groups(query: Query, functions: FunctionTable, *, is_persistent: bool) -> Query:
    """The query, grouped by `ALL_ROWS` if it selects aggregates without GROUP BY. Raises `SqlError` if such a query is
    persistent: its table would have no key.
    """
    if query.group_by:
        return query
    selected = [one.expression for one in query.columns if isinstance(one, Selected)]
    found = next((call for one in selected if (call := first_of_kind(one, AGGREGATE, functions))), None)
    if found is None:
        return query
    if any(first_of_kind(one, TABLE, functions) for one in selected):
        raise SqlError("Table functions cannot be used with aggregations", found.position)
    if is_persistent:
        raise SqlError(
            f"a persistent query does not support aggregate function {expression_text(found)} without a GROUP BY "
            "clause: name the columns to group by",
            found.position,
        )
    return placed(replace(query, group_by=(ALL_ROWS,)), query.position)


def check_clauses(
    query: Query, sides: Sides, functions: FunctionTable, *, is_table: bool, is_persistent: bool
) -> None:
    """Raise `SqlError` for clauses that do not go together."""
    _check_kafka_values(query, sides)
    if query.window is not None and not query.group_by:
        raise SqlError("WINDOW clause requires a GROUP BY clause", query.window.position)
    if query.having is not None and not query.group_by:
        raise SqlError("HAVING clause requires a GROUP BY clause", query.having.position)
    if query.window is not None and is_table:
        raise SqlError(
            "Windowing not supported for table aggregations. A WINDOW needs a stream", query.window.position
        )
    if query.emit == "FINAL" and query.window is None:
        raise SqlError(
            "EMIT FINAL is only supported for windowed aggregations. It sends the result of each window that has "
            "closed, and needs a WINDOW",
            query.position,
        )
    if query.partition_by and query.group_by:
        raise SqlError(
            "Only one of PARTITION BY and GROUP BY is supported in a query", query.partition_by[0].position
        )
    _check_functions(query, functions)
    if query.limit is not None and is_persistent:
        raise SqlError("LIMIT cannot be used in a persistent query", query.position)


def _check_kafka_values(query: Query, sides: Sides) -> None:
    """Raise `SqlError` for a join or GROUP BY of a source whose values are in the format KAFKA."""
    clause = "JOIN" if query.joins else "GROUP BY" if query.group_by else None
    found = [side.alias for side in sides.sides if side.source.value_format.name == "KAFKA"]
    if clause is not None and found:
        raise SqlError(
            f"Source(s) {', '.join(found)} are using the 'KAFKA' value format. This format does not yet support "
            f"{clause}. Make a stream with values of another format first, by CREATE STREAM … WITH "
            "(VALUE_FORMAT='JSON') AS SELECT",
            query.position,
        )


def _check_functions(query: Query, functions: FunctionTable) -> None:
    for clause, given in (
        ("WHERE", (query.where,)),
        ("PARTITION BY", query.partition_by),
        ("GROUP BY", query.group_by),
    ):
        for one in given:
            for kind, told in ((AGGREGATE, "aggregate"), (TABLE, "table")):
                found = None if one is None else first_of_kind(one, kind, functions)
                if found is not None:
                    raise SqlError(
                        f"{clause} does not support {told} functions: {found.function} is one", found.position
                    )
    for column in query.columns:
        if isinstance(column, Selected):
            _check_table_functions(column.expression, functions)


def _check_table_functions(given: Expression, functions: FunctionTable) -> None:
    for part in parts_of(given):
        inside: Any = ()
        if isinstance(part, Case):
            inside = (part.operand, part.branches, part.otherwise)
            told = f"used in CASE: {expression_text(part)}"
        elif is_of_kind(part, TABLE, functions):
            inside = part.arguments  # type: ignore[union-attr]
        found = first_of_kind(inside, TABLE, functions)
        if found is None:
            continue
        if not isinstance(part, Case):
            told = f"nested: {part.function}({found.function}())"  # type: ignore[union-attr]
        raise SqlError(f"Table functions cannot be {told}", found.position)


def with_times(given: Any) -> Any:
    """The condition, in which literal texts that are compared with ROWTIME, WINDOWSTART or WINDOWEND are milliseconds.
    Raises `SqlError`.
    """

    def change(one: Any) -> Any:
        if isinstance(one, Binary) and one.operator in COMPARISONS:
            left, right = _time_beside(one.left, one.right), _time_beside(one.right, one.left)
            if left is one.left and right is one.right:
                return None
            return placed(Binary(one.operator, left, right), one.position)
        if isinstance(one, Between) and _is_time(one.operand):
            low, high = (_time_beside(each, one.operand) for each in (one.low, one.high))
            return placed(Between(one.operand, low, high, one.is_negated), one.position)
        return None

    return rewritten(given, change)


def _is_time(given: Any) -> bool:
    return isinstance(given, Column) and given.name in TIMES


def _time_beside(given: Any, other: Any) -> Any:
    if not (isinstance(given, Literal) and isinstance(given.value, str) and _is_time(other)):
        return given
    try:
        return placed(Literal(timestamp_of(given.value)), given.position)
    except ValueError as error:
        raise SqlError(f"Failed to parse timestamp '{given.value}': {error}", given.position) from None
