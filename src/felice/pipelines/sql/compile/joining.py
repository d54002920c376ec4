"""The joins of streams and tables, by their kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.sql.analysis.plan import STREAM_STREAM, JoinPlan
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.stream import Stream, Table
from felice.pipelines.streams.windows import JoinWindows

Joiner = Callable[[Any, Any], Any]
Rowed = Stream | Table


def joined(join: JoinPlan, rows: Any, other: Any, joiner: Joiner, value: Format) -> Rowed:
    """The join of two sides that are partitioned by the same key."""
    options: dict[str, Any] = {"value": value}
    if join.how == STREAM_STREAM:
        options["within"] = _windows(join)
    found: Rowed
    match join.kind:
        case "INNER":
            found = rows.join(other, joiner, **options)
        case "LEFT":
            found = rows.left_join(other, joiner, **options)
        case "RIGHT":
            # As in ksqlDB, WITHIN is seen from the stream whose records are all kept.
            found = other.left_join(rows, lambda one, two: joiner(two, one), **options)
        case _:
            found = rows.outer_join(other, joiner, **options)
    return found


def _windows(join: JoinPlan) -> JoinWindows:
    grace_ms = join.grace_ms
    if grace_ms is None:
        grace_ms = max(0, DAY_MS - 2 * join.before_ms)
    return JoinWindows(join.before_ms, join.after_ms, grace_ms, join.grace_ms is not None)


def joiner_of(left: int, right: int) -> Joiner:
    """The function that joins rows of these lengths; a missing row is one of nulls."""
    no_left, no_right = (None,) * left, (None,) * right

    def join(one: Any, other: Any) -> tuple[Any, ...]:
        return (no_left if one is None else one) + (no_right if other is None else other)

    return join


def stream_with_format(stream: Stream, key: Format) -> Stream:
    """The stream with keys of a format. It is repartitioned if its own keys are in another format."""
    is_same = stream.key_format == key or _is_alike(stream.key_format, key)
    return Stream(
        stream.scope, stream.node, key, stream.value_format, is_rekeyed=stream.is_rekeyed or not is_same
    )


def table_with_format(table: Table, key: Format) -> Table:
    """The table with keys of a format. It is repartitioned if its own keys are in another format."""
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
