"""FROM: the sides of a query, how they are joined, and what the key of joined rows is."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from felice.pipelines.sql.analysis.join_checks import (
    canonical_condition,
    check_partitions,
    check_types,
    check_windowed_keys,
    check_windows,
    check_within,
    condition_sides,
)
from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.plan import (
    FOREIGN_KEY,
    STREAM_STREAM,
    STREAM_TABLE,
    TABLE_TABLE,
    JoinPlan,
    Side,
)
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.catalogue import Catalogue
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Column, Expression, Join, Query, placed
from felice.pipelines.sql.syntax.writer import expression_text, name_text
from felice.pipelines.sql.types import SqlType

LEFT, RIGHT, FULL, INNER = "LEFT", "RIGHT", "FULL", "INNER"
TOLD = {
    INNER: "[INNER] JOIN",
    LEFT: "LEFT [OUTER] JOIN",
    RIGHT: "RIGHT [OUTER] JOIN",
    FULL: "[FULL] OUTER JOIN",
}
ROWKEY = "ROWKEY"


def sides_of(query: Query, catalogue: Catalogue) -> tuple[Side, ...]:
    """The sources of FROM. Raises `SqlError`."""
    sides: list[Side] = []
    for given in (query.source, *(join.source for join in query.joins)):
        source = catalogue.source(given.name, given.position)
        alias = given.alias or given.name
        if any(side.source.name == source.name for side in sides):
            name = name_text(source.name)
            raise SqlError(
                f"N-way joins do not support multiple occurrences of the same source. Source: '{name}'"
                if len(sides) > 1
                else f"Can not join '{name}' to '{name}': self joins are not yet supported",
                given.position,
            )
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
    """No column has its value: the key has a name of its own."""
    equals: tuple[Expression, ...] = ()
    """All expressions that have the value of the key: rows are partitioned by them already."""


def synthetic_name(sides: Sides) -> str:
    """The name of a key that no column has: ROWKEY, with a number if a source has a column of that name."""
    number, name = 0, ROWKEY
    while sides.has(name):
        number += 1
        name = f"{ROWKEY}_{number}"
    return name


def join_plans(query: Query, sides: Sides, typing: Typing) -> tuple[tuple[JoinPlan, ...], JoinKey]:
    """The joins of a query, and its key. Raises `SqlError`."""
    first = sides.sides[0]
    columns = tuple(typing.canonical(_column(first, name, len(sides.sides))) for name, _ in first.source.key)
    types = tuple(type_ for _, type_ in first.source.key)
    key = JoinKey(tuple((one,) for one in columns), types, equals=columns if len(columns) == 1 else ())
    plans: list[JoinPlan] = []
    for number, join in enumerate(query.joins, 1):
        plan, key = _joined(join, number, sides, typing, key)
        plans.append(plan)
    return tuple(plans), key


def _column(side: Side, name: str, count: int) -> Column:
    return Column(name, side.alias if count > 1 else None)


def _joined(join: Join, number: int, sides: Sides, typing: Typing, key: JoinKey) -> tuple[JoinPlan, JoinKey]:
    condition = canonical_condition(join, typing)
    join = placed(replace(join, condition=condition), join.position)
    left, right = condition_sides(condition, number, sides)
    check_windows(join, sides, number)
    side = sides.sides[number]
    is_key = left in key.equals
    right_is_key = [Column(name, side.alias) for name, _ in side.source.key] == [right]
    how = _how(join, number, sides, is_key=is_key, left=left, right_is_key=right_is_key)
    type_ = typing.type_of(left)
    check_types(condition, how, typing)
    if how != FOREIGN_KEY:
        check_partitions(join, sides, number)
        check_windowed_keys(join, sides, number, moves=not (is_key and right_is_key))
    plan = JoinPlan(
        how,
        join.kind,
        left,
        right,
        type_,
        moves_left=not is_key,
        moves_right=not right_is_key,
        before_ms=join.within.before.ms if join.within else 0,
        after_ms=join.within.after.ms if join.within else 0,
        grace_ms=join.within.grace.ms if join.within and join.within.grace else None,
    )
    return plan, key if how == FOREIGN_KEY else _key_behind(join, left, right, type_, key, is_key=is_key)


def _key_behind(
    join: Join, left: Expression, right: Expression, type_: SqlType, before: JoinKey, *, is_key: bool
) -> JoinKey:
    if join.kind == FULL:
        return JoinKey(((),), (type_,), is_synthetic=True)  # Each side's column may be null.
    equals = (*(before.equals if is_key else (left,)), right)
    columns = tuple(one for one in equals if isinstance(one, Column))
    return JoinKey((columns,), (type_,), is_synthetic=not columns, equals=equals)


def _how(join: Join, number: int, sides: Sides, *, is_key: bool, left: Expression, right_is_key: bool) -> str:
    """The kind of a join. Raises `SqlError` for one that cannot be made."""
    first, side = sides.sides[0], sides.sides[number]
    told = f"{name_text(first.source.name)} {TOLD[join.kind]} {name_text(side.source.name)}"
    if not side.source.is_table:
        if first.source.is_table:
            raise SqlError(
                "Invalid join order: table-stream joins are not supported; only stream-table joins. "
                f"Got {told}. Name the stream first",
                join.position,
            )
        how = STREAM_STREAM
    else:
        how = TABLE_TABLE if first.source.is_table else STREAM_TABLE
    check_within(join, how)
    if how == STREAM_TABLE and join.kind == FULL:
        raise SqlError(
            f"Invalid join type: full-outer join not supported for stream-table join. Got {told}",
            join.position,
        )
    if how == STREAM_TABLE and join.kind == RIGHT:
        raise SqlError(
            f"Invalid join type encountered: {TOLD[RIGHT]}. A stream-table join is an INNER or a LEFT one. Got {told}",
            join.position,
        )
    if how != STREAM_STREAM and not right_is_key:
        what = "the primary key of the right input table" if how == TABLE_TABLE else "the table's primary key"
        raise SqlError(
            f"Invalid join condition: {how} joins require to join on {what}. Got {_condition(join)}",
            join.condition.position,
        )
    if how == TABLE_TABLE and not is_key:
        _check_foreign(join, number, sides, left, told)
        return FOREIGN_KEY
    return how


def _check_foreign(join: Join, number: int, sides: Sides, left: Expression, told: str) -> None:
    if join.kind == FULL:
        raise SqlError(
            f"Invalid join type: full-outer join not supported for foreign-key table-table join. Got {told}",
            join.position,
        )
    if join.kind == RIGHT:
        raise SqlError(f"RIGHT OUTER JOIN on a foreign key is not supported. Got {told}", join.position)
    if number > 1:
        keys = [(side.alias, name) for side in sides.sides[:number] for name, _ in side.source.key]
        if isinstance(left, Column) and (left.source, left.name) in keys:
            raise SqlError(
                "Cannot repartition a TABLE source. If this is a join, make sure that the criteria uses the "
                f"TABLE's key column instead of {expression_text(left)}",
                join.condition.position,
            )
        raise SqlError(
            "Invalid join condition: foreign-key table-table joins are not supported as part of n-way joins. "
            f"Got {_condition(join)}. Only the first join of a query may use a foreign key",
            join.condition.position,
        )
    if sides.sides[number].source.window is not None:
        raise SqlError(
            "Foreign-key table-table joins are not supported on windowed tables", join.condition.position
        )


def _condition(join: Join) -> str:
    return expression_text(join.condition)
