"""Runs queries over topics in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.joins import ROWKEY
from felice.pipelines.sql.analysis.plan import GROUPS, Output, QueryPlan
from felice.pipelines.sql.catalogue import SourceInfo
from felice.pipelines.sql.compile.functions import Tools, shown_format
from felice.pipelines.sql.compile.topology import (
    Compilation,
    key_format_of,
    shown_key_format,
    value_format_of,
)
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.rows.plain import plain_of
from felice.pipelines.sql.statements import PersistentQuery
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column, Query
from felice.pipelines.sql.syntax.writer import name_text, quoted
from felice.pipelines.sql.types import fields_text
from felice.pipelines.streams.app import App
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.record import Windowed
from felice.pipelines.streams.task import TopicRecord

SHOWN = "shown-rows"
LIMIT_REACHED = "Limit Reached"


def run(query: PersistentQuery, tools: Tools, topics: Topics, inputs: Sequence[TopicRecord]) -> int:
    """Run a query over the inputs of its topics. For a topic without inputs, it reads the records that were written to
    the topic. Keep the query's results, and return their number. Raises `StreamsError` if the query fails.
    """
    app = Compilation(query.id, query.plan, tools).into(query.sink)
    reads = {side.source.topic for side in query.plan.sides}
    with_inputs = {one.topic for one in inputs}
    given = [one for one in inputs if one.topic in reads]
    for topic in sorted(reads - with_inputs):
        given += [record for _, record in topics.topic(topic).records]
    count = 0
    for record in _results(app, given, query.sink.topic):
        topics.write(record)
        count += 1
    return count


def _results(app: App, given: Iterable[TopicRecord], topic: str) -> Iterable[TopicRecord]:
    driver = TestDriver(app)
    for record in given:
        driver.send_bytes(record.topic, *record[1:])
        yield from driver.read_bytes(topic)


@dataclass(frozen=True, slots=True)
class Response:
    """The rows that a SELECT shows."""

    schema: str
    rows: list[list[Any]]
    tombstones: list[int]
    message: str | None = None


def response(query: Query, plan: QueryPlan, tools: Tools, topics: Topics) -> Response:
    """What a SELECT shows of the topics as they are now. Raises `SqlError`."""
    schema = fields_text((one.name, one.type) for one in plan.outputs)
    pairs = _pulled(query, plan, tools, topics) if query.emit is None else _pushed(plan, tools, topics)
    rows, tombstones, message = list[list[Any]](), list[int](), None
    for row, is_deleted in pairs:
        if query.limit is not None and len(rows) >= query.limit:
            message = LIMIT_REACHED
            break
        if is_deleted:
            tombstones.append(len(rows))
        rows.append([plain_of(one.type, value) for one, value in zip(plan.outputs, row, strict=True)])
    if query.limit is not None and len(rows) == query.limit:
        message = LIMIT_REACHED
    return Response(schema, rows, tombstones, message)


Row = tuple[Any, ...]
Shown = tuple[Row, bool]
"""A row, and whether it is that of a key which was deleted."""


def _pushed(plan: QueryPlan, tools: Tools, topics: Topics) -> Iterable[Shown]:
    app = Compilation("push", plan, tools).shown(SHOWN)
    reads = {side.source.topic for side in plan.sides}
    given = sorted(
        (pair for topic in reads for pair in topics.topic(topic).records), key=lambda pair: pair[0]
    )
    formats = shown_key_format(plan), shown_format(plan)
    for record in _results(app, (record for _, record in given), SHOWN):
        row = formats[1].decode(record.value)
        if row is not None:
            yield row, False
        elif plan.is_table:
            yield _deleted(plan, formats[0].decode(record.key)), True


def _deleted(plan: QueryPlan, key: Any) -> Row:
    """The row of a key that was deleted: only columns of the key have values."""
    parts: Row = key.key if isinstance(key, Windowed) else key
    of_groups = {str(number): part for number, part in enumerate(parts)} | {ROWKEY: parts[0]}
    # In a plan with GROUP BY or a join, no other column is one of the key.
    is_plain = plan.grouping is None and not plan.joins
    of_source = (
        dict(zip((name for name, _ in plan.sides[0].source.key), parts, strict=True)) if is_plain else {}
    )
    if isinstance(key, Windowed):
        bounds = {"WINDOWSTART": key.window.start, "WINDOWEND": key.window.end}
        of_groups, of_source = of_groups | bounds, of_source | bounds

    def value_of(one: Output) -> Any:
        column = one.expression
        if not isinstance(column, Column):
            return None
        return (of_groups if column.source == GROUPS else of_source).get(column.name)

    return tuple(map(value_of, plan.outputs))


def _pulled(query: Query, plan: QueryPlan, tools: Tools, topics: Topics) -> Iterable[Shown]:
    check_pull(query, plan)
    source = plan.sides[0].source
    function = Compilation("pull", plan, tools).row_function()
    formats = key_format_of(source, tools.registry), value_format_of(source, tools.registry)
    records: Iterable[TopicRecord] = (record for _, record in topics.topic(source.topic).records)
    if source.is_table:
        records = {record.key: record for record in records if record.key is not None}.values()
    for record in records:
        key, value = formats[0].decode(record.key), formats[1].decode(record.value)
        if value is not None:
            found = function(key, value, record.timestamp, record.headers)
            yield from ((row, False) for _, row, _ in found if row is not None)


_PUSH_INSTEAD = "Add EMIT CHANGES if you intended to issue a push query."


def _not_pulled(clause: str, query: Query) -> SqlError:
    return SqlError(f"Pull queries don't support {clause} clauses. {_PUSH_INSTEAD}", query.position)


def check_pull(query: Query, plan: QueryPlan) -> None:
    """Raise `SqlError` for a SELECT without EMIT that cannot look rows up."""
    check_clauses(query, plan.sides[0].source)
    if plan.grouping is not None:
        # An aggregate function in SELECT, without the clause.
        raise _not_pulled("GROUP BY", query)


def check_clauses(query: Query, source: SourceInfo) -> None:
    """The checks of `check_pull` that need no plan. They come before all others. Raises `SqlError`."""
    for clause, given in (
        ("JOIN", query.joins),
        ("WINDOW", query.window),
        ("GROUP BY", query.group_by),
        ("PARTITION BY", query.partition_by),
        ("HAVING", query.having),
    ):
        if given:
            raise _not_pulled(clause, query)
    if source.is_table and source.query is None and not source.is_read_only:
        name = name_text(source.name)
        raise SqlError(
            f"The {quoted(source.name)} table isn't queryable. To derive a queryable table, you can do 'CREATE "
            f"TABLE QUERYABLE_{source.name} AS SELECT * FROM {name}'. {_PUSH_INSTEAD}",
            query.position,
        )
