"""`AIOProducer` and `AIOConsumer`: coroutines with confluent_kafka's names and arguments.

They are built on this package's own `Producer` and `Consumer`, which run on the event loop: there is no thread pool,
and no buffer in front of the producer's queue. confluent_kafka's arguments for these have no effect, and a warning
says so if they are passed. Timeouts are in seconds. In `poll`, `consume` and `flush`, -1 waits without a limit; in
other calls it means `request.timeout.ms`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from felice.client.aio.consumer import AsyncConsumer
from felice.client.aio.producer import AsyncProducer
from felice.client.arguments import expect, takes_lists
from felice.client.error import KafkaError
from felice.client.group.requests import offsets_of, stored_offsets
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


@takes_lists
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
        self._producer.check_started()
        await asyncio.sleep(0)
        return 0

    async def flush(self, timeout: float = -1) -> int:
        """Wait until every record has its result; returns the number of records left after `timeout`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout if timeout >= 0 else None):
                await self._producer.flush()
        return len(self)

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop the records that wait, or are in flight; their futures raise _PURGE_QUEUE or _PURGE_INFLIGHT."""
        self._producer.purge(in_queue, in_flight)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the current brokers and topics (with `topic`: only that one)."""
        names = None if topic is None else [topic]
        return await self._producer.metadata(names, timeout)

    async def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        return (await self._producer.metadata([], timeout, KafkaError._TIMED_OUT)).cluster_id

    async def init_transactions(self, timeout: float = -1) -> None:
        """Get a producer id for this `transactional.id`, fencing its previous producer. Once, before all else."""
        await self._producer.init_transactions(timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records produced from now on belong to it."""
        await self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
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


@takes_lists
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
        """Return up to `num_messages`; fewer after `timeout`. If the call is cancelled, the next call returns them."""
        return await self._open.consume_all(num_messages, None if timeout < 0 else timeout)

    async def subscribe(
        self,
        topics: list[str],
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

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Consume exactly these partitions, each from its offset or from the group's committed offset."""
        self._open.assign(partitions)

    async def unassign(self) -> None:
        """Drop the assignment. With automatic commits, what was handed out is committed."""
        self._open.assign([])

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._open.core.incremental_assign(partitions)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._open.core.incremental_unassign(partitions)

    async def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._open.assignment()

    async def seek(self, partition: TopicPartition) -> None:
        """Continue an assigned partition at this offset."""
        self._open.seek(partition)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`."""
        self._open.pause(partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._open.resume(partitions)

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last delivered message; OFFSET_INVALID before the first."""
        return self._open.core.position(partitions)

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the message's offset + 1, these offsets, or the stored offsets.

        With `asynchronous` it returns None at once, and `on_commit` gets the result; `close` waits for it.
        """
        chosen = offsets_of(message, offsets)
        core = self._open.core
        if not asynchronous:
            return await core.commit(chosen)
        core.check_group("committing")
        core.commit_later(chosen)
        return None

    async def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit; needs `enable.auto.offset.store` off."""
        self._open.core.store_offsets(stored_offsets(message, offsets))

    async def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets; OFFSET_INVALID for a partition without one."""
        return await self._open.core.committed(partitions, timeout)

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return log start offset and high watermark; with `cached`, those of the last fetch."""
        core = self._open.core
        expect("partition", partition, TopicPartition)
        if cached:
            return core.cached_watermarks(partition)
        return await core.watermarks(partition, timeout)

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return for each partition the first offset at or after the time (in ms) given as its offset."""
        return await self._open.core.offsets_for_times(partitions, timeout)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the current brokers and topics (with `topic`: only that one)."""
        names = None if topic is None else [topic]
        return await self._open.metadata(names, timeout)

    async def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        return (await self._open.metadata([], timeout, KafkaError._TIMED_OUT)).cluster_id

    async def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the argument for `AIOProducer.send_offsets_to_transaction`."""
        return self._open.consumer_group_metadata()

    async def close(self) -> None:
        """Commit (if commits are automatic), revoke the partitions, and leave the group."""
        if not self._closed:
            self._closed = True
            await self._consumer.close()
