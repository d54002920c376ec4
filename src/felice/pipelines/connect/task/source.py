"""The loop of a source task: poll records, write them to their topics, commit the source's offsets.

Keeps true:  an offset is committed only after its record, and every record of the same partition of the source before
             it, is in its topic, was dropped by a transformation, or was set aside.
             A record that could not be written ends the task, unless errors are tolerated.
Source:      Kafka Connect's `WorkerSourceTask` and `SubmittedRecords`. Other than there, the offsets of dropped records
             are committed too, so that a source whose last records are all dropped does not read them after each start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Message
from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import SourceTask
from felice.pipelines.connect.connector.contexts import Place, TransactionContext
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion, Produced
from felice.pipelines.connect.task.ending import run_all
from felice.pipelines.connect.task.new_topics import TopicCreation
from felice.pipelines.connect.task.source_offsets import OffsetReader, OffsetStore, Submitted
from felice.pipelines.connect.task.tolerance import Failure, Stage, Tolerance, Tolerated

_log = logging.getLogger("felice.connect.task")

_IDLE_S = 0.1
"""The wait after a `poll` that returned nothing at once, so that an impatient task does not keep a core busy."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the loop needs of the configurations of connector and worker."""

    task_config: Mapping[str, str]
    producer_config: Mapping[str, object]
    commit_interval_s: float = 60.0
    commit_timeout_s: float = 5.0


class SourceLoop:
    """Runs one source task. `run` returns when the task was stopped, and raises what makes it fail."""

    # As Kafka Connect's: no record is given up, and their order is kept.
    producer_defaults: ClassVar[Mapping[str, object]] = {
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": 2_147_483_647,
    }

    def __init__(
        self,
        task: SourceTask,
        settings: SourceSettings,
        conversion: Conversion,
        tolerance: Tolerance,
        control: Control,
        offsets: OffsetStore,
        topics: TopicCreation | None = None,
    ) -> None:
        self._task = task
        self._settings = settings
        self._conversion = conversion
        self._tolerance = tolerance
        self._control = control
        self._offsets = offsets
        self._topics = topics
        self._submitted = Submitted()
        self._uncommitted: dict[str, tuple[Place, Place]] = {}
        self._producer: Producer | None = None
        self._failure: BaseException | None = None
        self._commit_at_s = 0.0

    @property
    def producer(self) -> Producer:
        """The producer, while the loop runs."""
        assert self._producer is not None
        return self._producer

    def run(self) -> None:
        """Runs the task until it is stopped."""
        self._task.context = _Context(self._settings.task_config, self._offsets)
        self._producer = Producer({**self.producer_defaults, **self._settings.producer_config})
        try:
            self._prepare()
            self._control.call_at_stop(self._task.stop)
            self._task.start(dict(self._settings.task_config))
            while not self._control.is_stopping:
                self._turn()
        except BaseException:
            run_all(self._last_steps(failed=True), raises=False)
            raise
        run_all(self._last_steps(failed=False), raises=True)

    def _prepare(self) -> None:
        self._commit_at_s = self._control.now_s() + self._settings.commit_interval_s

    def _turn(self) -> None:
        if self._control.is_paused:
            self._commit()
            self._control.wait_while_paused()
            return
        began_s = self._control.now_s()
        try:
            records = self._tolerance.run(Stage.TASK_POLL, self._task, self._task.poll)
        except Tolerated:
            records = None
        if records:
            self._send(records)
        elif self._control.now_s() - began_s < _IDLE_S:
            self._control.wait_s(_IDLE_S)
        self.producer.poll(0)
        self._raise_failure()
        if self._control.now_s() >= self._commit_at_s:
            self._commit()

    # Records

    def _send(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            sent = self._submitted.submit(record)
            try:
                made = self._conversion.of_source(record)
            except Tolerated:
                made = None
            if made is None:
                self._submitted.acknowledged(sent)
                self._task.commit_record(record, None, -1, -1)
                continue
            if self._topics is not None:
                self._topics.ensure(made.topic)
            self._produce(made, partial(self._on_delivery, record, sent))

    def _produce(self, made: Produced, on_delivery: partial[None]) -> None:
        while True:
            try:
                self.producer.produce(
                    made.topic,
                    made.value,
                    made.key,
                    -1 if made.partition is None else made.partition,
                    on_delivery=on_delivery,
                    timestamp=made.timestamp or 0,
                    headers=list(made.headers) or None,
                )
                return
            except BufferError:
                self.producer.poll(0.1)
                self._raise_failure()
            except KafkaException as error:
                on_delivery(error.args[0], None)
                self._raise_failure()
                return

    def _on_delivery(
        self, record: SourceRecord, sent: object, error: KafkaError | None, message: Message | None
    ) -> None:
        if error is None:
            assert message is not None
            self._submitted.acknowledged(sent)  # type: ignore[arg-type]
            self._task.commit_record(record, message.topic(), message.partition() or 0, message.offset() or 0)
            return
        if error.fatal() or not self._tolerance.policy.tolerates_all:
            cause = KafkaException(error)
            if self._failure is None:
                self._failure = ConnectError(
                    f"Unrecoverable exception from producer send callback: {error.str()}"
                )
                self._failure.__cause__ = cause
            return
        self._tolerance.set_aside(
            Failure(
                Stage.KAFKA_PRODUCE, "felice.client.Producer", KafkaException(error), source_record=record
            )
        )
        self._submitted.acknowledged(sent)  # type: ignore[arg-type]
        self._task.commit_record(record, None, -1, -1)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Offsets

    def _commit(self) -> bool:
        """Commits what may be committed. Returns whether that succeeded; what failed is tried at the next call."""
        self._commit_at_s = self._control.now_s() + self._settings.commit_interval_s
        self.producer.poll(0)
        self._uncommitted.update(self._submitted.take())
        if self._uncommitted:
            try:
                self._offsets.write(list(self._uncommitted.values()))
            except ConnectError as error:
                _log.warning("Commit of offsets failed, they will be part of the next one: %s", error)
                return False
            self._uncommitted = {}
        self._task.commit()
        return True

    def _last_steps(self, *, failed: bool) -> list[Callable[[], object]]:
        return [
            lambda: self._finish(failed=failed),
            self._control.stop,  # calls the task's `stop`, if it was not called yet
            self._task.close,
            self._conversion.close,
            lambda: self.producer.close(0),
            *([] if self._topics is None else [self._topics.close]),
        ]

    def _finish(self, *, failed: bool) -> None:
        """Commits what is in topics, also when the task failed: its records need not be read again."""
        self.producer.flush(self._settings.commit_timeout_s)
        if left := self._submitted.count:
            _log.warning("%d records were not acknowledged; they are read again at the next start", left)
        self._commit()


class _Context:
    """What the task may ask (`SourceTaskContext`)."""

    def __init__(self, configs: Mapping[str, str], offsets: OffsetStore) -> None:
        self.configs = configs
        reader = OffsetReader(offsets)
        self.offset = reader.offset
        self.offsets = reader.offsets
        self.transaction: TransactionContext | None = None
