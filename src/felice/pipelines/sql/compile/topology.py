"""A plan to a stream application: the operators of `felice.pipelines.streams`, with functions of the query.

Keeps true: a record's key is the tuple of its key columns' values, and its value the tuple of the columns that its
            operator needs. Nothing here refuses a plan: the analysis did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.declarations import PSEUDO
from felice.pipelines.sql.analysis.joins import ROWKEY
from felice.pipelines.sql.analysis.names import Sides, fields_of
from felice.pipelines.sql.analysis.plan import (
    AGGREGATES,
    FOREIGN_KEY,
    GROUPS,
    Field,
    JoinPlan,
    Output,
    QueryPlan,
)
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.catalogue import HEADERS, SESSION, EventTime, SourceInfo, WindowInfo
from felice.pipelines.sql.compile.aggregates import Aggregates
from felice.pipelines.sql.compile.event_time import record_time, time_function
from felice.pipelines.sql.compile.generated import RowText, write_explosion
from felice.pipelines.sql.compile.joining import joined, joiner_of, stream_with_format, table_with_format
from felice.pipelines.sql.compile.operators import RowFunction, Rows
from felice.pipelines.sql.expressions.code import Report
from felice.pipelines.sql.functions.table import FunctionTable, Settings
from felice.pipelines.sql.processing_log import TOPIC_SETTING, ProcessingLog
from felice.pipelines.sql.rows import row_format, tuples
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column
from felice.pipelines.sql.types import BIGINT, SqlType
from felice.pipelines.streams.app import App
from felice.pipelines.streams.formats import Format, session_windowed, time_windowed
from felice.pipelines.streams.stream import Stream, Table, table_of
from felice.pipelines.streams.topology import EARLIEST, SKIP

Rowed = Stream | Table


@dataclass(frozen=True, slots=True)
class Tools:
    """What plans are compiled with."""

    functions: FunctionTable
    users: Mapping[str, SqlType]
    settings: Settings
    registry: Registry
    report: Report | None
    """Gets failures of expressions; None: the processing log gets them, if the settings name its topic."""


def _log(app: App, query: str, settings: Settings) -> Report:
    topic = settings.get(TOPIC_SETTING)
    if topic is None:
        return _forget
    return ProcessingLog(app.side_output(topic, key="bytes", value="json"), query)


def _forget(what: str, error: BaseException) -> None:
    """No processing log."""


def key_format_of(source: SourceInfo, registry: Registry) -> Format:
    """The format of a topic's keys, with their windows."""
    inner = row_format(
        source.key_format, source.key, registry=registry, subject=f"{source.topic}-key", is_key=True
    )
    return windowed(inner, source.window)


def value_format_of(source: SourceInfo, registry: Registry) -> Format:
    """The format of a topic's values."""
    subject = f"{source.topic}-value"
    return row_format(source.value_format, source.value, registry=registry, subject=subject, is_key=False)


def windowed(key: Format, window: WindowInfo | None) -> Format:
    """The format of keys with their windows."""
    if window is None:
        return key
    if window.kind == SESSION:
        return session_windowed(key)
    assert window.size_ms is not None, "windows of time have a size"
    return time_windowed(key, window.size_ms)


