"""`AIOProducer` and `AIOConsumer`: coroutines with confluent_kafka's names and arguments.

They are built on this package's own `Producer` and `Consumer`, which run on the event loop: there is no thread pool,
and no buffer in front of the producer's queue. confluent_kafka's arguments for these have no effect, and a warning
says so if they are passed. Timeouts are in seconds; -1 waits without a limit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, TypeVar

from felice.client.aio.consumer import AsyncConsumer
from felice.client.aio.producer import AsyncProducer
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.group.requests import offsets_of
from felice.client.model import ClusterMetadata, ConsumerGroupMetadata, Message, TopicPartition
from felice.client.produce.values import Content, HeadersInput

T = TypeVar("T")

_log = logging.getLogger("felice.client")

RebalanceCallback = Callable[["AIOConsumer", list[TopicPartition]], object]


def _warn_without_effect(owner: str, **arguments: object) -> None:
    given = sorted(name for name, value in arguments.items() if value is not None)
    if given:
        _log.warning(
            "%s: no effect, there is no thread pool and no extra buffer: %s", owner, ", ".join(given)
        )


async def _within(work: Awaitable[T], timeout: float) -> T:
    """Return the result, or raise `KafkaException` with _TIMED_OUT after `timeout` seconds (-1: never)."""
    try:
        async with asyncio.timeout(timeout if timeout >= 0 else None):
            return await work
    except TimeoutError:
        raise failure(KafkaError._TIMED_OUT, f"no answer in {timeout} s") from None


class AIOProducer:
    """`producer = AIOProducer({"bootstrap.servers": ...})`, inside a coroutine. Close it, or use `async with`."""

    def __init__(
        self,
        producer_conf: Mapping[str, object],
        max_workers: int | None = None,
        executor: concurrent.futures.Executor | None = None,
        batch_size: int | None = None,
        buffer_timeout: float | None = None,
    ) -> None:
        _warn_without_effect(
            "AIOProducer",
            max_workers=max_workers,
            executor=executor,
            batch_size=batch_size,
            buffer_timeout=buffer_timeout,
        )
        self._producer = AsyncProducer(producer_conf)
        self._producer.start_now()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __len__(self) -> int:
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    async def produce(
        self,
        topic: str,
        value: Content = None,
        key: Content = None,
        *,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersInput = None,
    ) -> asyncio.Future[Message]:
        """Queue a record, waiting for room; the future returns the acknowledged message, or raises."""
        return await self._producer.send(topic, value, key, partition, timestamp, headers)

    async def poll(self, timeout: float = 0) -> int:
        """Yield to the loop; returns 0, because futures and callbacks complete without a poll."""
        await asyncio.sleep(0)
        return 0

    async def flush(self, timeout: float = -1) -> int:
        """Wait until every record has its result; returns the number of records left after `timeout`."""
        try:
            await _within(self._producer.flush(), timeout)
        except KafkaException as error:
            if error.code != KafkaError._TIMED_OUT:
                raise
        return len(self)

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop the records that wait, or are in flight; their futures raise _PURGE_QUEUE or _PURGE_INFLIGHT."""
        self._producer.purge(in_queue, in_flight)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the current brokers and topics (with `topic`: only that one)."""
        names = None if topic is None else [topic]
        found: ClusterMetadata = await _within(self._producer.metadata(names), timeout)
        return found

    async def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        return (await self.list_topics("", timeout)).cluster_id

    async def init_transactions(self, timeout: float = -1) -> None:
        """Get a producer id for this `transactional.id`, fencing its previous producer. Once, before all else."""
        await self._producer.init_transactions(timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records produced from now on belong to it."""
        await self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        positions: Sequence[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float = -1,
    ) -> None:
        """Commit these offsets for the consumer's group when the transaction commits."""
        await self._producer.send_offsets_to_transaction(positions, group_metadata, timeout)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Flush and commit. If the error says `txn_requires_abort`, abort the transaction."""
        await self._producer.commit_transaction(timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Drop the waiting records and abort."""
        await self._producer.abort_transaction(timeout)

    async def close(self) -> None:
        """Abort an open transaction, wait for the records in flight, and close the connections."""
        await self._producer.close()


