"""Runs queries over topics in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.plan import QueryPlan
from felice.pipelines.sql.catalogue import SourceInfo
from felice.pipelines.sql.compile.functions import Tools, shown_format
from felice.pipelines.sql.compile.topology import Compilation, key_format_of, value_format_of
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.rows.plain import plain_of
from felice.pipelines.sql.statements import PersistentQuery
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Query
from felice.pipelines.sql.syntax.writer import name_text
from felice.pipelines.sql.types import text_of
from felice.pipelines.streams.app import App
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.task import TopicRecord

SHOWN = "shown-rows"
LIMIT_REACHED = "Limit Reached"


def run(query: PersistentQuery, tools: Tools, topics: Topics, inputs: Sequence[TopicRecord]) -> None:
    """Give a query the inputs of its topics, or else what was written to them, and keep what it writes. Raises
    `StreamsError` for a failure that stops it.
    """
    app = Compilation(query.id, query.plan, tools).into(query.sink)
    reads = {side.source.topic for side in query.plan.sides}
    with_inputs = {one.topic for one in inputs}
    given = [one for one in inputs if one.topic in reads]
    for topic in sorted(reads - with_inputs):
        given += [record for _, record in topics.topic(topic).records]
    for record in _results(app, given, query.sink.topic):
        topics.write(record)


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
    schema = ", ".join(f"{name_text(one.name)} {text_of(one.type)}" for one in plan.outputs)
    pairs = _pulled(query, plan, tools, topics) if query.emit is None else _pushed(plan, tools, topics)
    rows, tombstones, message = list[list[Any]](), list[int](), None
    for row in pairs:
        if query.limit is not None and len(rows) >= query.limit:
            message = LIMIT_REACHED
            break
        if row is None:
            tombstones.append(len(rows))
            row = (None,) * len(plan.outputs)
        rows.append([plain_of(one.type, value) for one, value in zip(plan.outputs, row, strict=True)])
    if query.limit is not None and len(rows) == query.limit:
        message = LIMIT_REACHED
    return Response(schema, rows, tombstones, message)


def _pushed(plan: QueryPlan, tools: Tools, topics: Topics) -> Iterable[tuple[Any, ...] | None]:
    app = Compilation("push", plan, tools).shown(SHOWN)
    reads = {side.source.topic for side in plan.sides}
    given = sorted(
        (pair for topic in reads for pair in topics.topic(topic).records), key=lambda pair: pair[0]
    )
    format_ = shown_format(plan)
    for record in _results(app, (record for _, record in given), SHOWN):
        yield format_.decode(record.value)


def _pulled(query: Query, plan: QueryPlan, tools: Tools, topics: Topics) -> Iterable[tuple[Any, ...] | None]:
    check_pull(query, plan)
    source = plan.sides[0].source
    function = Compilation("pull", plan, tools).row_function()
    formats = key_format_of(source, tools.registry), value_format_of(source, tools.registry)
    records: Iterable[TopicRecord] = (record for _, record in topics.topic(source.topic).records)
    if source.is_table:
        records = {record.key: record for record in records if record.key is not None}.values()
    for record in records:
        key, value = formats[0].decode(record.key), formats[1].decode(record.value)
        if value is not None or not source.is_table:
            yield from (row for _, row, _ in function(key, value, record.timestamp, record.headers))


def check_pull(query: Query, plan: QueryPlan) -> None:
    """Raise `SqlError` for a SELECT without EMIT that cannot look rows up."""
    source: SourceInfo = plan.sides[0].source
    for clause, given in (
        ("JOIN", query.joins),
        ("WINDOW", query.window),
        ("GROUP BY", query.group_by or plan.grouping),
        ("PARTITION BY", query.partition_by),
        ("HAVING", query.having),
    ):
        if given:
            raise SqlError(
                f"a pull query does not support {clause}; add EMIT CHANGES for a push query", query.position
            )
    if source.is_table and source.query is None and not source.is_read_only:
        name = name_text(source.name)
        raise SqlError(
            f"the table {name} is not queryable: its rows are kept nowhere. Make a table of it: CREATE TABLE "
            f"QUERYABLE_{source.name} AS SELECT * FROM {name};",
            query.position,
        )
