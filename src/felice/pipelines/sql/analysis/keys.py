"""The key of a result: which columns of a projection are its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from felice.pipelines.sql.analysis.joins import JoinKey
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.tree import Column
from felice.pipelines.sql.syntax.writer import expression_text, quoted

Columns = Sequence[tuple[str, Any]]
"""The names and expressions of a projection."""


def key_places(
    columns: Columns, key: JoinKey, position: Position | None, *, is_grouped: bool = False
) -> list[int | None]:
    """For each part of a key, the place of its column; None if the projection lacks it. Raises `SqlError`."""
    found: list[int | None] = []
    for names in key.expressions:
        places = _places(columns, names)
        if len(places) > 1:
            raise SqlError(_twice([columns[place] for place in places], is_grouped=is_grouped), position)
        found.append(places[0] if places else None)
    return found


def _twice(columns: Columns, *, is_grouped: bool) -> str:
    names = [name for name, _ in columns]
    if is_grouped:
        which = f" more than once: {' and '.join(map(quoted, names))}"
    else:
        which = f" ({_key_name(columns[0][1])}) more than once, aliased as: {' and '.join(sorted(names))}"
    return (
        f"The projection contains a key column{which}. Each key column must only be in the projection once: use "
        "AS_VALUE for copies"
    )


def _key_name(given: Any) -> str:
    """What the key is called before the projection names it."""
    if isinstance(given, Column):
        is_named = given.source is not None and not given.source.startswith("\0")
        return quoted(f"{given.source}_{given.name}" if is_named else given.name)
    return expression_text(given)


def _places(columns: Columns, names: Sequence[Any]) -> list[int]:
    """The columns of the first of the names that the projection has."""
    for name in names:
        places = [place for place, (_, expression) in enumerate(columns) if expression == name]
        if places:
            return places
    return []


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
