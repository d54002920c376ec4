"""Fetch (key 1): record batches from some offset on.

Answers at once when there is enough (`min_bytes`), an error to tell, or nothing to wait for;
else waits until there is enough or `max_wait_ms` is over, also when an incremental request
names no partition. The first partition that has anything gives at least one whole batch
however small the limits (KIP-74); later ones share what is left of `max_bytes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING
from uuid import UUID

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from felice.replication.partition import FetchedRecords, Partition
from felice.server.fetch_sessions import FetchedPartition, FetchPlan, Served, TopicRef

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_READ_COMMITTED = 1
_LEADER_IN_ROW_FROM, _ENDPOINTS_FROM = 12, 16


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    broker = context.broker
    try:
        plan = broker.fetch_sessions.open(request, context.version, context.now_ms)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(request, plan, context)
    if fetch.read() or request.max_wait_ms <= 0 or broker.is_stopping:
        return fetch.response()
    return fetch.wait()


class _Fetch:
    """One request, read once or, while it waits, again and again."""

    def __init__(self, request: FetchRequest, plan: FetchPlan, context: RequestContext) -> None:
        self._request = request
        self._plan = plan
        self._context = context
        self._served: list[Served] = []
        self._replica_id = request.replica_state.replica_id if request.replica_state else request.replica_id
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._max_bytes = min(request.max_bytes, context.broker.config.fetch_max_bytes)

    def read(self) -> bool:
        """Reads every partition; returns whether the answer may leave."""
        self._served = served = []
        size_bytes = 0
        has_fault = False
        for asked in self._plan.partitions:
            try:
                row = self._row(asked, self._max_bytes - size_bytes, size_bytes == 0)
            except ApiError as error:
                row = self._refusal(asked, error)
            if row.records:
                size_bytes += row.records.size_bytes
            has_fault = has_fault or row.error_code != 0 or row.diverging_epoch is not None
            served.append((asked, row))
        return has_fault or size_bytes >= self._request.min_bytes or not served

    async def wait(self) -> FetchResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait_ms / 1000
        alarm = _Alarm(loop)
        watched = self._watched()
        for partition in watched:
            partition.on_advance.add(alarm.ring)
        try:
            # Something may have come between the first read and this task's start.
            while not self.read() and loop.time() < deadline and not self._context.broker.is_stopping:
                await alarm.wait_until(deadline)
        finally:
            for partition in watched:
                partition.on_advance.discard(alarm.ring)
        return self.response()

    def response(self) -> FetchResponse:
        topics: dict[TopicRef, FetchableTopicResponse] = {}
        for asked, row in self._plan.reply(self._served):
            topic = topics.get(asked.topic)
            if topic is None:
                topic = topics[asked.topic] = _topic_row(asked.topic)
            topic.partitions.append(row)
        response = FetchResponse(session_id=self._plan.session_id, responses=list(topics.values()))
        if self._context.version >= _ENDPOINTS_FROM:
            response.node_endpoints = self._endpoints()
        return response

    def _row(self, asked: FetchedPartition, left_bytes: int, min_one: bool) -> PartitionData:
        found = self._find(asked).fetch(
            asked.fetch_offset,
            max(0, min(asked.max_bytes, left_bytes)),
            read_committed=self._read_committed,
            replica_id=self._replica_id,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            min_one=min_one,
        )
        row = PartitionData(
            partition_index=asked.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            records=found.records or b"",
        )
        row.aborted_transactions = _aborted(found) if self._read_committed else None
        if found.divergence is not None:
            row.diverging_epoch = EpochEndOffset(
                epoch=found.divergence.epoch, end_offset=found.divergence.end_offset
            )
        return row

    def _refusal(self, asked: FetchedPartition, error: ApiError) -> PartitionData:
        row = PartitionData(
            partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b""
        )
        if self._context.version >= _LEADER_IN_ROW_FROM and error.code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        ):
            known = self._context.broker.image.partition(self._name_of(asked.topic), asked.partition)
            if known is not None:
                row.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return row

    def _find(self, asked: FetchedPartition) -> Partition:
        name = self._name_of(asked.topic)
        if not name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._context.broker.partitions.find(name, asked.partition)

    def _name_of(self, topic: TopicRef) -> str:
        if isinstance(topic, str):
            return topic
        return self._context.broker.image.topic_names.get(topic, "")

    def _watched(self) -> list[Partition]:
        partitions = self._context.broker.partitions
        found = (
            partitions.get(self._name_of(asked.topic), asked.partition) for asked in self._plan.partitions
        )
        return [partition for partition in found if partition is not None]

    def _endpoints(self) -> list[NodeEndpoint]:
        brokers = self._context.broker.image.brokers
        leaders = {row.current_leader.leader_id for _, row in self._served if row.current_leader is not None}
        found = (brokers[leader] for leader in sorted(leaders) if leader in brokers)
        listener = self._context.listener_name
        return [
            NodeEndpoint(
                node_id=broker.broker_id,
                host=broker.endpoints[listener].host,
                port=broker.endpoints[listener].port,
                rack=broker.rack,
            )
            for broker in found
            if listener in broker.endpoints
        ]


class _Alarm:
    """Wakes one waiting coroutine, by a call or by the clock."""

    __slots__ = ("_future", "_loop", "_rang")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._rang = False

    def ring(self) -> None:
        self._rang = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait_until(self, deadline: float) -> None:
        if not self._rang:
            self._future = self._loop.create_future()
            timer = self._loop.call_at(deadline, self.ring)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        self._rang = False


def _topic_row(topic: TopicRef) -> FetchableTopicResponse:
    if isinstance(topic, UUID):
        return FetchableTopicResponse(topic_id=topic)
    return FetchableTopicResponse(topic=topic)


def _aborted(found: FetchedRecords) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in sorted(found.aborted or (), key=lambda aborted: aborted.first_offset)
    ]
