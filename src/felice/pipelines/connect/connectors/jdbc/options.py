"""What the options of source and sink have in common. No library of databases is imported here."""

from __future__ import annotations

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
)

at_least_zero = at_least(0)


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
