"""The loop of a sink task: read records of topics, hand them to the task, commit what it has written.

Keeps true:  an offset is committed only when the task said that all records before it are written (`pre_commit`), and
             the dead letters among them are in their topic.
             The task gets the records of a partition in order. After a failed `pre_commit` it gets again all that
             followed the last commit.
             Partitions that are taken away are committed and closed before another task can read them, unless they were
             lost.
Source:      Kafka Connect's `WorkerSinkTask`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from felice.client.confluent.consumer import Consumer
from felice.client.error import KafkaException
from felice.client.model import Message, TopicPartition, by_partition
from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition as Partition
from felice.pipelines.connect.model.errors import ConnectError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion
from felice.pipelines.connect.task.dead_letters import DeadLetters
from felice.pipelines.connect.task.loop import LastStep, TaskLoop, log
from felice.pipelines.connect.task.tolerance import Stage, Tolerance, Tolerated

_SLICE_S = 0.5
"""The longest wait for records, so that a pause or a stop is seen."""
_RETRY_S = 1.0
"""The wait before a `put` that raised `RetriableError` is tried again, unless the task set another."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What the loop needs of the configurations of connector and worker. `topics` may hold a pattern with ^."""

    topics: tuple[str, ...]
    task_config: Mapping[str, str]
    consumer_config: Mapping[str, object]
    commit_interval_s: float = 60.0
    commit_timeout_s: float = 5.0
    batch_records: int = 500


