"""The task of the sink: gathers rows of each table, and commits them with their offsets.

Keeps true:  each record is in its table once: the table has the offsets, and changes them with the rows. The offsets
             of the group are committed after all tables.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.iceberg.failures import failures
from felice.pipelines.connect.connectors.iceberg.options import OPTIONS, TABLE, routes
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.model.schema import Struct

if TYPE_CHECKING:
    from felice.pipelines.connect.connectors.iceberg.tables import Table

_MOST_BYTES = 64 << 20
"""So much waits at most, about: then the rows are committed before their time."""


class IcebergSinkTask(SinkTask):
    """Writes rows."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; asks the catalog for nothing yet. Raises `ConnectError`."""
        try:
            import pyiceberg  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConnectError(
                f"{error.name} is not installed: pip install 'felice[connect-iceberg]'"
            ) from error
        self._options = OPTIONS.parse(dict(config))
        self._config = dict(config)
        self._connector = config.get("name", "sink")
        self._catalog: Any = None
        self._tables: dict[str, Table] = {}
        self._routes = [(re.compile(pattern), name) for name, pattern in routes(config).items()]
        self._next: dict[TopicPartition, int] = {}
        """The offsets after the records that were taken."""
        self._first: dict[TopicPartition, int] = {}
        """The offsets of the first records that wait."""
        self._committed_s = time.monotonic()

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets where this task was in these partitions."""
        for at in partitions:
            self._next.pop(at, None)
            self._first.pop(at, None)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Takes rows. Raises `RetriableError` while the catalog is away."""
        for record in records:
            at = record.place
            if record.offset < self._next.get(at, 0):
                continue  # a `put` that is tried again
            if record.value is not None:
                self._add(record)
            self._next[at] = record.offset + 1
        for table in self._tables.values():
            for record, error in table.settle():
                self.context.report(record, error)
        if sum(one.size for one in self._tables.values()) >= _MOST_BYTES:
            self._committed_s = float("-inf")
            self.context.request_commit()

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets before which all rows are in their tables: those of rows that wait are not."""
        interval_s = self._options["iceberg.control.commit.interval-ms"] / 1000
        if time.monotonic() - self._committed_s >= interval_s:
            self._commit()
        return {at: self._first.get(at, offset) for at, offset in offsets.items()}

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives up all rows that wait. Those of other partitions are read again, which the tables allow."""
        for at in partitions:
            self._first.pop(at, None)
        self._forget()

    def _commit(self) -> None:
        self._committed_s = time.monotonic()
        try:
            for one in self._tables.values():
                with failures():
                    one.commit()
        except BaseException:
            # The framework reads on at the last commit. What a table has got by then is left out by its offsets.
            self._forget()
            raise
        self._first.clear()

    def _forget(self) -> None:
        """Loads the tables again at their next use: a commit may have succeeded although its answer was lost."""
        self._tables.clear()
        if self._first:
            self.context.seek(dict(self._first))
        self._next.clear()
        self._first.clear()

    def _add(self, record: SinkRecord) -> None:
        try:
            for name in self._targets(record):
                with failures():
                    self._table(name).add(record)
                self._first.setdefault(record.place, record.offset)
        except DataError as error:
            self.context.report(record, error)

    def _targets(self, record: SinkRecord) -> list[str]:
        """The tables of a record."""
        field = self._options["iceberg.tables.route-field"]
        if not field:
            return list(self._options["iceberg.tables"])
        value = record.value
        for name in field.split("."):
            if not isinstance(value, (Struct, dict)) or name not in list(value):
                raise DataError(f"the value has no member {field}, which names its table")
            value = value[name]
        if self._options["iceberg.tables.dynamic-enabled"]:
            return [str(value).lower()]
        return [name for pattern, name in self._routes if pattern.fullmatch(str(value))]

    def _table(self, name: str) -> Table:
        from felice.pipelines.connect.connectors.iceberg.tables import Table, open_catalog

        found = self._tables.get(name)
        if found is None:
            if self._catalog is None:
                self._catalog = open_catalog(self._config)
            default = self._options["iceberg.tables.default-partition-by"]
            partition_by = self._config.get(f"{TABLE}{name}.partition-by", default)
            found = self._tables[name] = Table(
                self._catalog, name, self._options, self._connector, partition_by
            )
        return found
