"""The library of functions.

signatures       what functions take and return, and which of several functions takes the types of a call
table            the table, and the decorators that register functions
ordering         which values are equal, and which is greater
collections      arrays
maps             maps
lambdas          TRANSFORM, FILTER, REDUCE
json             JSON in texts; `json_texts` reads and writes it
table_functions  EXPLODE, CUBE_EXPLODE
counting         COUNT, COUNT_DISTINCT
sums             SUM, SUM_LIST, AVG
extremes         MAX, MIN, TOPK, TOPKDISTINCT
by_offset        EARLIEST_BY_OFFSET, LATEST_BY_OFFSET
collecting       COLLECT_LIST, COLLECT_SET, HISTOGRAM, ATTR
statistics       STDDEV_SAMP, STDDEV_SAMPLE, CORRELATION
"""

from __future__ import annotations

from importlib import import_module

from felice.pipelines.sql.functions.table import BUILT_IN, FunctionTable

_MODULES = (
    "by_offset",
    "collecting",
    "collections",
    "copies",
    "counting",
    "extremes",
    "json",
    "lambdas",
    "maps",
    "statistics",
    "sums",
    "table_functions",
)
"""The modules that register functions."""


def built_in() -> FunctionTable:
    """The functions that are always there."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
    return BUILT_IN
