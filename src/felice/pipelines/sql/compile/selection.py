"""The projection of a stream: WHERE, PARTITION BY, table functions and columns, as one function."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.catalogue import KEY, EventTime
from felice.pipelines.sql.compile.event_time import time_function
from felice.pipelines.sql.compile.functions import (
    Layout,
    PlanFunctions,
    key_columns,
    rows_of,
    shown_format,
    tuple_text,
)
from felice.pipelines.sql.compile.generated import Result, RowText, write_explosion
from felice.pipelines.sql.compile.operators import RECORD_IF, RECORDS, VALUE, VALUE_IF, Shape
from felice.pipelines.sql.expressions.code import Code
from felice.pipelines.sql.rows import tuples
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column, Expression
from felice.pipelines.sql.types import BIGINT
from felice.pipelines.streams.stream import Stream


class Selection:
    """The projection of a plan. The time of results is in a column, if one is named."""

    def __init__(self, functions: PlanFunctions, event_time: EventTime | None) -> None:
        self._functions, self._plan, self._event_time = functions, functions.plan, event_time
        self._is_rekeyed = functions.plan.key is not None

    def of(self, stream: Stream, layout: Layout | None) -> Stream:
        """The results of a stream's records."""
        key = tuples(key_columns(self._plan.key_types)) if self._is_rekeyed else stream.key_format
        shape = self._shape()
        return rows_of(
            stream,
            self.text(layout, shape),
            "select",
            shape,
            key,
            shown_format(self._plan),
            is_rekeyed=self._is_rekeyed,
            value_is_null=self._is_rekeyed,
        )

    def _shape(self) -> Shape:
        if self._plan.exploded or self._event_time is not None:
            return RECORDS
        if self._is_rekeyed:
            return RECORD_IF
        return VALUE if self._plan.where is None else VALUE_IF

    def text(self, layout: Layout | None, shape: Shape) -> RowText:
        """The function, whose results have this shape; table functions and a column with the time need `RECORDS`."""
        plan = self._plan
        text = self._functions.text(layout)
        if plan.where is not None or plan.exploded:
            text.skip_null_values(shape.nothing)
        elif not self._is_rekeyed:
            text.skip_null_values(shape.result("key", "None"))
        if plan.where is not None:
            text.require(plan.where, "WHERE", shape.nothing)
        self._write_key(text)
        rows = write_explosion(text, plan.exploded) if plan.exploded else None
        start = len(text.lines)
        result = self._write_result(text)
        if rows is not None:
            self._write_loop(text, start, rows, f"({', '.join(result)})")
            return text
        if self._event_time is not None:
            text.give(shape.nothing, only_if="at is None")
        text.give(shape.result(*result))
        return text

    def _write_key(self, text: RowText) -> None:
        """Lines that set `new_key` to that of PARTITION BY."""
        key = self._plan.key
        if key is None:
            return
        can_be_null = self._plan.where is None and not self._plan.exploded
        for part, expression in enumerate(key):
            code = text.code(expression)
            if can_be_null and not self._is_of_key(expression):
                code = replace(code, text=f"None if value is None else ({code.text})")
            text.assign(f"q{part}", code, "PARTITION BY")
        made = tuple_text("q", len(key)) if key else "None"
        condition = "None if q0 is None else " if len(key) == 1 else ""
        text.lines.append(f"new_key = {condition}{made}")

    def _is_of_key(self, expression: Expression) -> bool:
        """Whether an expression reads key columns only. Without a value, all others are null."""
        sides = Sides(self._plan.sides)
        for part in parts_of(expression):
            if isinstance(part, Column):
                with suppress(SqlError):  # The parameter of a lambda.
                    sides.column(part)
        return all(field.kind == KEY for field in sides.used)

    def _write_result(self, text: RowText) -> tuple[str, str, str]:
        """Lines that compute columns and time. Returns the texts of key, value and time."""
        plan = self._plan
        values = self._functions.write_outputs(text)
        key = "new_key" if self._is_rekeyed else "key"
        if self._event_time is not None:
            write_time(self._functions, text, self._event_time, key, "o{}")
        # A record without value keeps none in PARTITION BY, which needs its key only.
        row = f"(None if value is None else {values})" if self._is_rekeyed and plan.where is None else values
        return key, row, "timestamp" if self._event_time is None else "at"

    def _write_loop(self, text: RowText, start: int, rows: str, result: str) -> None:
        """Put the lines from a number on into a loop over the rows of table functions."""
        names = ", ".join(f"e{number}" for number in range(len(self._plan.exploded)))
        inner = [f"    found.append({result})"]
        if self._event_time is not None:
            inner = ["    if at is not None:", f"        found.append({result})"]
        text.lines[start:] = [
            "found = []",
            f"for {names}, in {rows}:",
            *(f"    {line}" for line in text.lines[start:]),
            *inner,
            Result("found"),
        ]


def with_time(functions: PlanFunctions, stream: Stream, event_time: EventTime) -> Stream:
    """The changes of a table, with the time that a column of their rows has."""
    text = functions.text(())
    write_time(functions, text, event_time, "key", "value[{}]", only_if="value is not None")
    text.give(f"{RECORDS.result('key', 'value', 'at')} if at is not None else {RECORDS.nothing}")
    return rows_of(stream, text, "timestamp", RECORDS, stream.key_format, stream.value_format)


def write_time(
    functions: PlanFunctions,
    text: RowText,
    event_time: EventTime,
    key: str,
    column: str,
    *,
    only_if: str | None = None,
) -> None:
    """Lines that set `at` to the time in a column of the result; to null if it has none, which drops the record.

    `key` is the name of the result's key, and `column` the text of its value columns, with the number left out. Where
    `only_if` is false the time stays that of the record.
    """
    plan = functions.plan
    inner = f"{key}.key" if plan.window is not None else key
    places = {one.name: column.format(number) for number, one in enumerate(plan.value_outputs)}
    places |= {one.name: f"(None if {inner} is None else {inner}[{one.part}])" for one in plan.key_outputs}
    name = text.names.constant(time_function(event_time))
    time = f"{name}({places[event_time.column]})"
    if only_if is not None:
        time = f"{time} if {only_if} else timestamp"
    text.assign("at", Code(time, BIGINT, can_fail=True), "TIMESTAMP")
