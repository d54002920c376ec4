"""The server's metrics in Prometheus' text format. Pure.

Source: the names are the project's own; ksqlDB has its metrics in JMX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from felice.dataclass import dataclass
from felice.pipelines.prometheus import family
from felice.pipelines.sql.server.persistent import ERROR, PAUSED, RUNNING, QueryState


@dataclass(frozen=True, slots=True)
class Figures:
    """What the metrics are made of."""

    leads: bool
    commands: int
    queries: Mapping[str, QueryState]
    selects: int
    prints: int
    tables: Mapping[str, bool]
    """Whether the topic of each table that is kept here can be followed."""


def page(given: Figures) -> str:
    """All metrics."""
    return "".join(_lines(given))


def _lines(given: Figures) -> Iterator[str]:
    yield from family(
        "felice_sql_leads", "gauge", "1 if this server runs the queries.", [({}, int(given.leads))]
    )
    told = "Statements that changed the catalogue."
    yield from family("felice_sql_commands_total", "counter", told, [({}, given.commands)])
    states = [one.name for one in given.queries.values()]
    told = "Persistent queries in each state."
    rows = [({"state": name.lower()}, states.count(name)) for name in (RUNNING, PAUSED, ERROR)]
    yield from family("felice_sql_queries", "gauge", told, rows)
    told = "1 if a persistent query has failed, and waits to go on."
    failed = [({"query": id}, int(one.name == ERROR)) for id, one in given.queries.items()]
    yield from family("felice_sql_query_failed", "gauge", told, failed)
    told = "Records of its topics that a persistent query has not read, when last reported."
    behind = [({"query": id}, one.behind) for id, one in given.queries.items() if one.behind is not None]
    yield from family("felice_sql_query_lag_records", "gauge", told, behind)
    told = (
        "Records that a persistent query left out: that cannot be read (skipped), after their window (late), without "
        "key or value (null), without a valid time (time)."
    )
    left_out = [
        ({"query": id, "reason": reason}, count)
        for id, one in given.queries.items()
        for reason, count in one.left_out.items()
    ]
    yield from family("felice_sql_query_left_out_records_total", "counter", told, left_out)
    running = [({"kind": "select"}, given.selects), ({"kind": "print"}, given.prints)]
    yield from family("felice_sql_transient_queries", "gauge", "SELECT and PRINT that run.", running)
    told = "1 if the rows of a table are kept up to date."
    tables = [({"table": name}, int(is_fine)) for name, is_fine in given.tables.items()]
    yield from family("felice_sql_table_followed", "gauge", told, tables)
