"""The options of the source, and the rules between them. No driver is imported here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
INITIAL, ALWAYS, INITIAL_ONLY, NO_DATA, NEVER = "initial", "always", "initial_only", "no_data", "never"
ALL_TABLES, FILTERED, DISABLED = "all_tables", "filtered", "disabled"


def _slot_name(name: str, value: Any) -> None:
    if not re.fullmatch(r"[a-z0-9_]{1,63}", value or ""):
        raise invalid(name, value, "expected 1 to 63 small letters, digits and underscores")


def _patterns(name: str, value: Any) -> None:
    for one in value or ():
        try:
            re.compile(one)
        except re.error as error:
            raise invalid(name, one, f"expected a regular expression: {error}") from None


def _operations(name: str, value: Any) -> None:
    if not set(value or ()) <= {"c", "u", "d", "t", "none"}:
        raise invalid(name, ",".join(value), "expected c, u, d, t or none")


def _conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    found = []
    for kind in ("schema", "table", "column"):
        names = f"{kind}.include.list", f"{kind}.exclude.list"
        if all(config.get(one) for one in names):
            found.append((names[1], f"{names[0]} and {names[1]} exclude each other"))
    for part in filter(None, config.get("message.key.columns", "").split(";")):
        if not re.fullmatch(r"[^:]+:[^:]+", part.strip()):
            found.append(
                ("message.key.columns", f"expected schema.table:column,column, found {part.strip()}")
            )
    return found


OPTIONS = ConfigDefinitions(
    [
        Definition(
            "database.hostname",
            Type.STRING,
            documentation="The server's host.",
            importance=_HIGH,
            validator=non_empty,
        ),
        Definition("database.port", Type.INT, 5432, "The server's port.", _HIGH, between(1, 65_535)),
        Definition(
            "database.user",
            Type.STRING,
            documentation="A user with the right REPLICATION, who may read the tables.",
            importance=_HIGH,
            validator=non_empty,
        ),
        Definition("database.password", Type.PASSWORD, None, "The user's password.", _HIGH),
        Definition(
            "database.dbname",
            Type.STRING,
            documentation="The database.",
            importance=_HIGH,
            validator=non_empty,
        ),
        Definition(
            "database.sslmode",
            Type.STRING,
            "prefer",
            "disable, allow, prefer, require, verify-ca or verify-full.",
            _MEDIUM,
            one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        ),
        Definition(
            "database.sslrootcert", Type.STRING, None, "The file of the authority's certificate.", _MEDIUM
        ),
        Definition("database.sslcert", Type.STRING, None, "The file of the user's certificate.", _MEDIUM),
        Definition("database.sslkey", Type.STRING, None, "The file of its key.", _MEDIUM),
        Definition(
            "topic.prefix",
            Type.STRING,
            documentation="The beginning of topics, before the names of schema and table. It also names the offsets.",
            importance=_HIGH,
            validator=non_empty,
        ),
        Definition(
            "plugin.name",
            Type.STRING,
            "pgoutput",
            "How the server writes changes: pgoutput, which every server has.",
            _MEDIUM,
            one_of("pgoutput"),
        ),
        Definition(
            "slot.name",
            Type.STRING,
            "debezium",
            "The slot that keeps the log for this connector.",
            _MEDIUM,
            _slot_name,
        ),
        Definition(
            "slot.drop.on.stop",
            Type.BOOLEAN,
            False,
            "Whether a task that stops drops its slot. Changes until the next start are lost then.",
            _MEDIUM,
        ),
        Definition(
            "publication.name",
            Type.STRING,
            "dbz_publication",
            "The publication of the tables.",
            _MEDIUM,
            non_empty,
        ),
        Definition(
            "publication.autocreate.mode",
            Type.STRING,
            ALL_TABLES,
            "Whether a missing publication is made: all_tables, filtered (the tables that are read) or disabled.",
            _MEDIUM,
            one_of(ALL_TABLES, FILTERED, DISABLED),
        ),
        Definition(
            "snapshot.mode",
            Type.STRING,
            INITIAL,
            "initial: all rows first, if there are no offsets; always: at each start; initial_only: rows, no changes; "
            "no_data, never: changes only.",
            _MEDIUM,
            one_of(INITIAL, ALWAYS, INITIAL_ONLY, NO_DATA, NEVER),
        ),
        Definition(
            "snapshot.fetch.size", Type.INT, 10_240, "The rows that are read at a time.", _LOW, at_least(1)
        ),
        *(
            Definition(
                f"{kind}.{verb}.list",
                Type.LIST,
                [],
                f"Regular expressions of the {kind}s to {'read' if verb == 'include' else 'leave out'}; {form}.",
                _MEDIUM,
                _patterns,
            )
            for kind, form in (
                ("schema", "names"),
                ("table", "as schema.table"),
                ("column", "as schema.table.column"),
            )
            for verb in ("include", "exclude")
        ),
        Definition(
            "message.key.columns",
            Type.STRING,
            "",
            "Columns that are the key instead of the primary key: schema.table:column,column;…",
            _MEDIUM,
        ),
        Definition(
            "tombstones.on.delete",
            Type.BOOLEAN,
            True,
            "Whether a record without a value follows each delete, so that compaction removes the key.",
            _MEDIUM,
        ),
        Definition(
            "skipped.operations",
            Type.LIST,
            ["t"],
            "Operations without a record: c (create), u (update), d (delete), t (truncate), or none.",
            _LOW,
            _operations,
        ),
        Definition(
            "decimal.handling.mode",
            Type.STRING,
            "precise",
            "How NUMERIC is written: precise, double or string.",
            _MEDIUM,
            one_of("precise", "double", "string"),
        ),
        Definition(
            "time.precision.mode",
            Type.STRING,
            "adaptive",
            "How times are written: adaptive (as exact as the column), adaptive_time_microseconds or connect.",
            _MEDIUM,
            one_of("adaptive", "adaptive_time_microseconds", "connect"),
        ),
        Definition(
            "binary.handling.mode",
            Type.STRING,
            "bytes",
            "How BYTEA is written: bytes, base64, base64-url-safe or hex.",
            _LOW,
            one_of("bytes", "base64", "base64-url-safe", "hex"),
        ),
        Definition(
            "interval.handling.mode",
            Type.STRING,
            "numeric",
            "How INTERVAL is written: numeric (microseconds) or string.",
            _LOW,
            one_of("numeric", "string"),
        ),
        Definition(
            "unavailable.value.placeholder",
            Type.STRING,
            "__debezium_unavailable_value",
            "What stands for a large value that an update did not change, and that the log does not have.",
            _LOW,
        ),
        Definition("max.batch.size", Type.INT, 2048, "The most records of one batch.", _MEDIUM, at_least(1)),
        Definition(
            "poll.interval.ms", Type.LONG, 500, "How long to wait for a change at most.", _MEDIUM, at_least(1)
        ),
        Definition(
            "heartbeat.interval.ms",
            Type.INT,
            0,
            "How often a record has the offset, so that the server frees its log while other tables change; 0: never.",
            _LOW,
            at_least(0),
        ),
        Definition(
            "topic.heartbeat.prefix",
            Type.STRING,
            "__debezium-heartbeat",
            "The beginning of the topic of these records, before topic.prefix.",
            _LOW,
        ),
        Definition(
            "status.update.interval.ms",
            Type.INT,
            10_000,
            "How often the task confirms to the server which part of its log is committed.",
            _LOW,
            at_least(1000),
        ),
    ],
    _conflicts,
)
LACKING = (
    "column.mask.hash.v2",
    "column.propagate.source.type",
    "converters",
    "database.initial.statements",
    "datatype.propagate.source.type",
    "field.name.adjustment.mode",
    "heartbeat.action.query",
    "hstore.handling.mode",
    "include.schema.changes",
    "include.unknown.datatypes",
    "incremental.snapshot.chunk.size",
    "notification.enabled.channels",
    "post.processors",
    "provide.transaction.metadata",
    "publish.via.partition.root",
    "replica.identity.autoset.values",
    "schema.name.adjustment.mode",
    "signal.data.collection",
    "signal.enabled.channels",
    "slot.stream.params",
    "snapshot.include.collection.list",
    "snapshot.isolation.mode",
    "snapshot.locking.mode",
    "snapshot.select.statement.overrides",
    "topic.naming.strategy",
)
"""Options of Debezium's connector that this one does not have."""
