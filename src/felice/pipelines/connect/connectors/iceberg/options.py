"""The options of the sink, and the rules between them. No library of tables is imported here."""

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
    invalid,
)

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CATALOG, TABLE = "iceberg.catalog.", "iceberg.table."
"""The beginnings of options of the catalog, and of options of a table."""
_PARTITION = re.compile(r"\s*(?:(\w+)\(\s*([^,()]+?)\s*(?:,\s*(\d+)\s*)?\)|([^,()\s]+))\s*")
TRANSFORMS = ("year", "month", "day", "hour", "bucket", "truncate", "void")
_PLURALS = {f"{one}s": one for one in ("year", "month", "day", "hour")}


def partition_fields(text: str) -> list[tuple[str, str, int | None]]:
    """The column, the transform and its number of each part of `day(at),bucket(id,16),kind`. Raises `ValueError`."""
    found: list[tuple[str, str, int | None]] = []
    for part in re.split(r",(?![^()]*\))", text) if text.strip() else []:
        match = _PARTITION.fullmatch(part)
        if match is None:
            raise ValueError(part.strip())
        transform, column, number, plain = match.groups()
        if transform is None:
            found.append((plain, "identity", None))
            continue
        transform = _PLURALS.get(transform.lower(), transform.lower())
        if transform not in TRANSFORMS or (number is None) == (transform in ("bucket", "truncate")):
            raise ValueError(part.strip())
        found.append((column, transform, None if number is None else int(number)))
    return found


def _partitions(name: str, value: Any) -> None:
    try:
        partition_fields(value or "")
    except ValueError as error:
        raise invalid(name, value, f"expected a column or transform(column), found {error}") from None


def _conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    found = []
    is_dynamic = config.get("iceberg.tables.dynamic-enabled", "").lower() == "true"
    if is_dynamic and not config.get("iceberg.tables.route-field"):
        found.append(
            ("iceberg.tables.route-field", "iceberg.tables.dynamic-enabled needs iceberg.tables.route-field")
        )
    if not is_dynamic and not config.get("iceberg.tables"):
        found.append(("iceberg.tables", "iceberg.tables is missing: the tables to write to"))
    if not any(name.startswith(CATALOG) for name in config):
        found.append(
            ("iceberg.catalog", "the catalog has no options, as iceberg.catalog.type and iceberg.catalog.uri")
        )
    if config.get("iceberg.catalog.catalog-impl"):
        found.append(
            ("iceberg.catalog", "iceberg.catalog.catalog-impl is a class of Java: use iceberg.catalog.type")
        )
    for name, value in config.items():
        if name.startswith(TABLE):
            try:
                if name.endswith(".route-regex"):
                    re.compile(value)
                elif name.endswith(".partition-by"):
                    partition_fields(value)
                else:
                    found.append(
                        ("iceberg.tables", f"{name} is not there; a table has partition-by and route-regex")
                    )
            except (re.error, ValueError) as error:
                found.append(("iceberg.tables", f"{name} cannot be read: {error}"))
    return found


OPTIONS = ConfigDefinitions(
    [
        Definition("iceberg.catalog", Type.STRING, "iceberg", "The name of the catalog.", _MEDIUM),
        Definition(
            "iceberg.tables",
            Type.LIST,
            [],
            "The tables, as namespace.name. Each record goes to all of them, unless there is a route.",
            _HIGH,
        ),
        Definition(
            "iceberg.tables.route-field",
            Type.STRING,
            "",
            "The member of values that names the table of a record, or fits a table's route-regex.",
            _MEDIUM,
        ),
        Definition(
            "iceberg.tables.dynamic-enabled",
            Type.BOOLEAN,
            False,
            "Whether the route-field is the name of the table.",
            _MEDIUM,
        ),
        Definition(
            "iceberg.tables.auto-create-enabled",
            Type.BOOLEAN,
            False,
            "Whether a missing table is made, with the schema of its first record.",
            _MEDIUM,
        ),
        Definition(
            "iceberg.tables.evolve-schema-enabled",
            Type.BOOLEAN,
            False,
            "Whether members that a table lacks become columns; else they are left out.",
            _MEDIUM,
        ),
        Definition(
            "iceberg.tables.schema-force-optional",
            Type.BOOLEAN,
            False,
            "Whether columns of tables that are made may be null.",
            _LOW,
        ),
        Definition(
            "iceberg.tables.default-partition-by",
            Type.STRING,
            "",
            "How tables that are made are divided, as day(at),bucket(id,16),kind.",
            _MEDIUM,
            _partitions,
        ),
        Definition(
            "iceberg.control.commit.interval-ms",
            Type.LONG,
            300_000,
            "How often records become visible: at the first commit of offsets after this time.",
            _MEDIUM,
            at_least(0),
        ),
    ],
    _conflicts,
)
LACKING = (
    "iceberg.connect.group-id",
    "iceberg.control.commit.threads",
    "iceberg.control.commit.timeout-ms",
    "iceberg.control.group-id-prefix",
    "iceberg.control.topic",
    "iceberg.hadoop-conf-dir",
    "iceberg.tables.cdc-field",
    "iceberg.tables.default-commit-branch",
    "iceberg.tables.default-id-columns",
    "iceberg.tables.schema-case-insensitive",
    "iceberg.tables.upsert-mode-enabled",
)
"""Options of Iceberg's sink that this one does not have."""


def routes(config: Mapping[str, str]) -> dict[str, str]:
    """The regular expressions of routes by their tables."""
    ending = ".route-regex"
    return {
        name[len(TABLE) : -len(ending)]: config[name]
        for name in sorted(config)
        if name.startswith(TABLE) and name.endswith(ending)
    }
