"""The source: checks its options, and names its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SourceConnector
from felice.pipelines.connect.connectors.postgres.options import ALWAYS, LACKING, OPTIONS


class PostgresSource(SourceConnector):
    """Reads the changes of tables in PostgreSQL."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.debezium.connector.postgresql.PostgresConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.postgres.source_task:PostgresSourceTask"

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes for changes, whose offsets count those of a transaction; rows that are read again are new records."""
        return config.get("snapshot.mode") != ALWAYS

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task: the log has one reader."""
        return [dict(self.config)]
