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
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SourceRecord
from felice.pipelines.connect.model.runs import SourceRun
from felice.pipelines.connect.storage.offset_records import key_text
from felice.pipelines.connect.storage.topic_clients import PARTITIONER
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion
from felice.pipelines.connect.task.dead_letters import DeadLetters
from felice.pipelines.connect.task.loop import LastStep, TaskLoop, log
from felice.pipelines.connect.task.new_topics import TopicCreation
from felice.pipelines.connect.task.sending import send
from felice.pipelines.connect.task.source_offsets import OffsetStore, Submitted, check_place
from felice.pipelines.connect.task.tolerance import Stage, Tolerance, Tolerated

_IDLE_S = 0.1
"""The wait after a `poll` that returned nothing at once, so that an impatient task does not keep a core busy."""
QUEUE_KIB = 65_536
"""The most that waits to be sent. Java's producer keeps 32 MiB by default; ours would keep 1 GiB."""
_AGAIN_S = 1.0
"""The wait after a `poll` that raised `RetriableError`."""
_MANY = 16
"""So many records of one poll are worth the making of columns."""
_LOOK_S = 1.0
"""The limit of the question whether a topic is there."""
_LONG_S = 1e6
"""No limit: nothing is given up, however long brokers are away."""

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
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(conversion, tolerance, control, dead_letters)
        self._task = task
        self._settings = settings
        self._offsets = offsets
        self._topics = topics
        self._submitted = Submitted()
        self._checked: Place | None = None
        """The partition that was checked last: sources mostly give one object with many records."""
        self._sent: dict[str, tuple[Place, Place]] = {}
        """The newest offsets of records that were sent; empty with `_tells_each`."""
        self._is_behind = False
        """Whether nothing more is sent until everything that was sent is in its topic."""
        self._uncommitted: dict[str, tuple[Place, Place]] = {}
        # A task that extends `commit_record` gets a call for each record, and a tolerated error belongs to one record.
        self._tells_each = (
            type(task).commit_record is not SourceTask.commit_record or tolerance.policy.tolerates_all
        )
        self._open_topics: set[str] = set()
        """Topics that were there when records were sent to them."""
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The producer, while the loop runs."""
        assert self._producer is not None
        return self._producer

    def _begin(self) -> None:
        self._task.context = _Context(self._settings.task_config, self._offsets)
        settings = {**self.producer_defaults, **self._settings.producer_config}
        if not self._tells_each:
            settings |= {"on_delivery": self._on_lost, "delivery.report.only.error": True}
        self._producer = Producer(settings)
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
        if self._is_behind:
            self._commit()
            self._raise_failure()
            return
        began_s, wait_s = self._control.now_s(), _IDLE_S
        try:
            records = self._task.poll()
        except RetriableError as error:
            log.warning("the source gives no records, it is asked again: %s", error)
            records, wait_s = None, _AGAIN_S
        if records:
            self._send(records)
            self._records += len(records)
        elif self._control.now_s() - began_s < wait_s:
            self._control.wait_s(wait_s)
        self.producer.poll(0)
        self._raise_failure()
        if self._is_commit_due:
            self._commit()

    # Records

    def _send(self, records: Sequence[SourceRecord]) -> None:
        if self._tells_each or len(records) < _MANY or not self._are_sent_as_columns(records):
            for record in records:
                self._send_one(record)

    def _are_sent_as_columns(self, records: Sequence[SourceRecord]) -> bool:
        """Sends records that are alike at once, which is faster. Returns False, and sends none, if they are not."""
        columns = self._conversion.of_sources(records)
        if columns is None or not self._is_there(columns.topic):
            return False
        done = [self._submit(record) for record in _newest(records)]
        self._tell_topic(columns.topic)
        try:
            self.producer.produce_arrow(columns.topic, columns.table, timeout=_LONG_S)
        except KafkaException as error:
            self._on_lost(error.error, None)
        self._raise_failure()
        for call in done:
            call()
        return True

    def _is_there(self, topic: str) -> bool:
        """Whether a topic is there. Columns for another one would wait for it, and the task could not be stopped."""
        if self._topics is not None:
            self._topics.ensure(topic)
        if topic not in self._open_topics:
            try:
                found = self.producer.list_topics(topic, _LOOK_S).topics.get(topic)
            except KafkaException:
                return False
            if found is None or found.error is not None:
                return False
            self._open_topics.add(topic)
        return True

    def _send_one(self, record: SourceRecord) -> None:
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
        if not self._tells_each:
            self._tell_topic(made.topic)
            done()

    def _submit(self, record: SourceRecord) -> Done:
        """Counts a record as on its way. Raises `ConnectError` for a place that offsets cannot have.

        With `_tells_each` call the result when the record is in its topic, or left out; else when it is sent.
        """
        self._check_places(record)
        if self._tells_each:
            return partial(self._submitted.acknowledged, self._submitted.submit(record))
        return partial(self._note, record)

    def _check_places(self, record: SourceRecord) -> None:
        if record.source_partition is not self._checked:
            check_place(record.source_partition, "partition")
            self._checked = record.source_partition
        check_place(record.source_offset, "offset")

    def _note(self, record: SourceRecord) -> None:
        """The record was sent: its offset may be committed when everything that was sent is in its topic."""
        self._sent[key_text(record.source_partition)] = (record.source_partition, record.source_offset)

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

    def _on_lost(self, error: KafkaError | None, message: Message | None) -> None:
        """Reports of a producer that reports only errors."""
        if error is not None:
            self._on_refusal(None, nothing, error)

    def _on_refusal(self, record: SourceRecord | None, done: Done, error: KafkaError) -> None:
        cause = KafkaException(error)
        if record is None or error.fatal() or not self._tolerance.policy.tolerates_all:
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
        if self._sent:
            self._is_behind = self.producer.flush(self._settings.commit_timeout_s) > 0
            self._take_sent()
        self._write_offsets()

    def _take_sent(self) -> None:
        """Nothing is on its way any more: what was sent is in its topics, unless the broker refused something."""
        if self._is_behind:
            log.warning(
                "%d records are not acknowledged yet; offsets are committed later", len(self.producer)
            )
        elif self._failure is None:
            self._uncommitted.update(self._sent)
            self._sent = {}

    def _write_offsets(self) -> None:
        self._uncommitted.update(self._submitted.take())
        if self._uncommitted:
            try:
                self._flush_dead_letters(self._settings.commit_timeout_s)
                offsets = list(self._uncommitted.values())
                self._offsets.write(offsets)
            except ConnectError as error:
                log.warning("Commit of offsets failed, they will be part of the next one: %s", error)
                return
            self._uncommitted = {}
            self._task.offsets_committed(offsets)
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
        for one in (self._topics, self._dead_letters):
            if one is not None:
                steps.append(one.close)
        return steps

    def _finish(self, *, failed: bool) -> None:
        """Commits what is in topics, also when the task failed: its records need not be read again."""
        left = self.producer.flush(self._settings.commit_timeout_s)
        if left:
            log.warning("%d records were not acknowledged; they are read again at the next start", left)
        self._is_behind = left > 0
        if self._sent:
            self._take_sent()
        self._write_offsets()


def _newest(records: Sequence[SourceRecord]) -> Iterable[SourceRecord]:
    """The last record of each partition of the source, in their order."""
    if isinstance(records, SourceRun):
        return [records.last]
    newest: dict[int, SourceRecord] = {}
    for record in records:
        key = id(record.source_partition)
        newest.pop(key, None)
        newest[key] = record
    return newest.values()


def nothing() -> None:
    """There is nothing to do for one record."""


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
