"""The key of a result: which columns of a projection are its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql.analysis.joins import JoinKey
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.writer import expression_text, quoted

Columns = Sequence[tuple[str, Any]]
"""The names and expressions of a projection."""


def key_places(columns: Columns, key: JoinKey, position: Position | None) -> list[int | None]:
    """For each part of a key, the place of its column; None if the projection lacks it. Raises `SqlError`."""
    return [_place(columns, names, position) for names in key.expressions]


def _place(columns: Columns, names: Sequence[Any], position: Position | None) -> int | None:
    for name in names:
        places = [place for place, (_, expression) in enumerate(columns) if expression == name]
        if len(places) > 1:
            told = " and ".join(quoted(columns[place][0]) for place in places)
            raise SqlError(
                f"The projection contains a key column more than once: {told}. Each key column must only be in the "
                "projection once: use AS_VALUE for copies",
                position,
            )
        if places:
            return places[0]
    return None


def missing(target: str, what: str, required: Sequence[Any], *, is_any: bool = False) -> str:
    """What is said if a projection lacks parts of the key of a target: all of the expressions are required, or one."""
    texts = [one if isinstance(one, str) else expression_text(one) for one in required]
    several = "" if len(texts) == 1 else "s"
    joined = f" {'or' if is_any else 'and'} ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
    example = texts[0] if is_any else ", ".join(texts)
    return (
        f"Key{'' if is_any else several} missing from projection (ie, SELECT). The query used to build "
        f"{quoted(target)} must include the {what}{several} {joined} in its projection (eg, SELECT {example}...)."
    )


def missing_primary_key(alias: str, names: Sequence[str]) -> str:
    """What is said if a join on a foreign key lacks the key of its left table."""
    columns = "column" if len(names) == 1 else "columns"
    return (
        f"Primary key {columns} missing in projection. For foreign-key table-table joins, the projection must include "
        f"all primary key columns from the left input table ({quoted(alias)}). Missing {columns}: "
        f"{', '.join(map(quoted, names))}."
    )
