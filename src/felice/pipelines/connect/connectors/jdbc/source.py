"""The source: which tables there are, and how they are divided among tasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from felice.pipelines.connect.connector.base import SourceConnector
from felice.pipelines.connect.connectors.jdbc.source_options import BULK, LACKING, OPTIONS, TABLES
from felice.pipelines.connect.model.errors import ConnectError

if TYPE_CHECKING:
    from felice.pipelines.connect.connectors.jdbc.tables import TableName

_log = logging.getLogger("felice.connect.jdbc")


class JdbcSource(SourceConnector):
    """Reads tables of a database."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.jdbc.JdbcSourceConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.jdbc.source_task:JdbcSourceTask"

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes, but for bulk, which reads every row again."""
        return config.get("mode") != BULK

    def start(self, config: Mapping[str, str]) -> None:
        """Looks for tables, and begins to look for others."""
        super().start(config)
        self._options = OPTIONS.parse(dict(config))
        self._stopped = threading.Event()
        self._tables: list[TableName] = []
        if not self._options["query"]:
            self._tables = self._look()
            threading.Thread(target=self._watch, name="felice-jdbc-tables", daemon=True).start()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Contiguous groups of tables; one task for a query."""
        if self._options["query"]:
            return [dict(self.config)]
        count = min(max_tasks, len(self._tables))
        if not count:
            _log.warning("connector %s has found no table to read", self.config.get("name"))
        groups: list[dict[str, str]] = []
        at = 0
        for number in range(count):
            size = len(self._tables) // count + (number < len(self._tables) % count)
            texts = "\n".join(one.text for one in self._tables[at : at + size])
            groups.append({**self.config, TABLES: texts})
            at += size
        return groups

    def stop(self) -> None:
        """Ends the look for tables."""
        self._stopped.set()

    def _look(self) -> list[TableName]:
        from felice.pipelines.connect.connectors.jdbc.connections import engine_of, with_attempts
        from felice.pipelines.connect.connectors.jdbc.tables import tables_of

        engine = engine_of(self._options)
        try:
            return with_attempts(
                engine, self._options, self._stopped, lambda connection: tables_of(connection, self._options)
            )
        finally:
            engine.dispose()

    def _watch(self) -> None:
        while not self._stopped.wait(self._options["table.poll.interval.ms"] / 1000):
            try:
                found = self._look()
            except ConnectError as error:
                _log.warning("cannot look for new tables: %s", error)
                continue
            if found != self._tables and not self._stopped.is_set():
                _log.info("the tables changed: now there are %d", len(found))
                self._tables = found
                self.context.request_task_reconfiguration()
