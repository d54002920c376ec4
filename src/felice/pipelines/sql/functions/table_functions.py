"""Table functions: EXPLODE and CUBE_EXPLODE. They make rows of one; a null array makes none."""

from __future__ import annotations

from itertools import product
from typing import Any

from felice.pipelines.sql.functions.table import table_function

MOST_COLUMNS = 20
"""CUBE_EXPLODE makes up to 2 to the power of so many rows of one."""


@table_function(
    "EXPLODE(array ARRAY<T>) -> T",
    "A row for each element of an array.",
    ("EXPLODE(ARRAY[1, 2])", "ARRAY[1, 2]"),
    takes_nulls=True,
)
def explode(array: list[Any] | None) -> list[Any]:
    """The elements."""
    return [] if array is None else array


@table_function(
    "CUBE_EXPLODE(columns ARRAY<T>) -> ARRAY<T>",
    "A row for each combination of columns that are null or have their value: 2^n rows for n columns that are not "
    "null. The first row has only nulls, the last one all values.",
    (
        "CUBE_EXPLODE(ARRAY[1, 2])",
        "ARRAY[ARRAY[CAST(NULL AS INTEGER), NULL], ARRAY[NULL, 2], ARRAY[1, NULL], ARRAY[1, 2]]",
    ),
    takes_nulls=True,
)
def cube_explode(columns: list[Any] | None) -> list[list[Any]]:
    """All combinations. Raises ValueError for more than `MOST_COLUMNS` columns."""
    if columns is None:
        return []
    if len(columns) > MOST_COLUMNS:
        raise ValueError(f"CUBE_EXPLODE: expected {MOST_COLUMNS} columns at most, and got {len(columns)}")
    choices = ([None] if one is None else [None, one] for one in columns)
    return [list(row) for row in product(*choices)]
