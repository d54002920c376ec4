"""The shards of one internal topic on this broker: which of them are here, loaded or loading, and how to reach them.

Keeps true:  a shard is here exactly while this broker leads its partition, and only in that leader epoch.
             A key always belongs to the same shard: Java's string hash modulo the number of partitions.
             One log is read at a time, in chunks: a broker that becomes leader of many continues to serve meanwhile.
Group and transaction coordinators share it; each brings its shards, its codec and its topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar, cast

from felice.coordinator.hosted_shard import HostedShard
from felice.coordinator.java_hash import partition_for
from felice.coordinator.shard import Instant, Outcome, RecordCodec, Shard, Waiter
from felice.env import Clock
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.partition import Partition

R = TypeVar("R")
A = TypeVar("A")
S = TypeVar("S", bound=Shard[Any])

_log = logging.getLogger("felice.coordinator")


class PartitionSource(Protocol):
    """The partitions that this broker holds."""

    def get(self, topic: str, partition: int) -> Partition | None:
        """The partition on this broker, or None."""
        ...


class PendingAnswer(Generic[A]):
    """The answer to a call, which often comes before the caller waits for it."""

    __slots__ = ("_future", "_is_given", "_response")

    def __init__(self) -> None:
        self._response: A | None = None
        self._is_given = False
        self._future: asyncio.Future[A] | None = None

    def answer(self, response: A) -> None:
        """Keeps the response, and wakes the request if it waits already."""
        self._response, self._is_given = response, True
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    async def given(self) -> A:
        """The response, when it has come."""
        if self._is_given:
            return cast("A", self._response)
        self._future = asyncio.get_running_loop().create_future()
        return await self._future


class CoordinatorRuntime(Generic[S, R]):
    """The shards of one internal topic. `S` is the state machine, `R` its records; see the module."""

    def __init__(
        self,
        *,
        topic: str,
        partition_count: Callable[[], int],
        new_shard: Callable[[], S],
        codec: RecordCodec[R],
        partitions: PartitionSource,
        clock: Clock,
        write_timeout_ms: int,
    ) -> None:
        self.topic = topic
        self._partition_count = partition_count
        self._new_shard = new_shard
        self._codec = codec
        self._partitions = partitions
        self._clock = clock
        self._write_timeout_ms = write_timeout_ms
        self._hosted: dict[int, HostedShard[S, R]] = {}
        self._turn_to_read = asyncio.Lock()
        self._is_running = False

    def start(self) -> None:
        """Loads the shards whose partitions this broker leads."""
        self._is_running = True
        self.follow_roles()

    def stop(self) -> None:
        """Closes every shard: each waiting request gets COORDINATOR_NOT_AVAILABLE."""
        self._is_running = False
        for partition in list(self._hosted):
            self._close(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def follow_roles(self) -> None:
        """Call when leaders may have changed: loads the shards that this broker leads now, closes the others."""
        if not self._is_running:
            return
        for partition in sorted({*range(self._partition_count()), *self._hosted}):
            # Every new image of the cluster leads here, so the many partitions without a role here must cost little.
            if partition in self._hosted or self._leads(partition):
                # The return value does not matter here.
                with contextlib.suppress(ApiError):
                    self._host(partition)

    def partition_for(self, key: str) -> int:
        """The partition of the topic that holds a key, by Java's string hash."""
        return partition_for(key, self._partition_count())

    # Calls

    def hosted(self, key: str) -> HostedShard[S, R]:
        """The loaded shard of a key; raises the `ApiError` for the client if there is none here."""
        return self._host(self.partition_for(key))

    def hosted_at(self, partition: int) -> HostedShard[S, R]:
        """The loaded shard of a partition, as `hosted`."""
        return self._host(partition)

    async def call(self, key: str, event: Callable[[S, Waiter[A], Instant], Outcome[R]]) -> A:
        """Lets the key's shard handle an event that answers its waiter; returns the answer."""
        hosted = self.hosted(key)
        answer: PendingAnswer[A] = PendingAnswer()
        hosted.run(lambda now: event(hosted.shard, answer, now))
        return await answer.given()

    def loaded(self) -> list[HostedShard[S, R]]:
        """The shards here that are loaded."""
        return [
            hosted for _, hosted in sorted(self._hosted.items()) if hosted.is_loaded and not hosted.is_closed
        ]

    def all_loaded(self) -> Iterator[HostedShard[S, R]]:
        """Every shard here; raises COORDINATOR_LOAD_IN_PROGRESS if one is not loaded yet."""
        self._check_running()
        self.follow_roles()
        for _, hosted in sorted(self._hosted.items()):
            if not hosted.is_loaded:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            yield hosted

    # Opening and closing shards

    def _check_running(self) -> None:
        if not self._is_running:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _leads(self, index: int) -> bool:
        partition = self._partitions.get(self.topic, index)
        return partition is not None and partition.is_leader

    def _host(self, index: int) -> HostedShard[S, R]:
        self._check_running()
        partition = self._partitions.get(self.topic, index)
        hosted = self._hosted.get(index)
        if partition is None or not partition.is_leader:
            self._close(index, ErrorCode.NOT_COORDINATOR)
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if (
            hosted is None
            or hosted.is_closed
            or hosted.partition is not partition
            or hosted.leader_epoch != partition.leader_epoch
        ):
            self._close(index, ErrorCode.NOT_COORDINATOR)
            hosted = self._open(index, partition)
        if not hosted.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    def _open(self, index: int, partition: Partition) -> HostedShard[S, R]:
        hosted: HostedShard[S, R] = HostedShard(
            self._new_shard(), self._codec, partition, self._clock, self._write_timeout_ms
        )
        self._hosted[index] = hosted
        if hosted.is_log_empty:
            hosted.finish_loading()
        else:
            hosted.begin_loading(self._turn_to_read, lambda: self._on_load_failed(index, hosted))
        return hosted

    def _on_load_failed(self, index: int, hosted: HostedShard[S, R]) -> None:
        """The next request starts loading again: the error may have been the disk's, and may be gone."""
        if self._hosted.get(index) is hosted:
            self._close(index, ErrorCode.NOT_COORDINATOR)

    def _close(self, index: int, error: ErrorCode) -> None:
        hosted = self._hosted.pop(index, None)
        if hosted is not None:
            hosted.close(error)
