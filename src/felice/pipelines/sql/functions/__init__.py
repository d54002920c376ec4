"""The library of functions.

signatures       what functions take and return, and which of several functions takes the types of a call
table            the table, and the decorators that register functions
ordering         which values are equal, and which is greater
constants        checks of constants in calls of aggregate functions
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
limits           how large results may be
numbers          rounding, signs, the greatest and the least, series
doubles          roots, powers, logarithms and trigonometry
texts            texts
texts_and_bytes  what texts and bytes have both
masks            MASK and its kin
matching         regular expressions
json_paths       EXTRACTJSONFIELD
encodings        texts as bytes, and bytes as texts
bytes            numbers in bytes
nulls            COALESCE and others
times            dates, times and timestamps
urls             URLs
"""

from __future__ import annotations

from importlib import import_module

from felice.pipelines.sql.functions.table import BUILT_IN, FunctionTable

_MODULES = (
    "by_offset",
    "collecting",
    "collections",
    "counting",
    "extremes",
    "json",
    "lambdas",
    "maps",
    "statistics",
    "sums",
    "table_functions",
    "bytes",
    "doubles",
    "encodings",
    "json_paths",
    "masks",
    "matching",
    "nulls",
    "numbers",
    "texts",
    "texts_and_bytes",
    "times",
    "urls",
)
"""The modules that register functions."""


def built_in() -> FunctionTable:
    """The functions that are always there."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
    return BUILT_IN
