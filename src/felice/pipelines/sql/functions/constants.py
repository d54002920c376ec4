"""Checks of constants in calls of aggregate functions."""

from __future__ import annotations

from felice.pipelines.sql.syntax.errors import SqlError


def positive(given: int | None) -> int:
    """The number of values that a function keeps. Raises `SqlError` unless it is at least 1."""
    if given is None or given < 1:
        told = "NULL" if given is None else given
        raise SqlError(f"expected a number of values of at least 1, and got {told}")
    return given
