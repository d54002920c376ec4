"""A compacted topic with any number of partitions, which many workers write and read: the topic of states.

Keeps true:  records of one key are applied in the order of the topic, those of a partition once each. `write` returns
             when its records are in the topic and were applied here.
How:         a consumer reads on a thread of its own, and hands batches to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import OFFSET_BEGINNING, Message, TopicPartition
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.journals import Apply
from felice.pipelines.connect.storage.json_records import Record
from felice.pipelines.connect.storage.topic_clients import READING, read_some, write_records, writing

_log = logging.getLogger("felice.connect.storage")

_LIST_S = 30.0


class SharedTopic:
    """See the module (`Journal`)."""

    def __init__(
        self,
        consumer: Mapping[str, object],
        producer: Mapping[str, object],
        topic: str,
        apply: Apply,
        timeout_s: float = 60.0,
    ) -> None:
        """`consumer` and `producer` are configurations. The topic must exist. `timeout_s` limits each write."""
        self._consumer_config = {**consumer, **READING}
        self._producer_config = writing(producer, timeout_s)
        self._topic = topic
        self._apply = apply
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._applied: dict[int, int] = {}
        self._progress = asyncio.Event()
        self._ends: set[int] = set()
        self._failure: ConnectError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None

    async def start(self, timeout_s: float) -> None:
        """As `Journal.start`."""
        self._thread = threading.Thread(target=self._read, name="felice-connect-states", daemon=True)
        self._thread.start()
        await self._until(
            lambda: bool(self._ends) and self._ends <= self._applied.keys(),
            timeout_s,
            "was not read to its end",
        )

    async def prepare(self) -> None:
        """As `Journal.prepare`: every worker writes states of its own."""

    async def write(self, records: Sequence[Record]) -> None:
        """As `Journal.write`."""
        if not records:
            return
        written = await asyncio.to_thread(self._write, list(records))
        for partition, offset in written.items():
            await self._until(
                lambda partition=partition, offset=offset: self._applied.get(partition, -1) > offset,  # type: ignore[misc]
                self._timeout_s,
                "was not read up to what was written",
            )

    async def catch_up(self) -> None:
        """As `Journal.catch_up`: states need no more than what has arrived."""

    async def stop(self) -> None:
        """As `Journal.stop`."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close, 0)

    async def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    if self._failure is not None:
                        raise ConnectError(str(self._failure))
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise ConnectError(f"the topic {self._topic} {what} in {timeout_s:g} s") from None

    # On threads

    def _write(self, records: list[Record]) -> dict[int, int]:
        """The last offset in each partition."""
        producer = self._producer = self._producer or Producer(self._producer_config)
        return write_records(producer, "status", self._topic, records, self._timeout_s)

    def _read(self) -> None:
        consumer = Consumer(self._consumer_config)
        try:
            found = consumer.list_topics(self._topic, _LIST_S).topics[self._topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._tell(self._on_partitions, set(found.partitions))
            consumer.assign(
                [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in found.partitions]
            )
            while not self._stopping.is_set():
                if messages := read_some(consumer):
                    self._tell(self._on_messages, messages)
        except KafkaException as error:
            self._tell(self._on_failure, error)
        finally:
            consumer.close()

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(callback, *arguments)

    # On the event loop

    def _on_partitions(self, numbers: set[int]) -> None:
        self._ends = numbers
        self._progress.set()

    def _on_messages(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error, partition = message.error(), message.partition() or 0
            if error is None:
                offset = message.offset() or 0
                self._apply(message.key(), message.value(), offset)
                self._applied[partition] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._applied.setdefault(partition, 0)
            else:
                _log.warning("the topic %s: %s", self._topic, error.str())
        self._progress.set()

    def _on_failure(self, error: KafkaException) -> None:
        self._failure = ConnectError(f"the topic {self._topic} cannot be read: {error.error.str()}")
        _log.error("%s", self._failure)
        self._progress.set()
