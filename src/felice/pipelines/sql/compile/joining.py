"""The joins of streams and tables, by their kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from felice.pipelines.sql.analysis.plan import STREAM_STREAM, STREAM_TABLE, JoinPlan
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.stream import Stream, Table
from felice.pipelines.streams.windows import JoinWindows

Joiner = Callable[[Any, Any], Any]
Rowed = Stream | Table
DAY_MS = 86_400_000


def joined(join: JoinPlan, rows: Rowed, other: Rowed, joiner: Joiner, value: Format) -> Rowed:
    """The join of two sides that are placed by one key."""
    swapped = _swapped(joiner)
    if join.how == STREAM_STREAM:
        assert isinstance(rows, Stream) and isinstance(other, Stream)
        return _stream_join(join, rows, other, joiner, swapped, value)
    if join.how == STREAM_TABLE:
        assert isinstance(rows, Stream) and isinstance(other, Table)
        return (rows.join if join.kind == "INNER" else rows.left_join)(other, joiner, value=value)
    assert isinstance(rows, Table) and isinstance(other, Table)
    match join.kind:
        case "INNER":
            return rows.join(other, joiner, value=value)
        case "LEFT":
            return rows.left_join(other, joiner, value=value)
        case "RIGHT":
            return other.left_join(rows, swapped, value=value)
    return rows.outer_join(other, joiner, value=value)


def joiner_of(left: int, right: int) -> Joiner:
    """The function that joins rows of these lengths; a missing row is one of nulls."""
    no_left, no_right = (None,) * left, (None,) * right

    def join(one: Any, other: Any) -> tuple[Any, ...]:
        return (no_left if one is None else one) + (no_right if other is None else other)

    return join


def _swapped(joiner: Joiner) -> Joiner:
    return lambda one, other: joiner(other, one)


def _stream_join(
    join: JoinPlan,
    rows: Stream,
    other: Stream,
    joiner: Joiner,
    swapped: Joiner,
    value: Format,
) -> Stream:
    grace_ms = join.grace_ms
    waits = grace_ms is not None
    if grace_ms is None:
        grace_ms = max(0, DAY_MS - 2 * join.before_ms)
    windows = JoinWindows(join.before_ms, join.after_ms, grace_ms, waits)
    match join.kind:
        case "INNER":
            return rows.join(other, joiner, within=windows, value=value)
        case "LEFT":
            return rows.left_join(other, joiner, within=windows, value=value)
        case "RIGHT":
            # As in ksqlDB, WITHIN is seen from the stream whose records are all kept.
            return other.left_join(rows, swapped, within=windows, value=value)
    return rows.outer_join(other, joiner, within=windows, value=value)


def stream_with_format(stream: Stream, key: Format) -> Stream:
    """The stream with keys of a format. It is placed again if its topic has another one."""
    if stream.key_format == key and not stream.is_rekeyed:
        return stream
    is_same = stream.is_rekeyed or _is_alike(stream.key_format, key)
    return Stream(
        stream.scope, stream.node, key, stream.value_format, is_rekeyed=stream.is_rekeyed or not is_same
    )


def table_with_format(table: Table, key: Format) -> Table:
    """The table with keys of a format. It is placed again if its topic has another one."""
    if _is_alike(table.key_format, key):
        return Table(table.scope, table.plan, key, table.value_format)
    stream = table.to_stream()
    return Stream(stream.scope, stream.node, key, stream.value_format, is_rekeyed=True).to_table()


def _is_alike(one: Format, other: Format) -> bool:
    """Whether two formats write equal keys as equal bytes. The names of their columns may differ."""
    if type(one) is not type(other):
        return False
    if hasattr(one, "key"):
        return _is_alike(one.key, other.key) and one.name == other.name  # type: ignore[attr-defined]
    columns = [[type_ for _, type_ in getattr(each, "columns", ())] for each in (one, other)]
    return columns[0] == columns[1] and len(columns[0]) == 1 and one.name == other.name
