"""What the server asks of brokers: topics and their partitions, new topics, records to read and to write."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from felice.client.admin.core import Admin
from felice.client.admin.model import NewTopic
from felice.client.aio import Consumer, Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Message, TopicPartition
from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.inference import TYPES, inferred_columns
from felice.pipelines.sql.programs import NeededTopic
from felice.pipelines.sql.rows import Columns, FormatDescription
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.streams.task import TopicRecord

_log = logging.getLogger("felice.sql")

TIMEOUT_S = 30.0
_RETRY_S = 0.3
T = TypeVar("T")
_PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
"""Errors of connections: brokers may be back in a moment."""
_DELIVERY = "message.timeout.ms"
_DELIVERIES = (_DELIVERY, "delivery.timeout.ms")
"""A client of the server waits for its row: no longer than for other answers, also if the topic is gone."""
LATEST, READ_COMMITTED = -1, 1
_BEGIN_AT_ONCE = 4
"""Consumers that connect at the same time: a hundred would keep the event loop for seconds."""
_READING: dict[str, object] = {
    "group.id": None,
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster."""

    name: str
    partitions: int
    replicas: int


def _note(error: KafkaError) -> None:
    """A consumer without a broker waits for one; without this function, its query would end with the error."""
    _log.warning("a consumer reaches no broker", extra={"reason": error.str()})


class Cluster:
    """The brokers. `client` has the settings of clients, `bootstrap.servers` among them."""

    def __init__(self, client: Mapping[str, object]) -> None:
        self._client = {name: value for name, value in client.items() if name not in _DELIVERIES}
        self._admin = Admin(self._client)
        self._producer = Producer(
            {**self._client, _DELIVERY: int(TIMEOUT_S * 1000), "enable.idempotence": True, "linger.ms": 0}
        )
        self._beginning = asyncio.Semaphore(_BEGIN_AT_ONCE)
        self.id = ""

    async def start(self) -> None:
        """Connect. Raises `KafkaException`."""
        await self._producer.start()
        self.id = (await self._admin.describe_cluster(TIMEOUT_S)).cluster_id or ""

    async def stop(self) -> None:
        """End all connections."""
        await self._producer.close()
        await self._admin.close()

    async def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """The topics of the cluster, or those of these names that exist. Raises `KafkaException`."""
        found = await self._admin.metadata(names, TIMEOUT_S)
        return {
            name: Topic(
                name,
                len(topic.partitions),
                max((len(one.replicas) for one in topic.partitions.values()), default=0),
            )
            for name, topic in found.topics.items()
            if topic.error is None
        }

    async def identity(self, topic: str) -> str:
        """What tells a topic from another one that had its name before. Raises `KafkaException`."""
        found = (await self._admin.metadata([topic], TIMEOUT_S)).topics.get(topic)
        if found is None or found.error is not None:
            raise _missing(topic)
        return str(found.topic_id)

    async def ends(self, topic: str) -> dict[int, int]:
        """The offset behind the last committed record, by partition. Raises `KafkaException`."""
        known = await self.topics([topic])
        if topic not in known:
            raise _missing(topic)
        places = {(topic, number): LATEST for number in range(known[topic].partitions)}
        found = await self._admin.list_offsets(places, READ_COMMITTED, TIMEOUT_S)
        ends = {}
        for (_, number), result in found.items():
            if isinstance(result, KafkaException):
                raise result
            ends[number] = result.offset
        return ends

    async def create(self, needed: NeededTopic) -> None:
        """Create a topic, unless it exists. Raises `KafkaException`."""
        new = NewTopic(needed.name, needed.partitions, needed.replicas, config=dict(needed.config))
        results = await self._admin.create_topics([new], TIMEOUT_S)
        _raise(results[needed.name], KafkaError.TOPIC_ALREADY_EXISTS)

    async def delete(self, topic: str) -> None:
        """Delete a topic, unless it is gone. Raises `KafkaException`."""
        results = await self._admin.delete_topics([topic], TIMEOUT_S)
        _raise(results[topic], KafkaError.UNKNOWN_TOPIC_OR_PART)

    async def write(self, record: TopicRecord) -> None:
        """Write a record, and wait until it is acknowledged. Raises `KafkaException`."""
        try:
            await self._producer.send_and_wait(
                record.topic,
                record.value,
                record.key,
                timestamp=record.timestamp or 0,
                headers=list(record.headers),
            )
        except KafkaException as error:
            is_late = error.error.code() == KafkaError._MSG_TIMED_OUT
            if is_late and record.topic not in await self.topics([record.topic]):
                raise _missing(record.topic) from None
            raise

    @asynccontextmanager
    async def reading(
        self, topics: Iterable[str], *, from_beginning: bool
    ) -> AsyncIterator[tuple[Consumer, dict[tuple[str, int], int]]]:
        """A consumer of all partitions of these topics, and the ends that they have now. Raises `KafkaException`."""
        topics = list(topics)
        known = await _patiently(lambda: self.topics(topics))
        for name in topics:
            if name not in known:
                raise _missing(name)
        consumer = Consumer({**self._client, **_READING, "error_cb": _note})
        async with AsyncExitStack() as running:
            ends, begins = dict[tuple[str, int], int](), list[TopicPartition]()
            async with self._beginning:
                await running.enter_async_context(consumer)
                for topic in known.values():
                    for number in range(topic.partitions):
                        place = TopicPartition(topic.name, number)
                        low, high = await _patiently(partial(consumer.watermarks, place, TIMEOUT_S))
                        ends[topic.name, number] = high
                        begins.append(TopicPartition(topic.name, number, low if from_beginning else high))
            consumer.assign(begins)
            yield consumer, ends


def _missing(topic: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic {topic}"))


def is_end(message: Message) -> bool:
    """Whether it is no record, but says that a partition was read to its end."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def is_record(message: Message) -> bool:
    """Whether it is a record. An error that passes by itself is none: the consumer goes on. Raises `KafkaException` for
    another one.
    """
    error = message.error()
    if error is None:
        return True
    if is_end(message) or error.retriable() or error.code() in _PASSING:
        return False
    raise KafkaException(error)


def record_of(message: Message) -> TopicRecord:
    """The record of a message. Raises `KafkaException` for an error event."""
    error, topic = message.error(), message.topic()
    if error is not None or topic is None:
        raise KafkaException(error)
    return TopicRecord(
        topic, message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ())
    )


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What brokers answer, who are asked again while they cannot be reached. Raises `KafkaException`."""
    ends_at = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return await ask()
        except KafkaException as error:
            if error.error.code() not in _PASSING or time.monotonic() > ends_at:
                raise
        await asyncio.sleep(_RETRY_S)


def _raise(error: object, harmless: int) -> None:
    if isinstance(error, KafkaException):
        if error.error.code() != harmless:
            raise error
    elif isinstance(error, KafkaError) and error.code() != harmless:
        raise KafkaException(error)


class KnownTopics:
    """The surroundings of a statement: topics as they were when it came, and the registry."""

    def __init__(self, topics: Mapping[str, Topic], registry: Registry | None, empty: Registry) -> None:
        self._topics, self._registry, self._empty = topics, registry, empty

    def partitions(self, topic: str, wanted: int | None) -> int | None:
        """Those of the topic."""
        found = self._topics.get(topic)
        return wanted if found is None else found.partitions

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns of a registered schema. Raises ValueError."""
        if given.name in TYPES and self._registry is None:
            raise ValueError(
                f"the format {given.name} needs a schema registry: start the server with --schema-registry"
            )
        return inferred_columns(given, self._registry or self._empty, topic, is_key=is_key)
