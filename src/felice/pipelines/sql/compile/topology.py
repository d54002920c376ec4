"""A plan to a stream application: the operators of `felice.pipelines.streams`, with functions of the query.

Keeps true: a record's key is the tuple of its key columns' values, and its value the tuple of the columns that its
            operator needs. The analysis refuses every statement that cannot run; the compiler expects a valid plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from felice.pipelines.sql.analysis.declarations import PSEUDO
from felice.pipelines.sql.analysis.names import Sides, fields_of
from felice.pipelines.sql.analysis.plan import FOREIGN_KEY, Field, JoinPlan, QueryPlan
from felice.pipelines.sql.analysis.properties import START
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.catalogue import HEADERS, SESSION, EventTime, SourceInfo, WindowInfo
from felice.pipelines.sql.catalogue import VALUE as VALUE_COLUMN
from felice.pipelines.sql.compile.event_time import record_time
from felice.pipelines.sql.compile.functions import (
    OF_RECORD,
    OF_ROW,
    Layout,
    PlanFunctions,
    Tools,
    format_of,
    key_columns,
    rows_of,
    shown_format,
)
from felice.pipelines.sql.compile.generated import RowText
from felice.pipelines.sql.compile.grouping import Groups
from felice.pipelines.sql.compile.joining import (
    Rowed,
    joined,
    joiner_of,
    stream_with_format,
    table_with_format,
)
from felice.pipelines.sql.compile.operators import RECORD_IF, RECORDS, VALUE, MetadataOf, RecordsFunction
from felice.pipelines.sql.compile.selection import Selection, with_time
from felice.pipelines.sql.expressions.code import Report, no_report
from felice.pipelines.sql.functions.table import Settings
from felice.pipelines.sql.processing_log import TOPIC_SETTING, ProcessingLog
from felice.pipelines.sql.rows import features_of, row_format, tuples
from felice.pipelines.sql.rows.columns import RowFormat
from felice.pipelines.sql.rows.description import OPTIONAL
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.sql.rows.schema_format import SchemaFormat
from felice.pipelines.sql.settings import FAIL_ON_BAD_RECORD, THROW_ON_INVALID_TIME, is_on
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column
from felice.pipelines.streams.app import App
from felice.pipelines.streams.formats import Format, session_windowed, time_windowed
from felice.pipelines.streams.stream import Stream, Table
from felice.pipelines.streams.topology import EARLIEST, FAIL, SKIP


def _log(app: App, query: str, settings: Settings) -> Report:
    topic = settings.get(TOPIC_SETTING)
    if topic is None:
        return no_report
    return ProcessingLog(app.side_output(topic, key="bytes", value="json"), query)


def key_format_of(source: SourceInfo, registry: Registry, owner: str | None = None) -> Format:
    """The format of a topic's keys, with their windows. With an `owner`, it is the format of keys in the owner's state.
    Their schema is in a subject of the owner, because the topic's subject may belong to other programs.
    """
    return windowed(_inner_key_format(source, registry, owner), source.window)


def _subject(topic: str, part: str, owner: str | None) -> str:
    return f"{topic}-{part}" if owner is None else f"{owner}-{topic}-{part}"


def _inner_key_format(source: SourceInfo, registry: Registry, owner: str | None = None) -> Format:
    subject = _subject(source.topic, "key", owner)
    return row_format(source.key_format, source.key, registry=registry, subject=subject, is_key=True)


def value_format_of(source: SourceInfo, registry: Registry, owner: str | None = None) -> Format:
    """The format of a topic's values, or of values in an owner's state, which has all values that the topic has."""
    format_ = source.value_format
    if owner is not None:
        # The topic's schema may require fields that are not columns, and may distinguish null from 0 on its own.
        nullable = OPTIONAL if format_.name == "PROTOBUF" else format_.nullable
        format_ = replace(format_, schema_id=None, nullable=nullable)
    subject = _subject(source.topic, "value", owner)
    return row_format(format_, source.value, registry=registry, subject=subject, is_key=False)


def schema_formats_of(source: SourceInfo, registry: Registry) -> list[SchemaFormat]:
    """The formats of a topic whose schemas a registry has."""
    formats = _inner_key_format(source, registry), value_format_of(source, registry)
    return [one for one in formats if isinstance(one, SchemaFormat)]


def windowed(key: Format, window: WindowInfo | None) -> Format:
    """The format of keys with their windows."""
    if window is None:
        return key
    if window.kind == SESSION:
        return session_windowed(key)
    assert window.size_ms is not None, "windows of time have a size"
    return time_windowed(key, window.size_ms)


def shown_key_format(plan: QueryPlan) -> Format:
    """The format of the keys of a result, between operators."""
    return windowed(tuples(key_columns(plan.key_types)), plan.window)


class Compilation:
    """One plan, while its application is built."""

    def __init__(self, name: str, plan: QueryPlan, tools: Tools) -> None:
        self.app = App(name)
        self._plan, self._tools = plan, tools
        self._functions = PlanFunctions(plan, tools, tools.report or _log(self.app, name, tools.settings))
        self._used = _used_fields(plan)

    def into(self, sink: SourceInfo) -> App:
        """The application that writes the result to a topic."""
        stream = self._result(sink.event_time)
        registry = self._tools.registry
        key, value = key_format_of(sink, registry), value_format_of(sink, registry)
        stream.to(sink.topic, key=key, value=value, on_bad_record=SKIP)
        return self.app

    def shown(self, topic: str) -> App:
        """The application that writes rows to show to a topic, in `shown_format`."""
        self._result(None).to(topic, key=shown_key_format(self._plan), value=shown_format(self._plan))
        return self.app

    def row_function(self, read_at: MetadataOf = lambda: None) -> RecordsFunction:
        """The function from a record of the only source to the rows to show, for plans without join and GROUP BY.
        `read_at` says where the record was read.
        """
        selection = Selection(self._functions, None)
        made: RecordsFunction = selection.text(None, RECORDS).made(OF_RECORD)(read_at)
        return made

    def _result(self, event_time: EventTime | None) -> Stream:
        """The records of the result. Their time is in a column, if one is named."""
        rows, layout = self._joined()
        if self._plan.grouping is not None:
            changes = Groups(self._functions, self._plan.grouping).changes(rows, layout)
        elif isinstance(rows, Table):
            table = self._functions.filtered(rows, layout)
            changes = self._functions.computed(table, self._functions.text(layout))
        else:
            return Selection(self._functions, event_time).of(rows, layout)
        return changes if event_time is None else with_time(self._functions, changes, event_time)

    # Sources

    def _side(self, number: int) -> tuple[Rowed, list[Field] | None]:
        """The rows of a source. Without a layout they are as its topic has them."""
        source = self._plan.sides[number].source
        layout = _layout_of(self._plan, number, self._used[number])
        # A table without a layout keeps rows as they are.
        stream = self._source(source, number, reads_all=source.is_table and layout is None)
        if layout is not None:
            stream = self._laid_out(stream, number, layout)
        return (stream.to_table() if source.is_table else stream), layout

    def _source(self, source: SourceInfo, number: int, *, reads_all: bool) -> Stream:
        """The topic as a stream, also of a table. Unless it `reads_all`, its rows have the columns that are used."""
        registry = self._tools.registry
        settings = self._tools.settings
        value = value_format_of(source, registry, self.app.name)
        if not reads_all and (used := self._of_used_columns(source, number, value)) is not None:
            value = used
        places = self._functions.value_places.get(number)
        time = None if source.event_time is None else record_time(source, source.event_time, places)
        throws = is_on(settings, THROW_ON_INVALID_TIME)
        stream = self.app.stream(
            source.topic,
            key=key_format_of(source, registry, self.app.name),
            value=value,
            ts=time,
            start=settings.get(START, EARLIEST),
            on_bad_record=FAIL if is_on(settings, FAIL_ON_BAD_RECORD) else SKIP,
            on_error="fail" if time is None or throws else SKIP,
        )
        if source.is_table:
            node = stream.node
            assert node.source is not None
            node.source = replace(node.source, is_table=True)
        return stream

    def _of_used_columns(self, source: SourceInfo, number: int, value: Format) -> Format | None:
        """The format that reads only the columns that the plan uses, if there is one."""
        used = {field.name for field in self._used[number] if field.kind == VALUE_COLUMN}
        if source.event_time is not None:
            used.add(source.event_time.column)
        places = tuple(place for place, (name, _) in enumerate(source.value) if name in used)
        found = value.of_columns(places) if isinstance(value, RowFormat) else None
        if found is not None:
            self._functions.value_places[number] = places
        return found

    def _laid_out(self, stream: Stream, number: int, layout: Sequence[Field]) -> Stream:
        """Records with the columns of a layout as value."""
        text = self._functions.text_of_side(number)
        text.skip_null_values("None")
        columns = "".join(f"{text.code(Column(field.name)).text}, " for field in layout)
        text.give(VALUE.result("key", f"({columns})"))
        return rows_of(stream, text, "columns", VALUE, stream.key_format, format_of(layout))

    # Joins

    def _joined(self) -> tuple[Rowed, list[Field] | None]:
        rows, layout = self._side(0)
        for number, join in enumerate(self._plan.joins, 1):
            other, other_layout = self._side(number)
            assert layout is not None and other_layout is not None, "joined rows have layouts"
            rows = self._join(join, number, rows, layout, other, other_layout)
            layout = [*layout, *other_layout]
        return rows, layout

    def _join(
        self,
        join: JoinPlan,
        number: int,
        rows: Rowed,
        layout: list[Field],
        other: Rowed,
        other_layout: list[Field],
    ) -> Rowed:
        joiner = joiner_of(len(layout), len(other_layout))
        value = format_of((*layout, *other_layout))
        if join.how == FOREIGN_KEY:
            assert isinstance(rows, Table) and isinstance(other, Table)
            on = self._key_function(join.left, layout)
            method = rows.join if join.kind == "INNER" else rows.left_join
            return method(other, joiner, on=on, value=value)
        rows, other = self._placed(join, number, rows, layout, other)
        return joined(join, rows, other, joiner, value)

    def _placed(
        self, join: JoinPlan, number: int, rows: Rowed, layout: list[Field], other: Rowed
    ) -> tuple[Rowed, Rowed]:
        """Both sides, partitioned by keys of one format."""
        wanted = other.key_format if isinstance(other, Table) else rows.key_format
        if join.moves_left and isinstance(rows, Stream):
            if not isinstance(other, Table):
                wanted = tuples(key_columns((join.key_type,)))
            rows = self._keyed(rows, join.left, layout, wanted)
        if isinstance(other, Stream):
            side = self._used[number]
            if join.moves_right:
                other = self._keyed(other, join.right, side, wanted)
            else:
                other = stream_with_format(other, wanted)
        elif isinstance(rows, Table):
            other = table_with_format(other, rows.key_format)
        return (stream_with_format(rows, wanted) if isinstance(rows, Stream) else rows), other

    def _keyed(self, stream: Stream, expression: Any, layout: Layout, key: Format) -> Stream:
        text = self._text_of_key(expression, layout)
        text.skip_null_values(RECORD_IF.nothing)
        text.give(RECORD_IF.result("part", "value"))
        return rows_of(stream, text, "join-key", RECORD_IF, key, stream.value_format, is_rekeyed=True)

    def _key_function(self, expression: Any, layout: Layout) -> Callable[[Any, Any], Any]:
        text = self._text_of_key(expression, layout)
        text.give("part")
        function: Callable[[Any, Any], Any] = text.made(OF_ROW)()
        return function

    def _text_of_key(self, expression: Any, layout: Layout) -> RowText:
        """A function with the lines that set `part` to the key of a join."""
        text = self._functions.text(layout)
        text.assign("part", text.code(expression), "JOIN")
        text.lines.append("part = None if part is None else (part,)")
        return text


def changed_state(before: QueryPlan, after: QueryPlan) -> str | None:
    """The changed part of a query because of which the new plan cannot use the state; None if the plan can use it.

    A table deletes a row when it no longer fulfils a condition. Under another condition, rows of the result would never
    be deleted, and aggregates would subtract rows that they never added. So conditions of tables must not change.
    """
    one, other = before.grouping, after.grouping
    if (one is None) != (other is None):
        return "GROUP BY"
    if one is not None and other is not None:
        if (one.expressions, one.types) != (other.expressions, other.types):
            return "the expressions of GROUP BY"
        if one.aggregates != other.aggregates:
            return "the aggregate functions"
        if one.window != other.window:
            return "the windows"
        if one.having != other.having:
            return "HAVING"
    if before.is_final != after.is_final:
        return "EMIT FINAL"
    if before.joins != after.joins:
        return "the joins"
    if before.sides[0].source.is_table and before.where != after.where:
        return "WHERE of a table"
    if _kept_columns(before) != _kept_columns(after):
        return f"the columns that are read from the {'joined sources' if before.joins else 'table'}"
    return None


def _layout_of(plan: QueryPlan, number: int, used: list[Field]) -> list[Field] | None:
    """The columns of a side's rows between operators; None if its rows are as its topic has them."""
    source = plan.sides[number].source
    pseudo = any(one.kind in PSEUDO or one.kind == HEADERS for one in used)
    return used if plan.joins or (source.is_table and pseudo) else None