class Compilation:
    """One plan, while its application is built."""

    def __init__(self, name: str, plan: QueryPlan, tools: Tools) -> None:
        self.app = App(name)
        self._plan, self._tools = plan, tools
        self._report = tools.report or _log(self.app, name, tools.settings)
        self._used = _used_fields(plan)

    def into(self, sink: SourceInfo) -> App:
        """The application that writes the result to a topic."""
        rows = self._result(sink.event_time)
        formats = key_format_of(sink, self._tools.registry), value_format_of(sink, self._tools.registry)
        stream = rows.to_stream() if isinstance(rows, Table) else rows
        if isinstance(rows, Table) and sink.event_time is not None:
            stream = self._timed(stream, sink.event_time)
        stream.to(sink.topic, key=formats[0], value=formats[1], on_bad_record=SKIP)
        return self.app

    def shown(self, topic: str) -> App:
        """The application that writes rows to show to a topic, in `shown_format`."""
        rows = self._result(None)
        stream = rows.to_stream() if isinstance(rows, Table) else rows
        key = windowed(tuples(_typed(self._plan.key_types)), self._plan.window)
        stream.to(topic, key=key, value=shown_format(self._plan))
        return self.app

    def row_function(self) -> RowFunction:
        """The function from a record of the only source to the rows to show, for plans without join and GROUP BY."""
        text = self._selection(None, None)
        made: RowFunction = text.made("key, value, timestamp, headers")()
        return made

    def _result(self, event_time: EventTime | None) -> Rowed:
        plan = self._plan
        rows, layout = self._joined()
        if plan.grouping is not None:
            return self._grouped(rows, layout)
        if isinstance(rows, Table):
            return self._table(rows, layout)
        return self._selected(rows, layout, event_time)

    def _text(self, layout: Sequence[Field] | None) -> RowText:
        tools = self._tools
        text = RowText(self._plan.sides, layout, tools.functions, tools.users, self._report)
        if self._plan.joins:
            key = "key.key" if self._plan.sides[0].source.window is not None else "key"
            text.define(GROUPS, ROWKEY, f"(None if key is None else {key}[0])", self._plan.joins[-1].key_type)
        return text

    # Sources

    def _side(self, number: int) -> tuple[Rowed, list[Field] | None]:
        """The rows of a source. Without a layout they are as its topic has them."""
        source = self._plan.sides[number].source
        stream = self._source(source)
        pseudo = any(one.kind in PSEUDO or one.kind == HEADERS for one in self._used[number])
        if not self._plan.joins and not (source.is_table and pseudo):
            return (self._table_of(stream, source) if source.is_table else stream), None
        layout = self._used[number]
        rows = self._laid_out(stream, number, layout)
        return (self._table_of(rows, source) if source.is_table else rows), layout

    def _source(self, source: SourceInfo) -> Stream:
        """The topic as a stream, also of a table."""
        registry = self._tools.registry
        formats = key_format_of(source, registry), value_format_of(source, registry)
        app = self.app
        time = None
        if source.event_time is not None:
            time = record_time(source, source.event_time)
        throws = self._tools.settings.get("ksql.timestamp.throw.on.invalid", "").lower() == "true"
        stream = app.stream(
            source.topic,
            key=formats[0],
            value=formats[1],
            ts=time,
            start=self._tools.settings.get("auto.offset.reset", EARLIEST),
            on_bad_record=SKIP,
            on_error="fail" if time is None or throws else SKIP,
        )
        if source.is_table:
            node = stream.node
            assert node.source is not None
            node.source = replace(node.source, is_table=True)
        return stream

    def _table_of(self, stream: Stream, source: SourceInfo) -> Table:
        return table_of(stream.scope, stream.node, stream.key_format, stream.value_format, None)

    def _laid_out(self, stream: Stream, number: int, layout: Sequence[Field]) -> Stream:
        """Records with the columns of a layout as value."""
        sides = self._plan.sides
        text = RowText([sides[number]], None, self._tools.functions, self._tools.users, self._report)
        text.head += ["if value is None:", "    return ((key, None, timestamp),)"]
        codes = [text.code(Column(field.name)) for field in layout]
        text.lines.append(f"return ((key, ({''.join(f'{one.text}, ' for one in codes)}), timestamp),)")
        value = tuples(tuple((field.name, field.type) for field in layout))
        return self._rows(stream, text, "columns", stream.key_format, value)

    def _rows(
        self,
        stream: Stream,
        text: RowText,
        kind: str,
        key: Format,
        value: Format,
        *,
        is_rekeyed: bool = False,
        value_is_null: bool = False,
    ) -> Stream:
        make = text.made("key, value, timestamp, headers", value_is_null=value_is_null)
        node = stream.scope.topology.operator(kind, lambda stores: Rows(make), stream.node)
        return Stream(stream.scope, node, key, value, is_rekeyed=is_rekeyed or stream.is_rekeyed)

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
        value = tuples(tuple((field.name, field.type) for field in (*layout, *other_layout)))
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
        """Both sides with keys of one format, placed by them."""
        wanted = other.key_format if isinstance(other, Table) else rows.key_format
        if join.moves_left and isinstance(rows, Stream):
            if not isinstance(other, Table):
                wanted = tuples(_typed((join.key_type,)))
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

    def _keyed(self, stream: Stream, expression: Any, layout: Sequence[Field], key: Format) -> Stream:
        text = self._text(layout)
        text.head += ["if value is None:", "    return ()"]
        text.assign("part", text.code(expression), "JOIN")
        text.lines.append("return ((None if part is None else (part,), value, timestamp),)")
        return self._rows(stream, text, "join-key", key, stream.value_format, is_rekeyed=True)

    def _key_function(self, expression: Any, layout: Sequence[Field]) -> Callable[[Any, Any], Any]:
        text = self._text(layout)
        text.assign("part", text.code(expression), "JOIN")
        text.lines.append("return None if part is None else (part,)")
        function: Callable[[Any, Any], Any] = text.made("key, value")()
        return function

    # Projections

    def _selected(
        self, stream: Stream, layout: Sequence[Field] | None, event_time: EventTime | None
    ) -> Stream:
        plan, is_rekeyed = self._plan, self._plan.key is not None
        text = self._selection(layout, event_time)
        key = tuples(_typed(plan.key_types)) if is_rekeyed else stream.key_format
        value = shown_format(plan)
        return self._rows(stream, text, "select", key, value, is_rekeyed=is_rekeyed, value_is_null=is_rekeyed)

    def _selection(self, layout: Sequence[Field] | None, event_time: EventTime | None) -> RowText:
        """The text of WHERE, PARTITION BY and the projection."""
        plan = self._plan
        text = self._text(layout)
        is_rekeyed = plan.key is not None
        if plan.where is not None:
            text.head += ["if value is None:", "    return ()"]
            text.require(plan.where, "WHERE", "()")
        elif plan.exploded:
            text.head += ["if value is None:", "    return ()"]
        elif not is_rekeyed:
            text.head += ["if value is None:", "    return ((key, None, timestamp),)"]
        if plan.key is not None:
            self._write_key(text, plan.key)
        rows = write_explosion(text, plan.exploded) if plan.exploded else None
        start = len(text.lines)
        values, time = self._write_outputs(text, event_time)
        result = self._result_text(values, time)
        if rows is None:
            condition = f" if {time} is not None else ()" if time else ""
            text.lines.append(f"return ({result},){condition}")
        else:
            self._write_loop(text, start, rows, result, time)
        return text

    def _write_key(self, text: RowText, key: Sequence[Any]) -> None:
        """Lines that set `key` to that of PARTITION BY."""
        for part, expression in enumerate(key):
            text.assign(f"k{part}", text.code(expression), "PARTITION BY")
        names = [f"k{part}" for part in range(len(key))]
        made = f"({''.join(f'{one}, ' for one in names)})" if names else "None"
        condition = f"None if {names[0]} is None else " if len(names) == 1 else ""
        text.lines.append(f"new_key = {condition}{made}")

    def _write_outputs(self, text: RowText, event_time: EventTime | None) -> tuple[str, str | None]:
        """Lines that compute the columns. Returns the text of their tuple, and the name of the time."""
        plan = self._plan
        outputs = [one for one in plan.outputs if one.role != "KEY"]
        for number, one in enumerate(outputs):
            text.assign(f"o{number}", text.code(one.expression), one.name)
        time = None
        if event_time is not None:
            time = "at"
            key = "new_key" if plan.key is not None else "key"
            inner = f"{key}.key" if plan.window is not None else key
            place = _column_text(plan, outputs, event_time.column, inner)
            function = text.names.constant(time_function(event_time, _type_of(plan, event_time.column)))
            told = text.names.constant("TIMESTAMP")
            text.lines += [
                "try:",
                f"    at = {function}({place})",
                "except Exception as error:",
                "    at = None",
                f"    {text.report}({told}, error)",
            ]
        return f"({''.join(f'o{number}, ' for number in range(len(outputs)))})", time

    def _result_text(self, values: str, time: str | None) -> str:
        is_rekeyed = self._plan.key is not None
        key = "new_key" if is_rekeyed else "key"
        row = f"(None if value is None else {values})" if is_rekeyed and self._plan.where is None else values
        return f"({key}, {row}, {time or 'timestamp'})"

    def _write_loop(self, text: RowText, start: int, rows: str, result: str, time: str | None) -> None:
        """Put the lines from a number on into a loop over the rows of table functions."""
        names = ", ".join(f"e{number}" for number in range(len(self._plan.exploded)))
        inner = [f"    found.append({result})"]
        if time:
            inner = [f"    if {time} is not None:", f"        found.append({result})"]
        text.lines[start:] = [
            "found = []",
            f"for {names}, in {rows}:",
            *(f"    {line}" for line in text.lines[start:]),
            *inner,
            "return found",
        ]

    def _table(self, table: Table, layout: Sequence[Field] | None) -> Table:
        plan = self._plan
        table = self._filtered(table, layout)
        text = self._text(layout)
        values, _ = self._write_outputs(text, None)
        text.lines.append(f"return {values}")
        function = text.made("key, value, timestamp=0, headers=()")()
        return table.map_values(function, value=shown_format(plan))

    def _filtered(self, table: Table, layout: Sequence[Field] | None) -> Table:
        if self._plan.where is None:
            return table
        joins = self._plan.joins
        if not joins or joins[-1].how != FOREIGN_KEY:
            table.plan.send_old()  # So a row that never matched is not deleted. Kafka Streams keeps no old one there.
        text = self._text(layout)
        text.require(self._plan.where, "WHERE", "False")
        text.lines.append("return True")
        return table.filter(text.made("key, value, timestamp=0, headers=()")())

    def _timed(self, stream: Stream, event_time: EventTime) -> Stream:
        """Records of a table with the time that a column has."""
        plan = self._plan
        outputs = [one for one in plan.outputs if one.role != "KEY"]
        key = "key.key" if plan.window is not None else "key"
        place = _column_text(plan, outputs, event_time.column, key, "value[{}]")
        function = time_function(event_time, _type_of(plan, event_time.column))
        text = self._text(())
        name = text.names.constant(function)
        text.lines += [
            f"at = timestamp if value is None else {name}({place})",
            "return ((key, value, at),) if at is not None else ()",
        ]
        return self._rows(stream, text, "timestamp", stream.key_format, stream.value_format)

    # Aggregations

    def _grouped(self, rows: Rowed, layout: Sequence[Field] | None) -> Table:
        grouping = self._plan.grouping
        assert grouping is not None
        aggregates = Aggregates(grouping, self._tools.settings)
        key, value = tuples(_typed(grouping.types)), tuples(aggregates.arguments)
        state = tuples(aggregates.state)
        if isinstance(rows, Table):
            table = self._filtered(rows, layout)
            grouped_table = table.group_by(self._group_function(layout, aggregates), key=key, value=value)
            found = grouped_table.aggregate(
                aggregates.initial, aggregates.adder(), aggregates.subtractor(), value=state
            )
        else:
            stream = self._group_stream(rows, layout, aggregates, key, value)
            found = self._aggregated(stream, aggregates, state)
        return self._results(found, aggregates)

    def _aggregated(self, stream: Stream, aggregates: Aggregates, state: Format) -> Table:
        grouping = self._plan.grouping
        assert grouping is not None
        window, grouped = grouping.window, stream.group_by_key()
        functions = aggregates.initial, aggregates.adder()
        if window is None:
            return grouped.aggregate(*functions, value=state)
        when = "final" if self._plan.is_final else "update"
        if window.kind == SESSION:
            sessions = grouped.session(
                window.size_ms, grace_ms=window.grace_ms, retention_ms=window.retention_ms
            )
            return sessions.emit(when).aggregate(*functions, aggregates.merge, value=state)
        windows = grouped.hopping(
            window.size_ms,
            every_ms=window.advance_ms,
            grace_ms=window.grace_ms,
            retention_ms=window.retention_ms,
        )
        return windows.emit(when).aggregate(*functions, value=state)

    def _group_stream(
        self,
        stream: Stream,
        layout: Sequence[Field] | None,
        aggregates: Aggregates,
        key: Format,
        value: Format,
    ) -> Stream:
        plan, grouping = self._plan, self._plan.grouping
        assert grouping is not None
        text = self._text(layout)
        text.head += ["if value is None:", "    return ()"]
        if plan.where is not None:
            text.require(plan.where, "WHERE", "()")
        self._write_group(text, "return ()")
        arguments = self._write_arguments(text)
        number = "0, " if aggregates.is_ordered else ""
        text.lines.append(f"return ((group, ({number}{arguments}), timestamp),)")
        is_rekeyed = not self._keeps_key()
        found = self._rows(stream, text, "group", key, value, is_rekeyed=is_rekeyed)
        if aggregates.is_ordered:
            found = found.numbered(lambda key, values, number: (number, *values[1:]), value=value)
        return found

    def _keeps_key(self) -> bool:
        """Whether the groups are the keys of the source."""
        plan, grouping = self._plan, self._plan.grouping
        assert grouping is not None
        source = plan.sides[0].source
        own = tuple(Column(name) for name, _ in source.key)
        return not plan.joins and source.window is None and grouping.expressions == own

    def _group_function(
        self, layout: Sequence[Field] | None, aggregates: Aggregates
    ) -> Callable[[Any, Any], Any]:
        text = self._text(layout)
        self._write_group(text, "return None, None")
        number = "0, " if aggregates.is_ordered else ""
        text.lines.append(f"return group, ({number}{self._write_arguments(text)})")
        function: Callable[[Any, Any], Any] = text.made("key, value, timestamp=0, headers=()")()
        return function

    def _write_group(self, text: RowText, otherwise: str) -> None:
        grouping = self._plan.grouping
        assert grouping is not None
        for part, expression in enumerate(grouping.expressions):
            text.assign(f"g{part}", text.code(expression), "GROUP BY")
        names = [f"g{part}" for part in range(len(grouping.expressions))]
        text.lines += [f"if {' or '.join(f'{one} is None' for one in names)}:", f"    {otherwise}"]
        text.lines.append(f"group = ({''.join(f'{one}, ' for one in names)})")

    def _write_arguments(self, text: RowText) -> str:
        """Lines that compute the arguments of aggregates. Returns the text between their parentheses."""
        grouping = self._plan.grouping
        assert grouping is not None
        names: list[str] = []
        for call in grouping.aggregates:
            for expression, type_ in zip(call.arguments, call.argument_types, strict=True):
                name = f"a{len(names)}"
                text.assign(name, text.converted(expression, type_), call.function.name)
                names.append(name)
        return "".join(f"{one}, " for one in names)

    def _results(self, table: Table, aggregates: Aggregates) -> Table:
        plan, grouping = self._plan, self._plan.grouping
        assert grouping is not None
        if grouping.having is not None:
            text = self._aggregate_text(aggregates)
            text.require(grouping.having, "HAVING", "False")
            text.lines.append("return True")
            table = table.filter(text.made("key, value")())
        text = self._aggregate_text(aggregates)
        values, _ = self._write_outputs(text, None)
        text.lines.append(f"return {values}")
        return table.map_values(text.made("key, value")(), value=shown_format(plan))

    def _aggregate_text(self, aggregates: Aggregates) -> RowText:
        plan, grouping = self._plan, self._plan.grouping
        assert grouping is not None
        text = self._text(())
        for number, (result, call) in enumerate(zip(aggregates.results, grouping.aggregates, strict=True)):
            name = text.names.constant(result)
            text.define(AGGREGATES, str(number), f"{name}(value[{number}])", call.result)
        inner = "key.key" if plan.window is not None else "key"
        for part, type_ in enumerate(grouping.types):
            text.define(GROUPS, str(part), f"{inner}[{part}]", type_)
        if plan.window is not None:
            text.define(GROUPS, "WINDOWSTART", "key.window.start", BIGINT)
            text.define(GROUPS, "WINDOWEND", "key.window.end", BIGINT)
        return text


def shown_format(plan: QueryPlan) -> Format:
    """The format of a plan's rows between operators."""
    return tuples(tuple((one.name, one.type) for one in plan.outputs if one.role != "KEY"))


def _typed(types: Sequence[SqlType]) -> tuple[tuple[str, SqlType], ...]:
    return tuple((f"K{part}", type_) for part, type_ in enumerate(types))


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
        tuple(arguments for _, arguments, _ in plan.exploded),
        tuple(one.expression for one in plan.outputs),
        () if grouping is None else grouping.expressions,
        () if grouping is None else tuple(one.arguments for one in grouping.aggregates),
    )


def _type_of(plan: QueryPlan, column: str) -> SqlType:
    return next(one.type for one in plan.outputs if one.name == column)


def _column_text(
    plan: QueryPlan, outputs: Sequence[Output], column: str, key: str, value: str = "o{}"
) -> str:
    """Where a column of the result is."""
    for number, one in enumerate(outputs):
        if one.name == column:
            return value.format(number)
    part = next(one.part for one in plan.key_outputs if one.name == column)
    return f"(None if {key} is None else {key}[{part}])"
