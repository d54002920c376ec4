"""The classes that a connector's author extends: a connector, which divides the work, and a task, which does it.

Connectors live in the worker; tasks run in Python workers of Spark, where their class is imported again. A connector or
task keeps no state in its module: a Python worker can run tasks of several connectors after each other.

Source: Kafka's package `org.apache.kafka.connect.source` and `.sink`, whose life cycles these classes have.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, ClassVar, Self

from felice.pipelines.connect.configuration.definitions import ConfigDefinitions, ConfigValue
from felice.pipelines.connect.connector.contexts import (
    ConnectorContext,
    Place,
    SinkTaskContext,
    SourceConnectorContext,
    SourceTaskContext,
    TopicPartition,
)
from felice.pipelines.connect.model.record import SinkRecord, SourceRecord

SOURCE, SINK = "source", "sink"
"""The kinds of connectors, as the REST API names them."""


class Connector:
    """Divides the work of a connector among tasks. Extend `SourceConnector` or `SinkConnector`."""

    kind: ClassVar[str]
    """`SOURCE` or `SINK`."""
    version: ClassVar[str]
    """The version that the list of plugins shows."""
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()
    """The connector's own options, and the rules between them."""
    java_class: ClassVar[str | None] = None
    """The class of Kafka's or another's connector whose configurations this connector takes."""
    lacking: ClassVar[tuple[str, ...]] = ()
    """The options of that connector that this one does not have: each is refused by its name."""

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> list[ConfigValue]:
        """Every own option's value with all that is wrong with it."""
        lacking = [
            ConfigValue(
                name, config[name], errors=(f"The option {name} is not supported by this connector.",)
            )
            for name in cls.lacking
            if name in config
        ]
        return [*cls.definitions.validate(config), *lacking]

    task: ClassVar[str]
    """The class of the tasks, as `module:class`: a task imports it, with the libraries that only tasks need."""

    @classmethod
    def task_class(cls) -> type[SourceTask] | type[SinkTask]:
        """The class of the tasks: that of `task`, unless it is extended."""
        found: type[SourceTask] | type[SinkTask] = resolve_name(cls.task)
        return found

    config: dict[str, str]
    """Set by `start`."""

    def start(self, config: Mapping[str, str]) -> None:
        """Begins: keeps the configuration. Extend it. Raises `ConnectError`: the connector is FAILED then."""
        self.config = dict(config)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The configurations of the tasks, at most so many."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends: stops what `start` began."""


class SourceConnector(Connector):
    """A connector that writes records of another system to topics."""

    kind: ClassVar = SOURCE
    context: SourceConnectorContext
    """Set before `start`."""

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Whether the connector can give exactly once with this configuration. None: its author did not say."""
        return None

    @classmethod
    def can_define_transaction_boundaries(cls, config: Mapping[str, str]) -> bool:
        """Whether tasks use `SourceTaskContext.transaction`."""
        return False

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[Any, Place | None]) -> bool:
        """Checks offsets that a user sets; keys are the texts of partitions as JSON. Raises `ConnectError` to refuse.

        Returns whether the connector checked them: False means that it has no opinion.
        """
        return False


class SinkConnector(Connector):
    """A connector that writes records of topics to another system."""

    kind: ClassVar = SINK
    context: ConnectorContext
    """Set before `start`."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """As many equal tasks as are allowed: they share the partitions."""
        return [self.config] * max_tasks

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Checks offsets that a user sets, and sets them in a target system that keeps them. None is a reset.

        Raises `ConnectError` to refuse. Returns whether the connector checked them.
        """
        return False


class OffsetlessSink(SinkConnector):
    """A sink whose target system keeps no offsets: a user may set the offsets to any values."""

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts every offset."""
        return True


class SourceTask:
    """Reads records of another system.

    Every method but `stop` is called by one thread. `stop` comes from another thread while `start` or `poll` may be
    waiting, and makes it return soon.
    """

    context: SourceTaskContext
    """Set before `start`."""
    stopping: threading.Event
    """Set when the task shall end. Wait for it instead of sleeping, in `start` too: `stopping.wait(seconds)`."""

    def __new__(cls, *arguments: object, **named: object) -> Self:
        """The event is there before `start`, and in a subclass with an `__init__` of its own."""
        task = super().__new__(cls)
        task.stopping = threading.Event()
        return task

    def start(self, config: Mapping[str, str]) -> None:
        """Begins at the offsets of `context`. Raises `ConnectError`: the task is FAILED then."""

    def poll(self) -> Sequence[SourceRecord] | None:
        """The next records. Waits for some, but returns None at times so that the task can be paused and stopped.

        Raises `RetriableError` for a failure that the next call may not meet, and any other error to fail the task.
        """
        raise NotImplementedError

    def commit_record(self, record: SourceRecord, topic: str | None, partition: int, offset: int) -> None:
        """Told once for each record of `poll` that is in its topic; a dropped record has no topic (None)."""

    def offsets_committed(self, offsets: Sequence[tuple[Place, Place]]) -> None:
        """Told which offsets were committed, the newest of each partition of the source.

        What was read before them need not be kept. Kafka Connect has no such call: there, a task counts the calls of
        `commit_record`.
        """

    def commit(self) -> None:
        """Told after offsets were committed. Records of the last `poll` may be on their way still."""

    def stop(self) -> None:
        """Makes `poll` return: sets `stopping`. Then it is not called again. Extend it for other waits."""
        self.stopping.set()

    def close(self) -> None:
        """Gives up connections and files, on the task's own thread, after the last `poll`."""


class SinkTask:
    """Writes records to another system. Every method is called by one thread."""

    context: SinkTaskContext
    """Set before `start`."""

    def start(self, config: Mapping[str, str]) -> None:
        """Begins. Raises `ConnectError`: the task is FAILED then."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions that the task reads from now on. A task that keeps offsets itself calls `context.seek` here.

        Raises `RetriableError` to be called again later; no record comes before.
        """

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Takes records, in the order of their offsets in each partition. They need not be written before `flush`.

        Raises `RetriableError` to get the same records again, and any other error to fail the task.
        """
        raise NotImplementedError

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Returns when all records before these offsets are written. An error makes the task read them again."""

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets that may be committed: by default those given, after `flush`."""
        self.flush(offsets)
        return offsets

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions that the task reads no more. Gives up what it holds for them."""

    def stop(self) -> None:
        """Ends, after `close`."""
