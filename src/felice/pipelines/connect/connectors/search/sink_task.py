"""The task of the sink: makes documents of records, and hands them to the bulk requests.

Keeps true:  offsets are committed when the server has all their records: at least once. With keys as ids, or with
             topic+partition+offset, each document is there once, in the state of its newest record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.search.bulk import Bulk
from felice.pipelines.connect.connectors.search.documents import Documents, Operation
from felice.pipelines.connect.connectors.search.mappings import mapping_of
from felice.pipelines.connect.connectors.search.options import OPTIONS
from felice.pipelines.connect.connectors.search.server import Server
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.record import SinkRecord

_log = logging.getLogger("felice.connect.search")


class ElasticsearchSinkTask(SinkTask):
    """Writes documents."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares; asks the server for nothing yet. Raises `ConnectError`."""
        options = self._options = OPTIONS.parse(dict(config))
        self._documents = Documents(options)
        self._server = Server(options)
        self._bulk = Bulk(self._server, options, keeps_order=self._documents.keeps_order)
        self._known: set[str] = set()
        """Targets that are there."""
        self._mapped: set[str] = set()
        self._guessed_topics = frozenset(options["topic.schema.ignore"])
        self._error: BaseException | None = None

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Takes records. Raises `ConnectError` when a request has failed for good."""
        self._report()
        operations: list[Operation] = []
        for record in records:
            try:
                operation = self._documents.operation(record)
                if operation is not None:
                    self._prepare(record)
                    operations.append(operation)
            except DataError as error:
                self._leave_out(record, error)
        self._bulk.add(operations)
        if self._options["flush.synchronously"]:
            self._bulk.flush()
            self._report()

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Returns when all records are written."""
        self._bulk.flush()
        self._report()

    def stop(self) -> None:
        """Ends the requests."""
        if hasattr(self, "_server"):
            self._server.close()
        if hasattr(self, "_bulk"):
            self._bulk.close()

    def _prepare(self, record: SinkRecord) -> None:
        """Makes the index or the data stream of a record, if it is not there."""
        target = self._documents.target(record.topic)
        if target not in self._known:
            if self._documents.is_stream:
                self._server.create_stream(target)
            else:
                self._server.create_index(target)
            self._known.add(target)
        guesses = self._options["schema.ignore"] or record.topic in self._guessed_topics
        if guesses or target in self._mapped or record.value is None or self._documents.is_stream:
            return
        mapping = mapping_of(record.value_schema, compact=self._options["compact.map.entries"])
        self._server.map_members(target, mapping)
        self._mapped.add(target)

    def _leave_out(self, record: SinkRecord, error: DataError) -> None:
        if self._options["drop.invalid.message"]:
            _log.warning(
                "record %s-%d@%d cannot be a document and is left out: %s",
                *record.place,
                record.offset,
                error,
            )
        else:
            self.context.report(record, error)

    def _report(self) -> None:
        """Hands refused records over, on the task's own thread.

        An error here may fail a commit of offsets, after which the framework only reads again: it is raised by the next
        `put`, too.
        """
        if self._error is not None:
            raise self._error
        behavior = self._options["behavior.on.malformed.documents"].upper()
        for record, why, is_malformed in self._bulk.refusals():
            if not is_malformed or behavior == "FAIL":
                try:
                    self.context.report(record, ConnectError(f"the server refuses a document: {why}"))
                except BaseException as error:
                    self._error = error
                    raise
            elif behavior == "WARN":
                _log.warning(
                    "the server refuses record %s-%d@%d, which is left out: %s",
                    *record.place,
                    record.offset,
                    why,
                )
