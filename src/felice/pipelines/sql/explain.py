"""EXPLAIN: the plan of a query as text, from the result down to its sources. Pure.

Each step has a line, and those before it stand below it, one level deeper. A step that needs state, or sends its rows
through a topic of its own, says so and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from felice.pipelines.sql.analysis.plan import (
    AGGREGATES,
    EXPLODED,
    FOREIGN_KEY,
    GROUPS,
    STREAM_STREAM,
    STREAM_TABLE,
    AggregateCall,
    JoinPlan,
    QueryPlan,
    Side,
)
from felice.pipelines.sql.analysis.rewriting import rewritten
from felice.pipelines.sql.catalogue import SourceInfo
from felice.pipelines.sql.syntax.tree import Call, Column, Expression, Literal, Star
from felice.pipelines.sql.syntax.writer import expression_text, name_text
from felice.pipelines.sql.types import text_of

_INDENT = "  "
_BESIDE = "\0"
"""Before the steps of the right side of a join, which stand beside those of the left side."""
_UNITS = ((86_400_000, "DAYS"), (3_600_000, "HOURS"), (60_000, "MINUTES"), (1_000, "SECONDS"))


def explained(plan: QueryPlan, sink: SourceInfo | None = None) -> str:
    """The text of a plan. Without `sink` the rows are shown to a client."""
    lines, depth = [], 0
    for line in _steps(plan, sink):
        if line.startswith(_BESIDE):
            lines.append(f"{_INDENT * depth}{line.removeprefix(_BESIDE)}")
        else:
            lines.append(f"{_INDENT * depth}{line}")
            depth += 1
    return "\n".join(lines)


def _steps(plan: QueryPlan, sink: SourceInfo | None) -> Iterator[str]:
    """The steps from the result to the first source. Each is below the one that it feeds."""
    if sink is None:
        yield f"SHOW: {_columns(plan)}"
    else:
        formats = f"{sink.key_format.name} keys, {sink.value_format.name} values"
        partitions = "1 partition" if sink.partitions == 1 else f"{sink.partitions} partitions"
        yield f"SINK {name_text(sink.name)}: topic {sink.topic}, {formats}, {partitions}"
        yield f"PROJECT: {_columns(plan)}"
    yield from _grouping(plan)
    if plan.key is not None:
        by = ", ".join(expression_text(_told(one, plan)) for one in plan.key) or "NULL"
        yield f"PARTITION BY: {by}"
    for call, type_ in plan.exploded:
        yield f"EXPLODE: {expression_text(call)}, a row for each {text_of(type_)}"
    if plan.where is not None:
        yield f"FILTER: {expression_text(plan.where)}"
    for number, join in reversed(list(enumerate(plan.joins, 1))):
        yield from _join(join, plan.sides[number])
    yield _source(plan.sides[0])


def _grouping(plan: QueryPlan) -> Iterator[str]:
    grouping = plan.grouping
    if grouping is None:
        return
    if grouping.having is not None:
        yield f"HAVING: {expression_text(_told(grouping.having, plan))}"
    calls = ", ".join(expression_text(_call(one)) for one in grouping.aggregates)
    by = ", ".join(map(expression_text, grouping.expressions))
    window = grouping.window
    if window is None:
        yield f"AGGREGATE: {calls} by {by}. State: a row for each group, which stays"
    else:
        kept = _duration(max(window.retention_ms, window.size_ms + window.grace_ms))
        kind = f"{window.kind} windows of {_duration(window.size_ms)}"
        if window.advance_ms != window.size_ms:
            kind += f", one each {_duration(window.advance_ms)}"
        when = "once, when the grace is over" if plan.is_final else "with each change"
        yield (
            f"AGGREGATE: {calls} by {by}, in {kind}, grace {_duration(window.grace_ms)}; results are sent {when}. "
            f"State: a row for each group and window, kept for {kept}"
        )
    source = plan.sides[0].source
    if source.is_table and not plan.joins:
        yield "SUBTRACT the old row, add the new one: the source is a table. State: a row for each key of the source"
    if not plan.keeps_key:
        key = ", ".join(name for name, _ in source.key) or "none"
        yield f"REPARTITION by {by}: rows of a group must be in one partition, and the key is {key}"


def _join(join: JoinPlan, side: Side) -> Iterator[str]:
    name = name_text(side.source.name)
    on = f"{expression_text(join.left)} = {expression_text(join.right)}"
    if join.how == STREAM_STREAM:
        within = f"within {_duration(join.before_ms)} before and {_duration(join.after_ms)} after"
        waits = "" if join.grace_ms is None else f", grace {_duration(join.grace_ms)}"
        state = f"{within}{waits}. State: the records of both sides that can still find a partner"
    elif join.how == STREAM_TABLE:
        state = f"records of the stream look the row up. State: a row for each key of {name}"
    elif join.how == FOREIGN_KEY:
        state = f"State: a row for each key of both sides, and for each row on the left the key of {name} that it names"
    else:
        state = "State: a row for each key of both sides"
    yield f"{join.kind} JOIN {name} ({join.how}) on {on}: {state}"
    if join.moves_right:
        yield f"{_BESIDE}REPARTITION by {expression_text(join.right)}: it is not the key of {name}"
        yield f"{_BESIDE}{_INDENT}{_source(side)}"
    else:
        yield f"{_BESIDE}{_source(side)}"
    if join.moves_left and join.how != FOREIGN_KEY:
        yield f"REPARTITION by {expression_text(join.left)}: it is not the key"


def _source(side: Side) -> str:
    source = side.source
    what = f"{source.kind} {name_text(source.name)}"
    alias = "" if side.alias == source.name else f" as {side.alias}"
    formats = f"{source.key_format.name} keys, {source.value_format.name} values"
    return f"SOURCE {what}{alias}: topic {source.topic}, {formats}"


def _columns(plan: QueryPlan) -> str:
    shown = []
    for one in plan.outputs:
        text = name_text(one.name)
        if one.expression is not None:
            written = expression_text(_told(one.expression, plan))
            text = text if written == text else f"{written} AS {text}"
        shown.append(text)
    return ", ".join(shown)


def _told(given: Expression, plan: QueryPlan) -> Any:
    """An expression with what the user wrote in place of the analysis' own columns."""

    def change(part: Any) -> Any:
        if not isinstance(part, Column) or part.source not in (AGGREGATES, GROUPS, EXPLODED):
            return None
        if part.source == EXPLODED:
            return plan.exploded[int(part.name)][0]
        assert plan.grouping is not None, "aggregates and groups are those of a grouping"
        if not part.name.isdigit():
            return None
        if part.source == GROUPS:
            return plan.grouping.expressions[int(part.name)]
        return _call(plan.grouping.aggregates[int(part.name)])

    return rewritten(given, change)


def _call(given: AggregateCall) -> Call:
    """The call as the user wrote it."""
    arguments = (*given.arguments, *(Literal(one) for one in given.constants))  # type: ignore[arg-type]
    return Call(given.function.name, arguments or (Star(),))


def _duration(ms: int) -> str:
    for size, unit in _UNITS:
        if ms and ms % size == 0:
            count = ms // size
            return f"{count} {unit.removesuffix('S') if count == 1 else unit}"
    return f"{ms} MILLISECONDS"
