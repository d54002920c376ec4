"""The options of the source, and the rules between them."""

from __future__ import annotations

from collections.abc import Mapping

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    one_of,
    time_zone,
)
from felice.pipelines.connect.connectors.jdbc.options import CONNECTION, at_least_zero

BULK, INCREMENTING, TIMESTAMP, BOTH = "bulk", "incrementing", "timestamp", "timestamp+incrementing"
TABLES = "tables"
"""The option of a task with its tables."""
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    found = []
    lists = [
        one
        for one in ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")
        if config.get(one)
    ]
    if config.get("query") and lists:
        found.append(("query", f"query may not be combined with {', '.join(lists)}"))
    if config.get("table.whitelist") and config.get("table.blacklist"):
        found.append(("table.blacklist", "table.blacklist and table.whitelist are exclusive"))
    mode = config.get("mode", "")
    if mode in (TIMESTAMP, BOTH) and not config.get("timestamp.column.name"):
        found.append(("timestamp.column.name", f"timestamp.column.name must be set for the mode {mode}"))
    if mode in (INCREMENTING, BOTH) and config.get("query") and not config.get("incrementing.column.name"):
        found.append(("incrementing.column.name", "a query needs incrementing.column.name in this mode"))
    return found


OPTIONS = CONNECTION + ConfigDefinitions(
    [
        Definition(
            "mode",
            Type.STRING,
            documentation="How rows are found: bulk reads the whole table each time, incrementing rows with a larger "
            "id, timestamp rows with a later time, timestamp+incrementing both.",
            importance=_HIGH,
            validator=one_of(BULK, INCREMENTING, TIMESTAMP, BOTH),
        ),
        Definition(
            "topic.prefix",
            Type.STRING,
            documentation="The beginning of topics, before the table's name; with a query, the topic.",
            importance=_HIGH,
        ),
        Definition(
            "incrementing.column.name", Type.STRING, "", "The column that grows; if empty, the numbered one."
        ),
        Definition(
            "timestamp.column.name", Type.LIST, [], "The columns whose first time that is set is the row's."
        ),
        Definition(
            "timestamp.initial", Type.LONG, None, "The first time, in ms since 1970; -1 is now.", _LOW
        ),
        Definition(
            "timestamp.delay.interval.ms",
            Type.LONG,
            0,
            "How old a row must be to be read.",
            _HIGH,
            at_least_zero,
        ),
        Definition(
            "validate.non.null", Type.BOOLEAN, True, "Whether columns that order rows must be NOT NULL.", _LOW
        ),
        Definition("query", Type.STRING, "", "A query instead of tables."),
        Definition("query.suffix", Type.STRING, "", "What is added to the end of each query.", _LOW),
        Definition("table.whitelist", Type.LIST, [], "The names of the tables to read."),
        Definition("table.blacklist", Type.LIST, [], "The names of tables to leave out."),
        Definition("table.include.list", Type.LIST, [], "Regular expressions of the tables to read."),
        Definition("table.exclude.list", Type.LIST, [], "Regular expressions of tables to leave out."),
        Definition(
            "schema.pattern", Type.STRING, None, "The schemas whose tables are read, with % and _ as in SQL."
        ),
        Definition("table.types", Type.LIST, ["TABLE"], "TABLE, VIEW or both.", _LOW),
        Definition(
            "table.poll.interval.ms",
            Type.LONG,
            60_000,
            "How often new tables are looked for.",
            _LOW,
            at_least(1),
        ),
        Definition(
            "poll.interval.ms", Type.INT, 5_000, "How often each table is read.", _HIGH, at_least_zero
        ),
        Definition("batch.max.rows", Type.INT, 1000, "The most rows of one batch.", _LOW, at_least(1)),
        Definition(
            "numeric.mapping",
            Type.STRING,
            "none",
            "none: exact; best_fit: integers and doubles.",
            _LOW,
            one_of("none", "best_fit"),
        ),
        Definition(
            "db.timezone", Type.STRING, "UTC", "The time zone of times without one.", _MEDIUM, time_zone
        ),
        Definition(
            "quote.sql.identifiers",
            Type.STRING,
            "always",
            "Names are always quoted.",
            _MEDIUM,
            one_of("always"),
        ),
    ],
    _conflicts,
)
LACKING = (
    "catalog.pattern",
    "dialect.name",
    "numeric.precision.mapping",
    "query.retry.attempts",
    "table.monitoring.startup.polling.limit.ms",
    "timestamp.granularity",
    "transaction.isolation.mode",
    "timestamp.columns.mapping",
    "incrementing.column.mapping",
)
"""Options of Confluent's connector that this one does not have."""
