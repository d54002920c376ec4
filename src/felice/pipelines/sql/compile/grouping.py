"""GROUP BY: streams and tables by their groups, with the aggregates of each."""

from __future__ import annotations

from felice.pipelines.sql.analysis.plan import AGGREGATES, GROUPS, Grouping
from felice.pipelines.sql.catalogue import SESSION
from felice.pipelines.sql.compile.aggregates import Aggregates
from felice.pipelines.sql.compile.functions import (
    OF_ROW,
    Layout,
    PlanFunctions,
    key_columns,
    rows_of,
    tuple_text,
)
from felice.pipelines.sql.compile.generated import RowText
from felice.pipelines.sql.compile.operators import RECORD_IF
from felice.pipelines.sql.functions.table import state_itself
from felice.pipelines.sql.rows import tuples
from felice.pipelines.sql.types import BIGINT
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.stream import Stream, Table


class Groups:
    """The groups of a plan."""

    def __init__(self, functions: PlanFunctions, grouping: Grouping) -> None:
        self._functions, self._plan, self._grouping = functions, functions.plan, grouping
        self._aggregates = Aggregates(grouping, functions.tools.settings)
        self._key, self._value = tuples(key_columns(grouping.types)), tuples(self._aggregates.arguments)

    def changes(self, rows: Stream | Table, layout: Layout | None) -> Stream:
        """The changes of the result, with HAVING."""
        state, aggregates = tuples(self._aggregates.state), self._aggregates
        if isinstance(rows, Stream):
            found = self._of_stream(self._grouped(rows, layout), state)
        else:
            table = self._functions.filtered(rows, layout)
            text = self._text_of_groups(layout, "None, None")
            text.give(f"group, {self._write_arguments(text)}")
            grouped = table.group_by(text.made(OF_ROW)(), key=self._key, value=self._value)
            found = grouped.aggregate(
                aggregates.initial(), aggregates.adder(), aggregates.subtractor(), value=state
            )
        return self._results(found)

    def _of_stream(self, stream: Stream, state: Format) -> Table:
        window, grouped = self._grouping.window, stream.group_by_key()
        functions = self._aggregates.initial(), self._aggregates.adder()
        if window is None:
            return grouped.aggregate(*functions, value=state)
        when = "final" if self._plan.is_final else "update"
        if window.kind == SESSION:
            sessions = grouped.session(
                window.size_ms, grace_ms=window.grace_ms, retention_ms=window.retention_ms
            )
            return sessions.emit(when).aggregate(*functions, self._aggregates.merge, value=state)
        windows = grouped.hopping(
            window.size_ms,
            every_ms=window.advance_ms,
            grace_ms=window.grace_ms,
            retention_ms=window.retention_ms,
        )
        return windows.emit(when).aggregate(*functions, value=state)

    def _grouped(self, stream: Stream, layout: Layout | None) -> Stream:
        """The arguments of aggregates, by group."""
        text = self._text_of_groups(layout, RECORD_IF.nothing, where=True)
        text.give(RECORD_IF.result("group", self._write_arguments(text)))
        is_rekeyed = not self._plan.keeps_key
        found = rows_of(stream, text, "group", RECORD_IF, self._key, self._value, is_rekeyed=is_rekeyed)
        if self._aggregates.is_ordered:
            return found.numbered(lambda key, values, number: (number, *values[1:]), value=self._value)
        return found

    def _text_of_groups(self, layout: Layout | None, otherwise: str, *, where: bool = False) -> RowText:
        """A function with the lines that set `group`, or return `otherwise` for a row without group. With `where`
        they do so, too, for rows for which WHERE is not true, and for records without value.
        """
        text = self._functions.text(layout)
        if where:
            text.skip_null_values(otherwise)
            if self._plan.where is not None:
                text.require(self._plan.where, "WHERE", otherwise)
        count = len(self._grouping.expressions)
        for part, expression in enumerate(self._grouping.expressions):
            text.assign(f"g{part}", text.code(expression), "GROUP BY")
        text.give(otherwise, only_if=" or ".join(f"g{part} is None" for part in range(count)))
        text.lines.append(f"group = {tuple_text('g', count)}")
        return text

    def _write_arguments(self, text: RowText) -> str:
        """Lines that compute the arguments of aggregates. Returns the text of their tuple, which begins with the place
        of the row's number, if an aggregate needs it.
        """
        names = ["0"] if self._aggregates.is_ordered else []
        for call in self._grouping.aggregates:
            for expression, type_ in zip(call.arguments, call.argument_types, strict=True):
                name = f"a{len(names)}"
                text.assign(name, text.converted(expression, type_), call.function.name)
                names.append(name)
        return f"({''.join(f'{one}, ' for one in names)})"

    def _results(self, table: Table) -> Stream:
        if self._grouping.having is not None:
            text = self._text_of_results()
            text.require(self._grouping.having, "HAVING", "False")
            text.give("True")
            table = table.filter(text.made(OF_ROW)())
        return self._functions.computed(table, self._text_of_results())

    def _text_of_results(self) -> RowText:
        """A function over groups and the states of their aggregates."""
        text = self._functions.text(())
        calls = zip(self._aggregates.results, self._grouping.aggregates, strict=True)
        for number, (result, call) in enumerate(calls):
            state, is_value = f"value[{number}]", result is state_itself
            made = state if is_value else f"{text.names.constant(result)}({state})"
            text.define(AGGREGATES, str(number), made, call.result, is_simple=is_value)
        inner = "key.key" if self._plan.window is not None else "key"
        for part, type_ in enumerate(self._grouping.types):
            text.define(GROUPS, str(part), f"{inner}[{part}]", type_)
        if self._plan.window is not None:
            text.define(GROUPS, "WINDOWSTART", "key.window.start", BIGINT)
            text.define(GROUPS, "WINDOWEND", "key.window.end", BIGINT)
        return text
