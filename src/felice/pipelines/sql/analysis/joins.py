"""FROM: the sides of a query, how they are joined, and what the key of joined rows is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.plan import (
    FOREIGN_KEY,
    STREAM_STREAM,
    STREAM_TABLE,
    TABLE_TABLE,
    JoinPlan,
    Side,
)
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.catalogue import Catalogue
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Binary, Column, Expression, Join, Query
from felice.pipelines.sql.syntax.writer import expression_text, name_text
from felice.pipelines.sql.types import SqlType, text_of

LEFT, RIGHT, FULL, INNER = "LEFT", "RIGHT", "FULL", "INNER"


def sides_of(query: Query, catalogue: Catalogue) -> tuple[Side, ...]:
    """The sources of FROM. Raises `SqlError`."""
    sides: list[Side] = []
    for given in (query.source, *(join.source for join in query.joins)):
        source = catalogue.source(given.name, given.position)
        alias = given.alias or given.name
        if any(side.source.name == source.name for side in sides):
            name = name_text(source.name)
            raise SqlError(f"cannot join {name} to {name}: self joins are not supported", given.position)
        if any(side.alias == alias for side in sides):
            raise SqlError(f"two sources of the query are called {name_text(alias)}", given.position)
        sides.append(Side(alias, source))
    return tuple(sides)


class JoinKey(NamedTuple):
    """The key of the rows that FROM gives."""

    expressions: tuple[tuple[Expression, ...], ...]
    """For each part of the key, the columns that have its value; the best name comes first."""
    types: tuple[SqlType, ...]
    is_synthetic: bool = False
    """No column has its value: it is called ROWKEY."""


def join_plans(query: Query, sides: Sides, typing: Typing) -> tuple[tuple[JoinPlan, ...], JoinKey]:
    """The joins of a query, and its key. Raises `SqlError`."""
    first = sides.sides[0]
    key = JoinKey(
        tuple((typing.canonical(_column(first, name, len(sides.sides))),) for name, _ in first.source.key),
        tuple(type_ for _, type_ in first.source.key),
    )
    plans: list[JoinPlan] = []
    is_table = first.source.is_table
    for number, join in enumerate(query.joins, 1):
        plan, key = _joined(join, number, sides, typing, key, is_table=is_table)
        plans.append(plan)
    return tuple(plans), key


def _column(side: Side, name: str, count: int) -> Column:
    return Column(name, side.alias if count > 1 else None)


def _joined(
    join: Join, number: int, sides: Sides, typing: Typing, key: JoinKey, *, is_table: bool
) -> tuple[JoinPlan, JoinKey]:
    left, right = _expressions(join, number, sides, typing)
    left_type, right_type = typing.type_of(left), typing.type_of(right)
    if left_type != right_type:
        one, other = (
            f"{expression_text(tree)} {text_of(type_)}"
            for tree, type_ in ((left, left_type), (right, right_type))
        )
        raise SqlError(f"the join's types do not match: {one} = {other}", join.condition.position)
    side = sides.sides[number]
    how = _how(join, side, is_table=is_table)
    _check_windows(join, sides, number)
    is_key = len(key.expressions) == 1 and left in key.expressions[0] and not key.is_synthetic
    right_keys = [typing.canonical(Column(name, side.alias)) for name, _ in side.source.key]
    right_is_key = right_keys == [right]
    if how in (STREAM_TABLE, TABLE_TABLE) and not right_is_key:
        raise SqlError(
            f"the join of {name_text(side.alias)} must use its primary key"
            f" ({', '.join(map(expression_text, right_keys))}), not {expression_text(right)}",
            join.condition.position,
        )
    if how == TABLE_TABLE and not is_key:
        how = FOREIGN_KEY
        if join.kind not in (INNER, LEFT):
            raise SqlError(f"{join.kind} OUTER joins on a foreign key are not supported", join.position)
    plan = JoinPlan(
        how,
        join.kind,
        left,
        right,
        left_type,
        moves_left=not is_key,
        moves_right=not right_is_key,
        before_ms=join.within.before.ms if join.within else 0,
        after_ms=join.within.after.ms if join.within else 0,
        grace_ms=join.within.grace.ms if join.within and join.within.grace else None,
    )
    if how == FOREIGN_KEY:
        return plan, key
    return plan, _key_behind(join, left, right, left_type, key if is_key else None)


def _key_behind(
    join: Join, left: Expression, right: Expression, type_: SqlType, before: JoinKey | None
) -> JoinKey:
    known = before.expressions[0] if before is not None else (left,)
    columns = tuple(one for one in (*known, right) if isinstance(one, Column))
    if join.kind == FULL or not columns:
        return JoinKey(((),), (type_,), is_synthetic=True)
    return JoinKey((columns,), (type_,))


def _expressions(join: Join, number: int, sides: Sides, typing: Typing) -> tuple[Expression, Expression]:
    """The expressions over the sides before and over the joined side."""
    condition = join.condition
    if not (isinstance(condition, Binary) and condition.operator == "="):
        raise SqlError(
            f"a join's condition must be `left = right`, and is {expression_text(condition)}",
            condition.position,
        )
    one, other = (typing.canonical(side) for side in (condition.left, condition.right))
    places = [_sides_in(tree, sides) for tree in (one, other)]
    for tree, found in zip((one, other), places, strict=True):
        if len(found) != 1:
            raise SqlError(
                f"each side of a join's condition must use one source, and {expression_text(tree)} uses "
                f"{len(found) or 'none'}",
                condition.position,
            )
        if found > {number}:
            raise SqlError("a join's condition uses a source that is joined later", condition.position)
    first, second = (next(iter(found)) for found in places)
    if max(first, second) != number or first == second:
        raise SqlError(
            f"a join's condition must use {name_text(sides.sides[number].alias)} at one side and a source before it "
            f"at the other: {expression_text(condition)}",
            condition.position,
        )
    return (other, one) if first == number else (one, other)


def _sides_in(tree: Expression, sides: Sides) -> set[int]:
    return {
        sides.side_named(one.source, one)
        for one in parts_of(tree)
        if isinstance(one, Column) and one.source is not None
    }


def _how(join: Join, side: Side, *, is_table: bool) -> str:
    if side.source.is_table:
        how = TABLE_TABLE if is_table else STREAM_TABLE
    elif is_table:
        raise SqlError(
            f"invalid join order: a table cannot be joined with stream {name_text(side.alias)}; name the stream first",
            join.position,
        )
    else:
        how = STREAM_STREAM
    if how == STREAM_STREAM and join.within is None:
        raise SqlError(
            "a join of two streams needs WITHIN: how far apart their records may be", join.position
        )
    if how != STREAM_STREAM and join.within is not None:
        raise SqlError(f"a {how} join has no WITHIN: only joins of two streams have one", join.position)
    if how == STREAM_TABLE and join.kind in (FULL, RIGHT):
        raise SqlError(f"{join.kind} OUTER joins of a stream and a table are not supported", join.position)
    return how


def _check_windows(join: Join, sides: Sides, number: int) -> None:
    first, other = (sides.sides[place].source for place in (0, number))
    if (first.window is None) != (other.window is None):
        named = [f"{name_text(one.name)} is {'' if one.window else 'not '}windowed" for one in (first, other)]
        raise SqlError(
            f"the keys of joined sources must both be windowed or not: {' and '.join(named)}", join.position
        )
    if first.window is not None and other.window is not None:
        sessions = [one.kind == "SESSION" for one in (first.window, other.window)]
        if sessions[0] != sessions[1]:
            raise SqlError(
                "a source with sessions cannot be joined with one with windows of a size", join.position
            )


def is_stream(sides: Sequence[Side]) -> bool:
    """Whether the rows of FROM are a stream's."""
    return not sides[0].source.is_table