def _kept_columns(plan: QueryPlan) -> list[list[Field]]:
    """The columns of the rows in stores and repartitions, where each row must have all of them."""
    if not plan.joins and plan.where is None and plan.grouping is None:
        return []  # Nothing asks for the old rows of a table, so it has no store.
    kept = []
    for number, used in enumerate(_used_fields(plan)):
        source = plan.sides[number].source
        layout = _layout_of(plan, number, used)
        if layout is not None:
            kept.append(layout)
        elif source.is_table and not features_of(source.value_format).wraps:
            # Without names, its format cannot read a row from before a column was added.
            kept.append([one for one in fields_of(number, source) if one.kind == VALUE_COLUMN])
    return kept


def _used_fields(plan: QueryPlan) -> list[list[Field]]:
    """The columns of each side that the query uses."""
    sides = Sides(plan.sides)
    for part in parts_of(_expressions(plan)):
        if isinstance(part, Column) and not (part.source or "").startswith("\0"):
            try:
                sides.column(part)
            except SqlError:
                continue  # The parameter of a lambda.
    used = set(sides.used)
    return [
        [field for field in fields_of(number, side.source) if field in used]
        for number, side in enumerate(plan.sides)
    ]


def _expressions(plan: QueryPlan) -> tuple[Any, ...]:
    grouping = plan.grouping
    return (
        tuple((join.left, join.right) for join in plan.joins),
        plan.where,
        plan.key or (),
        tuple(call for call, _ in plan.exploded),
        tuple(one.expression for one in plan.outputs),
        () if grouping is None else grouping.expressions,
        () if grouping is None else tuple(one.arguments for one in grouping.aggregates),
    )
