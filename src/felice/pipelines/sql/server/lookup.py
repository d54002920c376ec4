"""SELECT without EMIT over a table: rows of `tables`, found by their keys if WHERE names them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.analysis.plan import QueryPlan
from felice.pipelines.sql.catalogue import SourceInfo
from felice.pipelines.sql.compile.functions import Tools
from felice.pipelines.sql.compile.topology import Compilation, key_format_of, value_format_of
from felice.pipelines.sql.rows import row_format
from felice.pipelines.sql.server.rows import MOST_AT_ONCE, Row, Shown
from felice.pipelines.sql.server.tables import StoredRow, TableRows, window_bytes
from felice.pipelines.sql.syntax.tree import Binary, Column, Expression, In, Literal
from felice.pipelines.sql.types import BIGINT, INTEGER, STRING, SqlType

MOST_BYTES = 1 << 20
"""Of keys and values that are decoded at once; the last one may exceed it."""
_INTEGERS = {INTEGER: 1 << 31, BIGINT: 1 << 63}


class TableLookup:
    """The rows of one SELECT."""

    def __init__(self, plan: QueryPlan, where: Expression | None, tools: Tools) -> None:
        source = plan.sides[0].source
        self._function = Compilation("pull", plan, tools).row_function()
        self._formats = key_format_of(source, tools.registry), value_format_of(source, tools.registry)
        self._shown = Shown(plan)
        self._window_bytes = window_bytes(source)
        self.keys = _encoded_keys(source, where, plan.sides[0].alias, tools)
        """The bytes of the keys that can match; None if each row may."""

    async def read(self, rows: TableRows) -> AsyncIterator[list[Row]]:
        """The rows that match, some at a time, each in a thread."""
        found = rows.rows(self.keys, self._window_bytes)
        while (part := await asyncio.to_thread(self._part, found)) is not None:
            yield part

    def _part(self, found: Iterator[StoredRow]) -> list[Row] | None:
        """The results of the next stored rows; None after the last one."""
        shown, count, size = list[Row](), 0, 0
        for key_bytes, value_bytes, timestamp in found:
            count += 1
            size += len(key_bytes) + len(value_bytes)
            try:
                key, value = self._formats[0].decode(key_bytes), self._formats[1].decode(value_bytes)
            except FormatError:
                continue  # As a persistent query does.
            shown += [self._shown.row(row) for _, row, _ in self._function(key, value, timestamp, ())]
            if count == MOST_AT_ONCE or size >= MOST_BYTES:
                return shown
        return shown if count else None


def _encoded_keys(
    source: SourceInfo, where: Expression | None, alias: str, tools: Tools
) -> list[bytes] | None:
    if len(source.key) != 1:
        return None
    ((name, type_),) = source.key
    values = None if where is None else _values_of(where, name, type_, alias)
    if values is None:
        return None
    inner = row_format(
        source.key_format,
        source.key,
        registry=tools.registry,
        subject=f"{source.topic}-key",
        is_key=True,
    )
    if source.key_format.name not in ("KAFKA", "JSON", "DELIMITED"):
        return None  # One value may have several bytes: its schema's id is among them.
    found = [inner.encode((value,)) for value in dict.fromkeys(values)]
    return [one for one in found if one is not None]


def _values_of(where: Expression, name: str, type_: SqlType, alias: str) -> list[Any] | None:
    """The values of the key for which a condition can be true; None if it does not say."""
    match where:
        case Binary("AND", left, right):
            found = _values_of(left, name, type_, alias)
            return _values_of(right, name, type_, alias) if found is None else found
        case Binary("=", Column() as column, Literal(value)) | Binary(
            "=", Literal(value), Column() as column
        ):
            choices = [value]
        case In(Column() as column, literals, False) if all(isinstance(one, Literal) for one in literals):
            choices = [one.value for one in literals if isinstance(one, Literal)]
        case _:
            return None
    if column.name != name or column.source not in (None, alias):
        return None
    return choices if all(_is_of(type_, one) for one in choices) else None


def _is_of(type_: SqlType, value: Any) -> bool:
    """Whether a literal is a value of the key's type as it stands."""
    if type_ == STRING:
        return isinstance(value, str)
    limit = next((one for integer, one in _INTEGERS.items() if integer == type_), None)
    return limit is not None and type(value) is int and -limit <= value < limit
