"""What the options of source and sink have in common. No library of databases is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    ConfigValue,
    Definition,
    Importance,
    Type,
    at_least,
    invalid,
)

at_least_zero = at_least(0)


def time_zone(name: str, value: Any) -> None:
    """A name of a time zone."""
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError):
        raise invalid(name, value, "Invalid time zone identifier") from None


def refused(config: Mapping[str, str], options: Iterable[str]) -> list[ConfigValue]:
    """The options of Confluent's connector that this one does not have: each with an error."""
    return [
        ConfigValue(name, config[name], errors=(f"The option {name} is not supported by this connector.",))
        for name in options
        if name in config
    ]


CONNECTION = ConfigDefinitions(
    [
        Definition(
            "connection.url",
            Type.STRING,
            documentation="The database: jdbc:postgresql://host/db, jdbc:mysql://host/db, jdbc:mariadb://host/db, "
            "jdbc:sqlite:file; or a URL of SQLAlchemy.",
            importance=Importance.HIGH,
        ),
        Definition("connection.user", Type.STRING, None, "The user.", Importance.HIGH),
        Definition("connection.password", Type.PASSWORD, None, "The user's password.", Importance.HIGH),
        Definition(
            "connection.attempts",
            Type.INT,
            3,
            "The most attempts in a row to reach the database.",
            Importance.LOW,
            at_least_zero,
        ),
        Definition(
            "connection.backoff.ms",
            Type.LONG,
            10_000,
            "The wait between two attempts.",
            Importance.LOW,
            at_least_zero,
        ),
    ]
)
"""The options that source and sink share."""
