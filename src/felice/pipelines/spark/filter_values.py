"""Lets PySpark's worker take filters whose values Python cannot hold, such as times after the year 9999.

Keeps true: such a filter reaches the reader with None for its value, so it narrows nothing, and Spark applies it.
            PySpark itself would fail the query.
How:        The worker makes each value of its module's `VariantVal`. This module puts another class in that place, in
            the worker's process only.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.types import VariantVal

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class FilterValue(VariantVal):
    """The value of a filter; None in Python if Python has no such value."""

    def toPython(self) -> Any:
        """Called by PySpark's worker."""
        try:
            return super().toPython()
        except (OverflowError, ValueError):
            return None


def take_any_value() -> None:
    """Called in the process that plans a query. In another process it does nothing."""
    # The worker runs as the main program if Spark has no daemon.
    for name in (_WORKER, "__main__"):
        worker = sys.modules.get(name)
        if getattr(worker, "VariantVal", None) is VariantVal and hasattr(worker, "deserializeFilter"):
            worker.VariantVal = FilterValue  # type: ignore[union-attr]
