"""What joins ask of their conditions and sources."""

from __future__ import annotations

from felice.pipelines.sql.analysis.inference import TYPES
from felice.pipelines.sql.analysis.names import Sides
from felice.pipelines.sql.analysis.plan import STREAM_STREAM, STREAM_TABLE
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.analysis.typing import Typing
from felice.pipelines.sql.catalogue import SESSION, WindowInfo
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Binary, Column, Expression, Join, placed
from felice.pipelines.sql.syntax.writer import expression_text, name_text, quoted
from felice.pipelines.sql.types import text_of

NOT_REPARTITIONED = (
    "Implicit repartitioning of windowed sources is not supported. See "
    "https://github.com/confluentinc/ksql/issues/4385."
)
"""ksqlDB's reason, as its users know it."""


def canonical_condition(join: Join, typing: Typing) -> Binary:
    """The condition of a join, `left = right`, with canonical sides. Raises `SqlError`."""
    found = _equality(join)
    return placed(Binary("=", typing.canonical(found.left), typing.canonical(found.right)), found.position)


def condition_sides(condition: Binary, number: int, sides: Sides) -> tuple[Expression, Expression]:
    """The expressions over the sides before and over the joined side. Raises `SqlError`."""
    one, other = condition.left, condition.right
    first, second = (_only_side(tree, condition, sides) for tree in (one, other))
    if max(first, second) > number:
        name = name_text(sides.sides[max(first, second)].alias)
        raise SqlError(
            f"Cannot join on unknown source: {name} is joined later; change the order of the joins",
            condition.position,
        )
    if first == second:
        name = quoted(sides.sides[first].alias)
        raise SqlError(
            "Each side of the join must reference exactly one source and not the same source. "
            f"Left side references {name} and right references {name}",
            condition.position,
        )
    if number not in (first, second):
        left, right = (quoted(sides.sides[place].alias) for place in (first, second))
        raise SqlError(
            f"A join criteria is expected to reference the source ({quoted(sides.sides[number].alias)}) in the FROM "
            f"clause, instead the right source references {right} and the left source references {left}",
            condition.position,
        )
    return (other, one) if first == number else (one, other)


def _equality(join: Join) -> Binary:
    """The condition, which must be `left = right`."""
    given = join.condition
    if isinstance(given, Binary) and given.operator == "=":
        return given
    told = expression_text(given)
    if isinstance(given, Binary) and given.operator in ("AND", "OR"):
        reason = f"Invalid join condition: joins on multiple conditions are not yet supported. Got {told}"
    elif isinstance(given, Binary) and given.operator in ("<>", "!=", "<", "<=", ">", ">="):
        reason = f"Only equality join criteria is supported. Got {told}"
    else:
        reason = f"Unsupported join expression: {told}. A join needs a condition `left = right`"
    raise SqlError(reason, given.position)


def _only_side(tree: Expression, condition: Binary, sides: Sides) -> int:
    found = {
        sides.side_named(one.source, one)
        for one in parts_of(tree)
        if isinstance(one, Column) and one.source is not None
    }
    if len(found) != 1:
        raise SqlError(
            f"Invalid comparison expression '{expression_text(tree)}' in join '{expression_text(condition)}'. "
            "Each side of the join comparision must contain references from exactly one source",
            condition.position,
        )
    return found.pop()


def check_types(condition: Binary, how: str, typing: Typing) -> None:
    """Raise `SqlError` for a condition whose sides have different types."""
    types = [typing.type_of(one) for one in (condition.left, condition.right)]
    if types[0] == types[1]:
        return
    told = [text_of(one) for one in types]
    trees = [expression_text(one) for one in (condition.left, condition.right)]
    reason = (
        f"Invalid join. Key types differ: {told[0]} vs {told[1]}: {trees[0]} = {trees[1]}; use CAST"
        if how in (STREAM_STREAM, STREAM_TABLE)
        else f"Invalid join condition: types don't match. Got {trees[0]}{{{told[0]}}} = {trees[1]}{{{told[1]}}}"
    )
    raise SqlError(reason, condition.position)


def check_within(join: Join, how: str) -> None:
    """Raise `SqlError` for a missing WITHIN, or one that means nothing."""
    if how == STREAM_STREAM and join.within is None:
        raise SqlError(
            "Stream-Stream joins must have a WITHIN clause specified. None was provided. "
            "It says how far apart their records may be",
            join.position,
        )
    if how != STREAM_STREAM and join.within is not None:
        kind = "Stream-Table" if how == STREAM_TABLE else "Table-Table"
        raise SqlError(
            f"A window definition was provided for a {kind} join. These joins are not windowed. Please drop the window "
            "definition (i.e. the WITHIN clause)",
            join.position,
        )


def check_windows(join: Join, sides: Sides, number: int) -> None:
    """Raise `SqlError` for sources whose windows do not fit."""
    first, other = (sides.sides[place] for place in (0, number))
    one, another = first.source.window, other.source.window
    if (one is None) != (another is None):
        told = [
            f"{quoted(side.alias)} is {'not' if window is None else window.kind} windowed"
            for side, window in ((first, one), (other, another))
        ]
        raise SqlError(
            f"Can not join windowed source to non-windowed source. {' and '.join(told)}", join.position
        )
    if one is not None and another is not None and _is_session(one) != _is_session(another):
        raise SqlError(
            f"Incompatible windowed sources. Left source: {one.kind}. Right source: {another.kind}. "
            "Session windowed sources can only be joined to other session windowed sources",
            join.position,
        )


def check_windowed_keys(join: Join, sides: Sides, number: int, *, moves: bool) -> None:
    """Raise `SqlError` for windowed sources that the join would repartition. `moves` says that one of them is joined by
    an expression that is not its key. A join with a table also repartitions keys in formats with schemas, because equal
    keys may have been written with different schemas.
    """
    first, other = (sides.sides[place].source for place in (0, number))
    if first.window is None:
        return
    format_ = first.key_format.name
    has_schemas = format_ in TYPES
    is_same = has_schemas or other.key_format.name == format_
    if not moves and is_same and not (has_schemas and other.is_table):
        return
    reason = f"{NOT_REPARTITIONED} Join them by keys of one format"
    if not moves and has_schemas:
        reason += f" that has no schemas, unlike {', '.join(sorted(TYPES))}"
    raise SqlError(reason, join.position)


def _is_session(window: WindowInfo) -> bool:
    return window.kind == SESSION


def check_partitions(join: Join, sides: Sides, number: int) -> None:
    """Raise `SqlError` for sources with different numbers of partitions."""
    left, right = sides.sides[0], sides.sides[number]
    if left.source.partitions == right.source.partitions:
        return
    one, other = quoted(left.alias), quoted(right.alias)
    raise SqlError(
        f"Can't join {one} with {other} since the number of partitions don't match. "
        f"{one} partitions = {left.source.partitions}; {other} partitions = {right.source.partitions}. "
        "Please repartition either one so that the number of partitions match",
        join.position,
    )
