"""`TestDriver`: runs an App in this process, one record at a time, without brokers and without Spark."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from felice.pipelines.limits import TopicLimits
from felice.pipelines.streams.record import Headers, Record, RecordMetadata
from felice.pipelines.streams.stores import Store
from felice.pipelines.streams.task import (
    StreamsError,
    Task,
    TopicRecord,
    records_of,
    take_partition,
    with_event_time,
    without_partition,
)
from felice.pipelines.streams.topology import Described, TopicFormats, TopologyError
from felice.pipelines.streams.views import StoreView
from felice.records.kernels import murmur2

Waiting = tuple[TopicRecord, TopicFormats, RecordMetadata | None]
"""A record, the input for which it waits, and where it was read, if the caller says so."""


class TestDriver:
    """The tasks of an App, with topics in memory. `send` returns when the record and all its results are processed.

    With several `partitions`, each has its own tasks, and records are placed by their keys as Kafka places them.
    `limits` say what topics refuse; other topics have Kafka's defaults.
    """

    __test__ = False  # The name is the users'; pytest must not collect it.

    def __init__(
        self, app: Described, partitions: int = 1, *, limits: Mapping[str, TopicLimits] = MappingProxyType({})
    ) -> None:
        if partitions < 1:
            raise TopologyError(f"a TestDriver has {partitions} partitions, but must have at least 1")
        self._app, self._partitions, self._limits = app, partitions, limits
        self._tasks = [
            [
                Task(app.topology, part, self._limits_of, wall_clock_ms=lambda: self._wall_clock_ms)
                for part in app.topology.parts()
            ]
            for _ in range(partitions)
        ]
        self._formats = {formats.topic: formats for formats in app.topology.side_outputs}
        sources: dict[str, TopicFormats] = {}
        for part in app.topology.parts():
            self._formats |= {formats.topic: formats for formats in part.sinks}
            sources |= {formats.name: formats for formats in part.sources}
        self._sources = list(sources.values())
        self._by_topic: dict[str, list[TopicFormats]] = {}
        """The inputs of each topic, in the order in which they were made."""
        for formats in sorted(self._sources, key=lambda one: one.number):
            self._by_topic.setdefault(formats.topic, []).append(formats)
        self._dead_letters = {
            topic for one in (*self._sources, *self._formats.values()) for topic in one.dead_letters
        } | app.topology.late_letters()
        self._waiting: dict[str, deque[Waiting]] = {one.topic: deque() for one in self._sources}
        self._written: defaultdict[str, list[TopicRecord]] = defaultdict(list)
        self._offsets: Counter[tuple[str, str, int]] = Counter()
        """How many records of each partition were processed, by input, topic and partition."""
        self._wall_clock_ms = 0
        self._is_batch = False
        self.advance_wall_clock(0)

    def send(self, topic: str, key: Any, value: Any, timestamp: int = 0, headers: Headers = ()) -> None:
        """Write a record to an input topic and process it. Raises `TopologyError` for a topic that is not read.

        If several Streams and Tables read the topic, key and value are in the formats of the first one.
        """
        formats = self._inputs(topic)[0]
        self.send_bytes(topic, formats.key.encode(key), formats.value.encode(value), timestamp, headers)

    def send_bytes(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: Headers = (),
        *,
        read_at: RecordMetadata | None = None,
    ) -> None:
        """Write a record as it is, for instance one that is not in the topic's format. `read_at` is the partition and
        offset that functions are told; without it they are those of a topic with these records only.
        """
        inputs, record = self._inputs(topic), TopicRecord(topic, key, value, timestamp, headers)
        self._wait(record, inputs, read_at)
        self._run()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Process the records that are sent in this block as one batch, at its end."""
        self._is_batch = True
        try:
            yield
        except BaseException:
            for queue in self._waiting.values():
                queue.clear()
            raise
        finally:
            self._is_batch = False
        self._run()

    def advance_wall_clock(self, by_ms: int) -> None:
        """Let time pass, from 0 on, for processors with timers of the wall clock."""
        self._wall_clock_ms += by_ms
        self._begin_batch()
        for tasks in self._tasks:
            for task in tasks:
                self._take(task.advance_wall_clock(self._wall_clock_ms))
        self._finish_batch()

    def read(self, topic: str) -> list[Record]:
        """The records written to a topic since it was last read. Raises `TopologyError` for a topic that is never
        written.
        """
        if not self._may_write(topic):
            raise TopologyError(f"{self._app.name} writes no topic {topic!r}")
        formats = self._formats_of(topic)
        return [
            Record(*self._decoded(formats, record), record.timestamp, without_partition(record.headers))
            for record in self._written.pop(topic, [])
        ]

    def read_bytes(self, topic: str) -> list[TopicRecord]:
        """The records written to a topic since it was last read, as bytes."""
        return [one._replace(headers=without_partition(one.headers)) for one in self._written.pop(topic, [])]

    @property
    def skipped(self) -> int:
        """How many records were dropped because of `on_bad_record="skip"` or `on_error="skip"`."""
        return sum(task.skipped for tasks in self._tasks for task in tasks)

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """How many records each operator has left out, by the operator's store or name and by the reason: "late",
        "null" for a null key or value, or "time" for a result without a valid timestamp.
        """
        return dict(sum((task.dropped for tasks in self._tasks for task in tasks), Counter()))

    @property
    def state_rows(self) -> int:
        """How many rows all stores have."""
        return sum(len(store.rows) for store in self._stores())

    def _stores(self) -> Iterator[Store]:
        return (store for tasks in self._tasks for task in tasks for store in task.stores.values())

    def forget_written(self) -> None:
        """Forget the records that were written and not read."""
        self._written.clear()

    def table(self, name: str) -> Mapping[Any, Any]:
        """The rows of a store by key, as they are now."""
        return self.store(name).rows()

    def store(self, name: str) -> StoreView:
        """A store, to look up keys, ranges of keys and windows."""
        stores = [task.stores[name] for tasks in self._tasks for task in tasks if name in task.stores]
        if not stores:
            raise TopologyError(f"{self._app.name} has no store {name!r}")
        return StoreView(name, stores)

    def _limits_of(self, topic: str) -> TopicLimits:
        return self._limits.get(topic, TopicLimits())

    def _inputs(self, topic: str) -> list[TopicFormats]:
        inputs = self._inputs_of(topic)
        if not inputs or inputs[0].is_repartition:
            raise TopologyError(f"{self._app.name} reads no topic {topic!r}")
        return inputs

    def _may_write(self, topic: str) -> bool:
        chooses_topics = any(formats.topic_of is not None for formats in self._formats.values())
        return chooses_topics or topic in self._formats or topic in self._dead_letters

    def _formats_of(self, topic: str) -> TopicFormats | None:
        """None for a topic of dead letters, whose records are in no format."""
        if topic in self._dead_letters:
            return None
        chosen = [task.chosen_formats for tasks in self._tasks for task in tasks]
        return ChainMap(self._formats, *chosen).get(topic)

    def _decoded(self, formats: TopicFormats | None, record: TopicRecord) -> tuple[Any, Any]:
        if formats is None:
            return record.key, record.value
        return formats.key.decode(record.key), formats.value.decode(record.value)

    def _run(self) -> None:
        if self._is_batch:
            return
        self._begin_batch()
        self._finish_batch()

    def _begin_batch(self) -> None:
        for tasks in self._tasks:
            for task in tasks:
                task.begin_batch()

    def _finish_batch(self) -> None:
        self._process_waiting()
        # What a sub-topology sends at the end of its batch belongs to the batch of those behind it.
        for number in range(len(self._tasks[0])):
            for tasks in self._tasks:
                self._take(records_of(tasks[number].end_batch()))
            self._process_waiting()
        for store in self._stores():
            store.forget_changes()

    def _process_waiting(self) -> None:
        for waiting in iter(self._next, None):
            self._take(self._process(*waiting))

    def _take(self, records: Iterable[TopicRecord]) -> None:
        for sent in records:
            inputs = self._inputs_of(sent.topic)
            self._wait(sent, inputs)
            if not (inputs and inputs[0].is_repartition):
                self._written[sent.topic].append(sent)

    def _wait(
        self, record: TopicRecord, inputs: list[TopicFormats], read_at: RecordMetadata | None = None
    ) -> None:
        for formats in inputs:
            self._waiting[formats.topic].append((with_event_time(record, formats), formats, read_at))

    def _next(self) -> Waiting | None:
        """Take the next record: that of the topic whose first waiting record is the oldest. None if no record waits.

        A task of Kafka Streams chooses among its topics in this way. Copies go first: there, the rows are in a store
        that is changed at once.
        """
        ready = [queue for queue in self._waiting.values() if queue]
        ready = [queue for queue in ready if queue[0][1].is_copy] or ready
        return min(ready, key=lambda queue: queue[0][0].timestamp).popleft() if ready else None

    def _process(
        self, record: TopicRecord, formats: TopicFormats, read_at: RecordMetadata | None
    ) -> Iterator[TopicRecord]:
        is_everywhere = formats.is_global
        chosen, headers = take_partition(record.headers)
        record = record._replace(headers=headers)
        if is_everywhere:
            partition = 0
        elif chosen is None:
            partition = self._partition(record.key)
        else:
            partition = chosen % self._partitions
        place = formats.name, record.topic, partition
        offset = self._offsets[place]
        self._offsets[place] += 1
        for tasks in self._tasks if is_everywhere else [self._tasks[partition]]:
            for task in tasks:
                if formats.name in task.topics:
                    metadata = None
                    if not formats.is_repartition:
                        metadata = read_at or RecordMetadata(record.topic, partition, offset)
                    try:
                        yield from task.process(record._replace(topic=formats.name), metadata)
                    except StreamsError as error:
                        raise error.at(f"at {record.topic}-{partition}, offset {offset}") from error.__cause__

    def _inputs_of(self, topic: str) -> list[TopicFormats]:
        """The inputs that get the records of a topic."""
        return self._by_topic.get(topic) or [one for one in self._sources if one.reads(topic)][:1]

    def _partition(self, key: bytes | None) -> int:
        return 0 if key is None else murmur2(key) % self._partitions