class AIOConsumer:
    """`consumer = AIOConsumer({"group.id": ..., ...})`, inside a coroutine. Close it, or use `async with`."""

    def __init__(
        self,
        consumer_conf: Mapping[str, object],
        max_workers: int | None = None,
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        _warn_without_effect("AIOConsumer", max_workers=max_workers, executor=executor)
        self._consumer = AsyncConsumer(consumer_conf)
        self._consumer.start_now()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def _open(self) -> AsyncConsumer:
        if self._closed:
            raise RuntimeError("Consumer closed")
        return self._consumer

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message or error event; None if there is none within `timeout` seconds."""
        messages = await self.consume(1, timeout)
        return messages[0] if messages else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages`; fewer after `timeout`."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout < 0 else loop.time() + timeout
        messages: list[Message] = []
        while len(messages) < num_messages:
            left = None if deadline is None else max(0.0, deadline - loop.time())
            found = await self._open.consume(num_messages - len(messages), left)
            messages += found
            if not found and left is not None:
                break
        return messages

    async def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics. Callbacks get this consumer and the partitions; they may be coroutines."""
        await self._open.subscribe(
            topics, self._bound(on_assign), self._bound(on_revoke), self._bound(on_lost)
        )

    def _bound(self, callback: RebalanceCallback | None) -> Callable[[list[TopicPartition]], object] | None:
        return None if callback is None else lambda partitions: callback(self, partitions)

    async def unsubscribe(self) -> None:
        """Leave the group and end the subscription."""
        await self._open.unsubscribe()

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Consume exactly these partitions, each from its offset or from the group's committed offset."""
        self._open.assign(partitions)

    async def unassign(self) -> None:
        """Drop the assignment."""
        self._open.assign([])

    async def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._open.core.incremental_assign(partitions)

    async def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._open.core.incremental_unassign(partitions)

    async def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._open.assignment()

    async def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at this offset."""
        self._open.seek(partition)

    async def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`."""
        self._open.pause(partitions)

    async def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._open.resume(partitions)

    async def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last delivered message; OFFSET_INVALID before the first."""
        return self._open.core.position(partitions)

    async def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the message's offset + 1, these offsets, or the stored offsets.

        With `asynchronous` it returns None at once, and `on_commit` gets the result.
        """
        chosen = offsets_of(message, offsets)
        core = self._open.core
        if not asynchronous:
            return await core.commit(chosen)
        core.cluster.spawn(core.commit(chosen)).add_done_callback(_outcome_is_reported)
        return None

    async def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit; needs `enable.auto.offset.store` off."""
        self._open.core.store_offsets(offsets_of(message, offsets) or {})

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; OFFSET_INVALID for a partition without one."""
        return await self._open.core.committed(partitions, self._limit_s(timeout))

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return log start offset and high watermark; with `cached`, those of the last fetch."""
        core = self._open.core
        if cached:
            return core.cached_watermarks(partition)
        return await core.watermarks(partition, self._limit_s(timeout))

    async def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return for each partition the first offset at or after the time (in ms) given as its offset."""
        return await self._open.core.offsets_for_times(partitions, self._limit_s(timeout))

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the current brokers and topics (with `topic`: only that one)."""
        names = None if topic is None else [topic]
        found: ClusterMetadata = await _within(self._open.metadata(names), timeout)
        return found

    async def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        found: ClusterMetadata = await _within(self._open.metadata([]), timeout)
        return found.cluster_id

    async def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the argument for `AIOProducer.send_offsets_to_transaction`."""
        return self._open.consumer_group_metadata()

    def _limit_s(self, timeout: float) -> float:
        return timeout if timeout >= 0 else self._open.core.cluster.timeout_s

    async def close(self) -> None:
        """Commit (if commits are automatic), revoke the partitions, and leave the group."""
        if not self._closed:
            self._closed = True
            await self._consumer.close()


def _outcome_is_reported(task: asyncio.Task[object]) -> None:
    """Retrieve the exception, so that asyncio does not log it: the core passed the result to `on_commit`."""
    if not task.cancelled():
        task.exception()
