"""Functions that give nulls a value, or take it away."""

from __future__ import annotations

from typing import TypeVar

from felice.pipelines.sql.functions.table import scalar

T = TypeVar("T")


@scalar(
    "COALESCE(first T, others T MANY) -> T",
    "The first value that is not null.",
    ("COALESCE(NULL, 'a', 'b')", "'a'"),
    ("COALESCE(NULL, NULL)", "NULL"),
    takes_nulls=True,
)
def coalesce(*values: T | None) -> T | None:
    """None if all are None."""
    return next((one for one in values if one is not None), None)


@scalar(
    "IFNULL(value T, other T) -> T",
    "The value, or the other one if it is null.",
    ("IFNULL(NULL, 5)", "5"),
    ("IFNULL(4, 5)", "4"),
    takes_nulls=True,
)
def if_null(value: T | None, other: T | None) -> T | None:
    """The first that is not None."""
    return other if value is None else value


@scalar(
    "NULLIF(value T, other T) -> T",
    "The value, or null if the other one is equal.",
    ("NULLIF(5, 5)", "NULL"),
    ("NULLIF('a', NULL)", "'a'"),
    takes_nulls=True,
)
def null_if(value: T | None, other: T | None) -> T | None:
    """Null is equal to nothing."""
    return None if value == other else value


@scalar(
    "AS_VALUE(column T) -> T",
    "The value itself: a copy of a key's column that becomes part of the value.",
    ("AS_VALUE('a')", "'a'"),
    takes_nulls=True,
)
def as_value(value: T) -> T:
    """Unchanged."""
    return value
