"""AS_VALUE: a key's column as a value, too."""

from __future__ import annotations

from typing import Any

from felice.pipelines.sql.functions.table import scalar


@scalar(
    "AS_VALUE(key T) -> T",
    "A copy of a key's column, to have it in the value, too.",
    ("AS_VALUE('a')", "'a'"),
)
def as_value(key: Any) -> Any:
    """The same value."""
    return key
