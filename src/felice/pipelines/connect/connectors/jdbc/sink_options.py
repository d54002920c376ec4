"""The options of the sink, and the rules between them."""

from __future__ import annotations

from collections.abc import Mapping

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    one_of,
    time_zone,
)
from felice.pipelines.connect.connectors.jdbc.options import CONNECTION, at_least_zero

INSERT, UPSERT, UPDATE = "insert", "upsert", "update"
NONE, KAFKA, RECORD_KEY, RECORD_VALUE = "none", "kafka", "record_key", "record_value"
KAFKA_COLUMNS = ("__connect_topic", "__connect_partition", "__connect_offset")
"""The primary key of `pk.mode=kafka`."""
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    found = []
    mode, keys = config.get("insert.mode", INSERT), config.get("pk.mode", NONE)
    if config.get("delete.enabled", "").lower() == "true" and keys != RECORD_KEY:
        found.append(("delete.enabled", "Delete mode must use 'record_key' as primary key mode (pk.mode)"))
    if mode in (UPSERT, UPDATE) and keys == NONE:
        found.append(("pk.mode", f"the mode {mode} needs a primary key: set pk.mode"))
    fields = [one for one in config.get("pk.fields", "").split(",") if one.strip()]
    if keys == KAFKA and len(fields) not in (0, 3):
        found.append(
            ("pk.fields", "pk.mode=kafka has no pk.fields, or three names for topic, partition and offset")
        )
    return found


OPTIONS = CONNECTION + ConfigDefinitions(
    [
        Definition(
            "insert.mode",
            Type.STRING,
            INSERT,
            "insert; upsert: insert, or update the row with this primary key; update.",
            _HIGH,
            one_of(INSERT, UPSERT, UPDATE),
        ),
        Definition("batch.size", Type.INT, 3000, "The most rows of one statement.", _MEDIUM, at_least_zero),
        Definition(
            "delete.enabled",
            Type.BOOLEAN,
            False,
            "Whether a record without a value deletes the row of its key. Needs pk.mode=record_key.",
        ),
        Definition(
            "table.name.format", Type.STRING, "${topic}", "The table; ${topic} is the record's topic."
        ),
        Definition(
            "pk.mode",
            Type.STRING,
            NONE,
            "The primary key: none, kafka (topic, partition, offset), record_key or record_value.",
            _HIGH,
            one_of(NONE, KAFKA, RECORD_KEY, RECORD_VALUE),
        ),
        Definition(
            "pk.fields", Type.LIST, [], "The columns of the primary key; if empty, all members of the struct."
        ),
        Definition(
            "fields.whitelist", Type.LIST, [], "The members of values that are written; if empty, all."
        ),
        Definition("auto.create", Type.BOOLEAN, False, "Whether a table that is missing is created."),
        Definition("auto.evolve", Type.BOOLEAN, False, "Whether columns that a table lacks are added."),
        Definition(
            "max.retries", Type.INT, 10, "How often a failed write is tried again.", _MEDIUM, at_least_zero
        ),
        Definition("retry.backoff.ms", Type.INT, 3000, "The wait before that.", _MEDIUM, at_least_zero),
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
        Definition(
            "offsets.table",
            Type.STRING,
            "",
            "A table that keeps the offsets, in the transaction of the rows: each record is written once. Felice's own "
            "option.",
            _LOW,
        ),
    ],
    _conflicts,
)
LACKING = (
    "date.timezone",
    "dialect.name",
    "mssql.use.merge.holdlock",
    "replace.null.with.default",
    "table.types",
    "timestamp.fields.list",
    "timestamp.precision.mode",
    "trim.sensitive.log",
)
"""Options of Confluent's connector that this one does not have."""
