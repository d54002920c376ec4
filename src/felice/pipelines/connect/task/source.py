"""The loop of a source task: poll records, write them to their topics, commit the source's offsets.

Keeps true:  an offset is committed only after its record, and every record of the same partition of the source before
             it, is in its topic, was dropped by a transformation, or was set aside.
             A record that could not be written ends the task, unless errors are tolerated.
Source:      Kafka Connect's `WorkerSourceTask` and `SubmittedRecords`. Other than there, the offsets of dropped records
             are committed too, so that a source whose last records are all dropped does not read them after each start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from felice.pipelines.connect.storage.topic_clients import PARTITIONER
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion
from felice.pipelines.connect.task.loop import LastStep, TaskLoop, log
from felice.pipelines.connect.task.new_topics import TopicCreation
from felice.pipelines.connect.task.sending import send
from felice.pipelines.connect.task.source_offsets import OffsetStore, Submitted, check_place
from felice.pipelines.connect.task.tolerance import Stage, Tolerance, Tolerated

_IDLE_S = 0.1
"""The wait after a `poll` that returned nothing at once, so that an impatient task does not keep a core busy."""
QUEUE_KIB = 65_536
"""The most that waits to be sent. Java's producer keeps 32 MiB by default; ours would keep 1 GiB."""

Done = Callable[[], object]
"""To be called when a record is in its topic, or left out."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the loop needs of the configurations of connector and worker."""

    task_config: Mapping[str, str]
    producer_config: Mapping[str, object]
    commit_interval_s: float = 60.0
    commit_timeout_s: float = 5.0


class SourceLoop(TaskLoop):
    """The loop of a source task."""

    # As Kafka Connect's: no record is given up, their order is kept, and keys go where Java's producers write them.
    producer_defaults: ClassVar[Mapping[str, object]] = {
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": 2_147_483_647,
        "partitioner": PARTITIONER,
        "queue.buffering.max.kbytes": QUEUE_KIB,
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
        super().__init__(conversion, tolerance, control)
        self._task = task
        self._settings = settings
        self._offsets = offsets
        self._topics = topics
        self._submitted = Submitted()
        self._checked: Place | None = None
        """The partition that was checked last: sources mostly give one object with many records."""
        self._uncommitted: dict[str, tuple[Place, Place]] = {}
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The producer, while the loop runs."""
        assert self._producer is not None
        return self._producer

    def _begin(self) -> None:
        self._task.context = _Context(self._settings.task_config, self._offsets)
        self._producer = Producer({**self.producer_defaults, **self._settings.producer_config})
        self._prepare()
        self._control.call_at_stop(self._task.stop)
        self._task.start(dict(self._settings.task_config))

    def _prepare(self) -> None:
        self._commit_after(self._settings.commit_interval_s)

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
        if self._is_commit_due:
            self._commit()

    # Records

    def _send(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            self._send_one(record)

    def _send_one(self, record: SourceRecord) -> None:
        if record.source_partition is not self._checked:
            check_place(record.source_partition, "partition")
            self._checked = record.source_partition
        check_place(record.source_offset, "offset")
        done = self._submit(record)
        try:
            made = self._conversion.of_source(record)
        except Tolerated:
            made = None
        if made is None:
            self._leave_out(record, done)
            return
        if self._topics is not None:
            self._topics.ensure(made.topic)
        send(
            self.producer,
            made.topic,
            partial(self._on_delivery, record, done),
            self._raise_failure,
            value=made.value,
            key=made.key,
            partition=-1 if made.partition is None else made.partition,
            timestamp=made.timestamp or 0,
            headers=list(made.headers) or None,
        )
        self._raise_failure()

    def _submit(self, record: SourceRecord) -> Done:
        """Counts a record as on its way. Call the result when it is in its topic, or left out."""
        return partial(self._submitted.acknowledged, self._submitted.submit(record))

    def _leave_out(self, record: SourceRecord, done: Done) -> None:
        done()
        self._task.commit_record(record, None, -1, -1)

    def _on_delivery(
        self, record: SourceRecord, done: Done, error: KafkaError | None, message: Message | None
    ) -> None:
        if error is not None:
            self._on_refusal(record, done, error)
            return
        assert message is not None
        done()
        self._tell_topic(message.topic() or "")
        self._task.commit_record(record, message.topic(), message.partition() or 0, message.offset() or 0)

    def _on_refusal(self, record: SourceRecord, done: Done, error: KafkaError) -> None:
        cause = KafkaException(error)
        if error.fatal() or not self._tolerance.policy.tolerates_all:
            failure = ConnectError(f"Unrecoverable exception from producer send callback: {error.str()}")
            failure.__cause__ = cause
            self._fail(failure)
            return
        self._tolerance.set_aside(Stage.KAFKA_PRODUCE, Producer, cause, source_record=record)
        self._leave_out(record, done)

    # Offsets

    def _commit(self) -> None:
        """Commits what may be committed. What fails is tried again at the next call."""
        self._commit_after(self._settings.commit_interval_s)
        self.producer.poll(0)
        self._uncommitted.update(self._submitted.take())
        if self._uncommitted:
            try:
                self._offsets.write(list(self._uncommitted.values()))
            except ConnectError as error:
                log.warning("Commit of offsets failed, they will be part of the next one: %s", error)
                return
            self._uncommitted = {}
        self._task.commit()

    def _last_steps(self, *, failed: bool) -> list[LastStep]:
        steps: list[LastStep] = [
            self._control.stop,  # calls the task's `stop`, if it was not called yet
            self._task.close,
            self._conversion.close,
        ]
        if self._producer is not None:
            steps.insert(0, lambda: self._finish(failed=failed))
            steps.append(lambda: self.producer.close(0))
        if self._topics is not None:
            steps.append(self._topics.close)
        return steps

    def _finish(self, *, failed: bool) -> None:
        """Commits what is in topics, also when the task failed: its records need not be read again."""
        self.producer.flush(self._settings.commit_timeout_s)
        if left := self._submitted.count:
            log.warning("%d records were not acknowledged; they are read again at the next start", left)
        self._commit()


class _Context:
    """What the task may ask (`SourceTaskContext`)."""

    def __init__(self, configs: Mapping[str, str], offsets: OffsetStore) -> None:
        self.configs = configs
        self._offsets = offsets
        self.transaction: TransactionContext | None = None

    def offset(self, partition: Place) -> Place | None:
        return self._offsets.read([partition])[0]

    def offsets(self, partitions: Iterable[Place]) -> list[Place | None]:
        return self._offsets.read(list(partitions))