class SinkLoop(TaskLoop):
    """The loop of a sink task."""

    def __init__(
        self,
        task: SinkTask,
        settings: SinkSettings,
        conversion: Conversion,
        tolerance: Tolerance,
        control: Control,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(conversion, tolerance, control, dead_letters)
        self._task = task
        self._settings = settings
        self._consumer: Consumer | None = None
        self._context = _Context(self, settings.task_config)
        # Of the partitions that the task reads: the offsets after what was read, after what the task took, and where
        # to read on after a failed commit.
        self._read: dict[Partition, int] = {}
        self._taken: dict[Partition, int] = {}
        self._safe: dict[Partition, int] = {}
        self._batch: Sequence[SinkRecord] = ()
        """A tuple or a run: the task cannot change what it may get again."""
        self._retry_at_s: float | None = None
        self._unopened: list[Partition] = []
        """Partitions that the task could not open yet. It reads none until it could."""
        self._open_at_s = 0.0
        self._is_waiting = False

    @property
    def consumer(self) -> Consumer:
        """The consumer, while the loop runs."""
        assert self._consumer is not None
        return self._consumer

    @property
    def assignment(self) -> frozenset[Partition]:
        """The partitions that the task reads."""
        return frozenset(self._read)

    def _begin(self) -> None:
        self._task.context = self._context
        self._task.start(dict(self._settings.task_config))
        self._consumer = Consumer({**self._settings.consumer_config, **_DECIDED})
        self._commit_after(self._settings.commit_interval_s)
        self.consumer.subscribe(
            list(self._settings.topics),
            on_assign=lambda consumer, given: self._on_assign(_pairs(given)),
            on_revoke=lambda consumer, given: self._give_up(_pairs(given), commits=True),
            on_lost=lambda consumer, given: self._give_up(_pairs(given), commits=False),
        )

    def _turn(self) -> None:
        if self._unopened and self._control.now_s() >= self._open_at_s:
            self._open()
            self._apply_seeks()
        self._follow_pause()
        if self._context.wants_commit or self._is_commit_due:
            self._commit_regularly()
        messages = self._poll()
        self._raise_failure()
        self._convert(messages)
        if self._batch and (self._retry_at_s is None or self._control.now_s() >= self._retry_at_s):
            self._put()
        self._apply_seeks()

    def _lag(self) -> int | None:
        lag = 0
        for at, offset in self._read.items():
            marks = self.consumer.get_watermark_offsets(TopicPartition(*at), cached=True)
            if offset < 0 or marks is None or marks[1] < 0:
                return None
            lag += max(0, marks[1] - offset)
        return lag

    # Reading

    def _poll(self) -> list[Message]:
        until_s = self._commit_at_s if self._retry_at_s is None else min(self._commit_at_s, self._retry_at_s)
        if self._unopened:
            until_s = min(until_s, self._open_at_s)
        wait_s = min(_SLICE_S, max(0.0, until_s - self._control.now_s()))
        first = self.consumer.poll(wait_s)
        if first is None:
            return []
        rest = self.consumer.consume(self._settings.batch_records - 1, 0)
        found = []
        for message in (first, *rest):
            if (error := message.error()) is not None:
                if error.fatal() or not error.retriable():
                    raise KafkaException(error)
                log.warning("%s", error.str())
            else:
                found.append(message)
        return found

    def _convert(self, messages: Sequence[Message]) -> None:
        for at, run in by_partition(messages):
            if at not in self._read:
                continue  # taken away since it was read
            self._safe.setdefault(at, run[0].offset() or 0)
            self._tell_topic(at[0])
            made = self._conversion.of_messages(*at, run)
            records = self._one_by_one(run) if made is None else made
            self._read[at] = (run[-1].offset() or 0) + 1
            self._batch = (*self._batch, *records) if self._batch else records
        if not self._batch:
            self._taken.update(self._read)

    def _one_by_one(self, messages: Sequence[Message]) -> tuple[SinkRecord, ...]:
        records = []
        for message in messages:
            try:
                record = self._conversion.of_message(message)
            except Tolerated:
                continue
            if record is not None:
                records.append(record)
        return tuple(records)

    def _put(self) -> None:
        try:
            self._task.put(self._batch)
        except RetriableError as error:
            wait_ms = self._context.take_timeout_ms()
            wait_s = _RETRY_S if wait_ms is None else wait_ms / 1000
            log.warning(
                "the task could not take %d records, next try in %g s: %s", len(self._batch), wait_s, error
            )
            self._retry_at_s = self._control.now_s() + wait_s
            self._follow_pause()
            return
        self._records += len(self._batch)
        self._batch = ()
        self._retry_at_s = None
        self._taken.update(self._read)
        self._follow_pause()

    def _follow_pause(self) -> None:
        """Reads nothing while the task is paused or tries something again, and never what the task paused itself."""
        waits = self._control.is_paused or self._retry_at_s is not None or bool(self._unopened)
        if waits != self._is_waiting:
            self._is_waiting = waits
            if waits:
                self.consumer.pause(_of(self._read))
            else:
                self.consumer.resume(_of(self._read.keys() - self._context.paused))

    def _apply_seeks(self) -> None:
        for at, offset in self._context.take_seeks().items():
            if at in self._read:
                self.consumer.seek(TopicPartition(*at, offset))
                self._read[at] = self._taken[at] = self._safe[at] = offset
                self._forget_records_of({at})

    # Offsets

    def _commit_regularly(self) -> None:
        self._context.wants_commit = False
        self._commit_after(self._settings.commit_interval_s)
        offsets = {at: offset for at, offset in self._taken.items() if offset >= 0}
        try:
            written = self._written(offsets)
        except Exception:
            log.exception("Commit of offsets failed, the task reads on at the last commit")
            self._rewind()
            return
        self._commit(offsets, written)

    def _written(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int]:
        written = self._task.pre_commit(dict(offsets))
        # After the task, which may report records while it writes.
        self._flush_dead_letters(self._settings.commit_timeout_s)
        return written

    def _commit(self, offsets: Mapping[Partition, int], written: Mapping[Partition, int]) -> None:
        allowed = {}
        for at, offset in written.items():
            if at not in offsets or offset > offsets[at]:
                log.warning(
                    "the task asked to commit offset %d of %s-%d, which it has not taken", offset, *at
                )
            elif offset != self._safe.get(at):
                allowed[at] = offset
        if not allowed:
            return
        try:
            self.consumer.commit(
                offsets=[TopicPartition(*at, offset) for at, offset in allowed.items()], asynchronous=False
            )
        except KafkaException as error:
            log.warning("Commit of offsets failed, they will be part of the next one: %s", error)
            return
        self._safe.update(allowed)

    def _rewind(self) -> None:
        self._batch, self._retry_at_s = (), None
        for at, offset in self._safe.items():
            self.consumer.seek(TopicPartition(*at, offset))
            self._read[at] = self._taken[at] = offset
        self._follow_pause()

    # Rebalances, called by the consumer in this thread

    def _on_assign(self, partitions: list[Partition]) -> None:
        try:
            for at in partitions:
                self._read[at] = self._taken[at] = -1
            self._unopened += partitions
            if self._unopened:
                self._open()
            seeks = self._context.take_seeks()
            for at, offset in seeks.items():
                if at in self._read:
                    self._read[at] = self._taken[at] = self._safe[at] = offset
            self.consumer.assign([TopicPartition(*at, seeks.get(at, -1001)) for at in self._read])
            if self._is_waiting:
                self.consumer.pause(_of(partitions))
            self._follow_pause()
        except Exception as error:
            self._fail(error)

    def _open(self) -> None:
        """Lets the task open its new partitions. A failure that may pass is met again later."""
        try:
            self._task.open(self._unopened)
        except RetriableError as error:
            log.warning("the task cannot open its partitions, next try in %g s: %s", _RETRY_S, error)
            self._open_at_s = self._control.now_s() + _RETRY_S
        else:
            self._unopened = []

    def _give_up(self, partitions: list[Partition], *, commits: bool) -> None:
        mine = [at for at in partitions if at in self._read]
        if not mine:
            return
        try:
            self._close(mine, commits=commits)
        except Exception as error:
            self._fail(error)

    def _close(self, partitions: list[Partition], *, commits: bool) -> None:
        """Commits, lets the task give up the partitions, and forgets them."""
        if not partitions:
            return
        try:
            if commits:
                offsets = {at: self._taken[at] for at in partitions if self._taken[at] >= 0}
                try:
                    self._commit(offsets, self._written(offsets))
                except Exception:
                    log.exception("Commit of offsets failed while partitions were given up")
            self._task.close(partitions)
        finally:
            for at in partitions:
                for places in (self._read, self._taken, self._safe):
                    places.pop(at, None)
                self._context.paused.discard(at)
            self._unopened = [at for at in self._unopened if at not in partitions]
            self._forget_records_of(set(partitions))
            if not self._batch:
                self._retry_at_s = None

    def _forget_records_of(self, partitions: set[Partition]) -> None:
        self._batch = tuple(
            one for one in self._batch if (one.original_topic, one.original_partition) not in partitions
        )

    def _last_steps(self, *, failed: bool) -> list[LastStep]:
        steps: list[LastStep] = [self._task.stop, self._conversion.close]
        if self._consumer is not None:
            steps.insert(0, lambda: self._close(list(self._read), commits=True))
            steps.append(self._consumer.close)
        if self._dead_letters is not None:
            steps.append(self._dead_letters.close)
        return steps

    def set_aside(self, record: SinkRecord, error: BaseException) -> None:
        """Reports a record that the target system refused. Raises `ConnectError` if no error is tolerated."""
        self._tolerance.set_aside(Stage.TASK_PUT, self._task, error, message=record.original)


_DECIDED: dict[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}


class _Context:
    """What the task may ask (`SinkTaskContext`)."""

    def __init__(self, loop: SinkLoop, configs: Mapping[str, str]) -> None:
        self._loop = loop
        self.configs = configs
        self.paused: set[Partition] = set()
        self.wants_commit = False
        self._seeks: dict[Partition, int] = {}
        self._timeout_ms: int | None = None

    @property
    def assignment(self) -> frozenset[Partition]:
        return self._loop.assignment

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        self._seeks.update(offsets)

    def take_seeks(self) -> dict[Partition, int]:
        seeks, self._seeks = self._seeks, {}
        return seeks

    def set_timeout(self, milliseconds: int) -> None:
        self._timeout_ms = milliseconds

    def take_timeout_ms(self) -> int | None:
        timeout_ms, self._timeout_ms = self._timeout_ms, None
        return timeout_ms

    def pause(self, partitions: Sequence[Partition]) -> None:
        self._check(partitions, "pause")
        self.paused.update(partitions)
        self._loop.consumer.pause(_of(partitions))

    def resume(self, partitions: Sequence[Partition]) -> None:
        self._check(partitions, "resume")
        self.paused.difference_update(partitions)
        if not self._loop._is_waiting:
            self._loop.consumer.resume(_of(partitions))

    def request_commit(self) -> None:
        self.wants_commit = True

    def report(self, record: SinkRecord, error: BaseException) -> None:
        self._loop.set_aside(record, error)

    def _check(self, partitions: Sequence[Partition], call: str) -> None:
        for at in partitions:
            if at not in self.assignment:
                raise ConnectError(f"cannot {call} {at[0]}-{at[1]}: the task does not read this partition")


def _pairs(partitions: Sequence[TopicPartition]) -> list[Partition]:
    return [(one.topic, one.partition) for one in partitions]


def _of(partitions: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(*at) for at in partitions]
