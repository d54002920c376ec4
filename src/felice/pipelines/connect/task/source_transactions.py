"""The loop of a source task that writes each record exactly once: records and offsets in one transaction.

Keeps true:  an offset is in a transaction with the records before it, so both are visible or neither.
             `init_transactions` comes before the offsets are read: an older generation of the task can write no more.
             Every failure to write ends the task; the open transaction is aborted.
Source:      KIP-618, and Kafka Connect's `ExactlyOnceWorkerSourceTask`: the offsets of records that the connector
             aborts are committed, so that the connector does not meet them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar

from felice.client.error import KafkaError, KafkaException
from felice.client.model import Message
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.storage.offset_records import key_bytes, key_of, value_bytes
from felice.pipelines.connect.storage.topic_clients import PARTITIONER
from felice.pipelines.connect.task.sending import send
from felice.pipelines.connect.task.source import QUEUE_KIB, Done, SourceLoop, nothing

_ABORTED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""The reports of records that were not sent yet when their transaction was aborted."""
_TIMEOUT_S = 60.0
"""The limit of each call that begins or ends a transaction."""


class Boundary(Enum):
    """Where transactions end (`transaction.boundary`)."""

    POLL = "poll"
    INTERVAL = "interval"
    CONNECTOR = "connector"


class ExactlyOnceSourceLoop(SourceLoop):
    """`SourceLoop` with transactions. The producer's configuration has a transactional id."""

    # A record has the time of its transaction.
    producer_defaults: ClassVar = {
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": PARTITIONER,
        "queue.buffering.max.kbytes": QUEUE_KIB,
    }

    def __init__(
        self,
        *arguments: Any,
        connector: str,
        offsets_topic: str,
        boundary: Boundary,
        interval_s: float,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._connector = connector
        self._offsets_topic = offsets_topic
        self._boundary = boundary
        self._interval_s = interval_s
        self._is_open = False
        self._wishes = _Wishes() if boundary is Boundary.CONNECTOR else None

    def _prepare(self) -> None:
        self.producer.init_transactions(_TIMEOUT_S)
        self._commit_after(self._interval_s)
        self._task.context.transaction = self._wishes  # type: ignore[misc]

    def _send(self, records: Sequence[SourceRecord]) -> None:
        if self._wishes is None:
            super()._send(records)
            if self._boundary is Boundary.POLL:
                self._commit()
            return
        for record in records:
            self._send_one(record)
            self._end_if(self._wishes.of_record(record))
        self._end_if(self._wishes.of_batch())

    def _submit(self, record: SourceRecord) -> Done:
        self._check_places(record)
        self._open()
        self._note(record)
        return nothing

    def _on_refusal(self, record: SourceRecord | None, done: Done, error: KafkaError) -> None:
        if error.code() not in _ABORTED:
            failure = ConnectError(f"Unrecoverable exception from producer send callback: {error.str()}")
            failure.__cause__ = KafkaException(error)
            self._fail(failure)

    def _end_if(self, commits: bool | None) -> None:
        if commits is None:
            return
        if not commits and self._is_open:
            self.producer.abort_transaction(_TIMEOUT_S)
            self._is_open = False
        self._commit()

    def _open(self) -> None:
        if not self._is_open:
            self.producer.begin_transaction()
            self._is_open = True

    def _commit(self) -> None:
        self._commit_after(self._interval_s)
        if not self._sent and not self._is_open:
            return
        self._open()
        for partition, offset in self._sent.values():
            send(
                self.producer,
                self._offsets_topic,
                self._on_offset,
                self._raise_failure,
                key=key_bytes(key_of(self._connector, partition)),
                value=value_bytes(offset),
            )
        self.producer.flush(-1)
        self._raise_failure()
        self._flush_dead_letters(_TIMEOUT_S)
        self.producer.commit_transaction(_TIMEOUT_S)
        self._is_open = False
        if self._sent:
            self._task.offsets_committed(list(self._sent.values()))
        self._sent = {}
        self._task.commit()

    def _on_offset(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            text = f"an offset was not written to the topic {self._offsets_topic}: {error.str()}"
            self._fail(ConnectError(text))

    def _finish(self, *, failed: bool) -> None:
        if not self._is_open:
            return
        if failed or self._wishes is not None:
            # What the connector did not end is not to be seen.
            self.producer.abort_transaction(_TIMEOUT_S)
            self._is_open = False
        else:
            self._commit()


class _Wishes:
    """Where the task says how its transactions end (`TransactionContext`)."""

    def __init__(self) -> None:
        self._records: dict[int, tuple[SourceRecord, bool]] = {}
        self._batch: bool | None = None

    def commit(self, record: SourceRecord | None = None) -> None:
        self._wish(record, commits=True)

    def abort(self, record: SourceRecord | None = None) -> None:
        self._wish(record, commits=False)

    def _wish(self, record: SourceRecord | None, *, commits: bool) -> None:
        if record is None:
            self._batch = commits
        else:
            # By identity; the record is kept so that no other one gets its id.
            self._records[id(record)] = (record, commits)

    def of_record(self, record: SourceRecord) -> bool | None:
        """Whether to commit (True) or abort (False) after this record."""
        found = self._records.pop(id(record), None)
        return None if found is None else found[1]

    def of_batch(self) -> bool | None:
        """The same for the whole batch."""
        batch, self._batch = self._batch, None
        return batch
