"""Makes the loop of a task from the options of its worker, its connector and itself.

Keeps true:  options are checked before a client is made, so a refused configuration leaves no connection behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from felice.client.admin import AdminClient
from felice.client.confluent.producer import Producer
from felice.pipelines.connect.configuration.connector import DEAD_LETTER_TOPIC, TOPICS, TOPICS_REGEX
from felice.pipelines.connect.configuration.validation import Configurations
from felice.pipelines.connect.configuration.worker import (
    BOOTSTRAP,
    EXACTLY_ONCE,
    FLUSH_INTERVAL,
    FLUSH_TIMEOUT,
    GROUP,
    OFFSETS_TOPIC,
    TASK_OPTIONS,
    TOPIC_CREATION,
    Client,
    client_config,
    poll_records,
)
from felice.pipelines.connect.connector.base import SinkTask, SourceTask
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.storage.topic_clients import PARTITIONER
from felice.pipelines.connect.task.assembly import Parts
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.dead_letters import DeadLetters
from felice.pipelines.connect.task.new_topics import TopicCreation, TopicGroup
from felice.pipelines.connect.task.sink import SinkLoop, SinkSettings
from felice.pipelines.connect.task.source import SourceLoop, SourceSettings
from felice.pipelines.connect.task.source_offsets import OffsetStore
from felice.pipelines.connect.task.source_transactions import Boundary, ExactlyOnceSourceLoop
from felice.pipelines.connect.task.tolerance import Tolerance

_ASSIGNORS = "partition.assignment.strategy"
_DEAD_LETTER_PRODUCER: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": PARTITIONER,
}


class TaskBuilder:
    """Makes the loops of the tasks of one connector on one worker."""

    def __init__(self, plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str]) -> None:
        """`worker` and `config` are the options of worker and connector. Raises `ConfigError`."""
        _, self.connector = Configurations(plugins, worker).connector(config)
        self._options = TASK_OPTIONS.parse(worker)
        self._worker = {**worker, BOOTSTRAP: self._options[BOOTSTRAP]}
        self._config = config
        self._parts = Parts(plugins, worker, config)
        self._values = self._parts.values

    @property
    def offsets_topic(self) -> str:
        """The topic of the connector's offsets: its own, or the worker's. Raises `ConfigError` if there is none."""
        own: str | None = self._values["offsets.storage.topic"]
        return own or self._needed(OFFSETS_TOPIC)

    def sink(self, task_id: TaskId, task: SinkTask, options: Mapping[str, str], control: Control) -> SinkLoop:
        """The loop of a sink task. `options` are the task's own, which its connector made."""
        tolerance = self._parts.tolerance(control)
        conversion = self._parts.conversion(tolerance)
        consumer = self._client(Client.CONSUMER, task_id)
        consumer.setdefault("group.id", f"connect-{task_id.connector}")
        consumer.setdefault("auto.offset.reset", "earliest")
        if "cooperative" in str(consumer.get(_ASSIGNORS, "")):
            raise ConfigError(
                f"{_ASSIGNORS}: a sink gives up all its partitions in a rebalance; leave the option out"
            )
        settings = SinkSettings(
            self._subscription(),
            options,
            consumer,
            self._options[FLUSH_INTERVAL] / 1000,
            self._options[FLUSH_TIMEOUT] / 1000,
            poll_records(self._worker, self._config),
        )
        letters = self._dead_letters(task_id, tolerance)
        return SinkLoop(task, settings, conversion, tolerance, control, letters)

    def source(
        self,
        task_id: TaskId,
        task: SourceTask,
        options: Mapping[str, str],
        control: Control,
        offsets: OffsetStore,
    ) -> SourceLoop:
        """The loop of a source task. Workers that support exactly once give it a loop with transactions."""
        tolerance = self._parts.tolerance(control)
        producer = self._client(Client.PRODUCER, task_id)
        exactly_once = self._options[EXACTLY_ONCE].lower() == "enabled"
        if exactly_once:
            producer["transactional.id"] = f"connect-{self._needed(GROUP)}-{task_id}"
        settings = SourceSettings(
            options, producer, self._options[FLUSH_INTERVAL] / 1000, self._options[FLUSH_TIMEOUT] / 1000
        )
        conversion = self._parts.conversion(tolerance)
        topics = self._topic_creation(task_id)
        letters = self._dead_letters(task_id, tolerance)
        if not exactly_once:
            return SourceLoop(task, settings, conversion, tolerance, control, offsets, topics, letters)
        interval_ms = self._values["transaction.boundary.interval.ms"] or self._options[FLUSH_INTERVAL]
        return ExactlyOnceSourceLoop(
            task,
            settings,
            conversion,
            tolerance,
            control,
            offsets,
            topics,
            letters,
            connector=task_id.connector,
            offsets_topic=self.offsets_topic,
            boundary=Boundary(self._values["transaction.boundary"].lower()),
            interval_s=interval_ms / 1000,
        )

    def _client(self, client: Client, task_id: TaskId, *, name: str | None = None) -> dict[str, object]:
        return client_config(self._worker, self._config, client, task_id, name=name)

    def _needed(self, option: str) -> str:
        found: str | None = self._options[option]
        if not found:
            raise ConfigError(f"the worker's option {option} is not set; its tasks need it")
        return found

    def _subscription(self) -> tuple[str, ...]:
        pattern: str = self._values[TOPICS_REGEX]
        return (f"^(?:{pattern})$",) if pattern else tuple(self._values[TOPICS])

    def _dead_letters(self, task_id: TaskId, tolerance: Tolerance) -> DeadLetters | None:
        """The dead-letter topic, to which `tolerance` reports from now on; None if there is none."""
        topic: str = self._values[DEAD_LETTER_TOPIC]
        if not topic:
            return None
        config = self._client(Client.PRODUCER, task_id, name="dlq-producer")
        factor: int = self._values["errors.deadletterqueue.topic.replication.factor"]
        creation = TopicCreation(
            AdminClient(self._client(Client.ADMIN, task_id)), [TopicGroup("dead letters", factor, 1)]
        )
        try:
            creation.ensure(topic)
        finally:
            creation.close()
        letters = DeadLetters(
            Producer({**_DEAD_LETTER_PRODUCER, **config}),
            topic,
            task_id.connector,
            task_id.number,
            adds_headers=self._values["errors.deadletterqueue.context.headers.enable"],
        )
        tolerance.report_to(letters)
        return letters

    def _topic_creation(self, task_id: TaskId) -> TopicCreation | None:
        groups = self._parts.topic_groups() if self._options[TOPIC_CREATION] else []
        return TopicCreation(AdminClient(self._client(Client.ADMIN, task_id)), groups) if groups else None
