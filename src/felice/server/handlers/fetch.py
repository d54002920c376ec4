"""Fetch (key 1): record batches from some offset on.

The response is sent at once if there are `min_bytes` of records, if a partition has an error, or if the session has no
partitions. Otherwise it waits for `min_bytes`, at most for `max_wait_ms`; this is also true of an incremental request
that names no partition. The first partition with records returns at least one whole batch, however small the limits
are (KIP-74); later partitions share the rest of `max_bytes`.

A follower (`replica_state`) reads to the end of the log, from the leader only. The offset that it requests tells the
leader what the follower has. A consumer of version 11 or later may read from any replica; with
`replica.selector.class` it is redirected to a replica in its rack (KIP-392).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
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
from felice.replication.fetched import FetchedRecords
from felice.replication.partition import Partition
from felice.replication.selector import NO_PREFERENCE, same_rack_replica
from felice.replication.throttle import is_throttled
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.fetch_sessions import FetchedPartition, FetchPlan, Served, TopicRef
from felice.server.pace import MAX_ITEMS_WITHOUT_PAUSE, paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_READ_COMMITTED = 1
# Errors after which Kafka's row has no list of aborted transactions.
_WITHOUT_PARTITION = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
# Kafka does not count fetches with these errors as failed, either.
_NOT_COUNTED = (
    *_WITHOUT_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)
_NOT_READ = PartitionData(records=b"")
_ANY_REPLICA_FROM, _LEADER_IN_ROW_FROM, _ENDPOINTS_FROM = 11, 12, 16


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    """Reads at once, and returns an awaitable if the request must wait for more bytes."""
    services = context.services
    try:
        plan = services.fetch_sessions.open(request, context.version, context.now_ms)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(request, plan, context)
    if fetch.is_long:
        return fetch.note_and_wait()
    if fetch.read() or request.max_wait_ms <= 0 or services.lifecycle.is_stopping:
        return fetch.response()
    return fetch.wait()


class _Fetch:
    """One request. It reads its partitions once and, while it waits, reads each partition again that changes."""

    def __init__(self, request: FetchRequest, plan: FetchPlan, context: RequestContext) -> None:
        self._request = request
        self._plan = plan
        self._context = context
        # The partitions to read, in service order: those of the request, or the active ones of its session.
        self._rows = dict.fromkeys(plan.partitions, _NOT_READ)
        self._served: list[Served] = []
        # Errors found before reading.
        self._refused: dict[FetchedPartition, ApiError] = {}
        # Whether the client may read each topic; decided when its first partition is read.
        self._may_read: dict[TopicRef, bool] = {}
        self._has_access = context.services.access.is_enabled
        self._size_bytes = 0
        state = request.replica_state
        self._replica_id = state.replica_id if state else request.replica_id
        # Whether the request comes from another broker, which replicates, and not from a consumer.
        self.is_from_follower = self._replica_id >= 0
        self._replica_epoch = state.replica_epoch if state else -1
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._max_bytes = min(request.max_bytes, context.services.config.fetch_max_bytes)
        if context.services.quotas.are_set and not self.is_from_follower:
            allowed = context.services.quotas.max_fetch_bytes(context.principal.name, context.client_id or "")
            self._max_bytes = min(self._max_bytes, allowed)

        self._is_denied_follower = self.is_from_follower and not context.access.allows(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        if self._is_denied_follower:
            self._wake_all()
        elif self.is_from_follower:
            self._wake_after_registration()
        # Whether the partitions must be read with pauses.
        self.is_long = len(self._rows) > MAX_ITEMS_WITHOUT_PAUSE

    def read(self) -> bool:
        """Reads every partition. Returns whether the response can be sent now."""
        if self.is_from_follower:
            for asked in self._to_note():
                self._take_note(asked)
        return self._read_again(self._rows)

    async def note_and_wait(self) -> FetchResponse:
        """Like `read` and `wait`, but serves other connections meanwhile."""
        check_session = self._context.services.image_follower.check_session
        async for asked in paced(self._to_note(), self._context.services.env.clock):
            # The process may have been suspended meanwhile, and another broker may lead the partition now.
            check_session()
            self._take_note(asked)
        return await self.wait()

    def _refuse_denied(self, topic: TopicRef) -> None:
        """Raises `ApiError` unless the client may read the topic. Checked at every request of a session.

        It is checked when a partition is read: while this request waits, another may add partitions to the session.
        """
        may_read = self._may_read.get(topic)
        if may_read is None:
            name = self._name_of(topic)
            # An unknown id gets UNKNOWN_TOPIC_ID, which reveals nothing about a topic.
            is_unknown_id = not name and not isinstance(topic, str)
            may_read = not self._is_denied_follower and (
                self.is_from_follower
                or is_unknown_id
                or self._context.access.allows(Operation.READ, ResourceType.TOPIC, name)
            )
            self._may_read[topic] = may_read
        if not may_read:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _wake_all(self) -> None:
        """Reads all partitions of the session."""
        session = self._plan.session
        if session is not None:
            session.reading.wake_all()
            self._rows = dict.fromkeys(session.reading.active, _NOT_READ)

    def _wake_after_registration(self) -> None:
        """Reads all partitions of the session if the follower's registration changed: its fetches may count now."""
        session, services = self._plan.session, self._context.services
        known = services.image.brokers.get(self._replica_id)
        registration = self._replica_epoch, known.epoch if known is not None else None
        if session is not None and session.registration != registration:
            self._wake_all()
            session.registration = registration

    def _to_note(self) -> Collection[FetchedPartition]:
        """The partitions of which the follower's offsets count."""
        if not self.is_from_follower or self._is_denied_follower:
            return ()
        if self._plan.session is not None:
            # The follower had everything of its idle partitions at this fetch, too.
            now_ms = int(self._context.services.env.clock.monotonic() * 1000)
            self._plan.session.reading.liveness.last_fetch_ms = now_ms
        return self._rows

    def _take_note(self, asked: FetchedPartition) -> None:
        """Takes note of the follower's offset before any partition is read, so that the response has the high
        watermarks that the offsets raise.
        """
        try:
            self._find(asked).on_follower_fetch(
                self._replica_id,
                asked.fetch_offset,
                log_start_offset=asked.log_start_offset,
                broker_epoch=self._replica_epoch,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
            )
        except ApiError as error:
            # Reading would raise the same error, except for a broker that is no replica of the partition.
            self._refused[asked] = error

    def _read_again(self, partitions: Iterable[FetchedPartition]) -> bool:
        is_urgent = False
        for asked in partitions:
            is_urgent = self._read_partition(asked) or is_urgent
        return self._is_enough(is_urgent)

    async def _read_with_pauses(self, partitions: Collection[FetchedPartition]) -> bool:
        """Like `_read_again`, but serves other connections while it reads thousands of partitions."""
        if len(partitions) <= MAX_ITEMS_WITHOUT_PAUSE:
            return self._read_again(partitions)
        is_urgent = False
        async for asked in paced(partitions, self._context.services.env.clock):
            is_urgent = self._read_partition(asked) or is_urgent
        return self._is_enough(is_urgent)

    def _is_enough(self, is_urgent: bool) -> bool:
        return is_urgent or self._size_bytes >= self._request.min_bytes or self._plan.is_empty

    def _read_partition(self, asked: FetchedPartition) -> bool:
        """Reads a partition. Returns whether the response must be sent now, however few bytes it has."""
        self._size_bytes -= _size_of(self._rows.get(asked, _NOT_READ))
        try:
            row = self._row(asked, self._max_bytes - self._size_bytes, self._size_bytes == 0)
        except ApiError as error:
            row = self._refusal(asked, error)
        self._rows[asked] = row
        self._size_bytes += _size_of(row)
        return self._is_urgent(asked, row)

    def _is_urgent(self, asked: FetchedPartition, row: PartitionData) -> bool:
        if row.error_code != 0 or row.diverging_epoch is not None or row.preferred_read_replica != -1:
            return True
        if not self.is_from_follower or asked.sent_high_watermark < 0:
            return False
        # Consumers that read from the follower may be waiting for its high watermark.
        serves_consumers = self._context.services.config.replica_selector_class is not None
        return row.log_start_offset != asked.sent_log_start_offset or (
            serves_consumers and row.high_watermark != asked.sent_high_watermark
        )

    async def wait(self) -> FetchResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait_ms / 1000
        lifecycle = self._context.services.lifecycle
        alarm = _Alarm(loop)
        watched = self._watched(alarm)
        for partition, wake in watched:
            partition.on_advance.add(wake)
        session = self._plan.session
        if session is not None:
            session.reading.on_wake = alarm.wake
        # Partitions may have changed between the first read and the start of this task.
        changed: Collection[FetchedPartition] = list(
            self._rows if session is None else session.reading.active
        )
        try:
            while (
                not await self._read_with_pauses(changed)
                and loop.time() < deadline
                and not lifecycle.is_stopping
            ):
                changed = await alarm.wait_until(deadline)
                # One append may wake hundreds of requests.
                await self._context.services.wakeups.turn()
        finally:
            for partition, wake in watched:
                partition.on_advance.discard(wake)
            if session is not None and session.reading.on_wake == alarm.wake:
                session.reading.on_wake = None
        return self.response()

    def response(self) -> FetchResponse:
        topics: dict[TopicRef, FetchableTopicResponse] = {}
        self._served = list(self._rows.items())
        self._throttle()
        self._count_bytes()
        for asked, row in self._plan.reply(self._served):
            topic = topics.get(asked.topic)
            if topic is None:
                topic = topics[asked.topic] = _topic_row(asked.topic)
            topic.partitions.append(row)
        self._begin_idle()
        response = FetchResponse(session_id=self._plan.session_id, responses=list(topics.values()))
        if self._context.version >= _ENDPOINTS_FROM:
            response.node_endpoints = self._endpoints()
        return response

    def _begin_idle(self) -> None:
        """Stops reading partitions on which the follower has caught up, until they change."""
        session = self._plan.session
        if session is None or not self.is_from_follower:
            return
        for asked, row in self._served:
            if row.error_code or row.records or row.diverging_epoch is not None:
                continue
            partition = self._known(asked)
            if partition is None or not _is_current(row, asked, partition):
                continue  # it changed while others were read
            progress = partition.begin_idle(self._replica_id, asked.fetch_offset, session.reading.liveness)
            if progress is not None:
                session.reading.begin_idle(asked, progress, partition.on_advance)

    def _row(self, asked: FetchedPartition, left_bytes: int, min_one: bool) -> PartitionData:
        if self._has_access:
            self._refuse_denied(asked.topic)
        if asked in self._refused:
            raise self._refused[asked]
        partition = self._find(asked)
        max_bytes = max(0, min(asked.max_bytes, left_bytes))
        if self.is_from_follower and self._is_held_back(partition):
            max_bytes, min_one = 0, False
        found = partition.fetch(
            asked.fetch_offset,
            max_bytes,
            read_committed=self._read_committed,
            replica_id=self._replica_id,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            min_one=min_one,
            from_any_replica=self._context.version >= _ANY_REPLICA_FROM,
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
        elif self._request.rack_id and not self.is_from_follower:
            self._send_elsewhere(partition, asked.fetch_offset, row)
        return row

    def _send_elsewhere(self, partition: Partition, offset: int, row: PartitionData) -> None:
        services = self._context.services
        if services.config.replica_selector_class is None or partition.leader is None:
            return
        racks = {known.broker_id: known.rack for known in services.image.brokers.values()}
        preferred = same_rack_replica(partition.leader, racks, self._request.rack_id, offset)
        if preferred != NO_PREFERENCE:
            row.preferred_read_replica, row.records = preferred, b""

    def _is_throttled(self, partition: Partition) -> bool:
        replicas = partition.log.config.leader_replication_throttled_replicas
        return (
            bool(replicas)
            and self._replica_id not in partition.isr
            and is_throttled(replicas, partition.partition, self._context.services.broker_id)
        )

    def _is_held_back(self, partition: Partition) -> bool:
        services = self._context.services
        return self._is_throttled(partition) and services.replication_throttle.is_exceeded(
            services.env.clock.monotonic()
        )

    def _throttle(self) -> None:
        """Counts the bytes of throttled replicas against the replication throttle."""
        if not self.is_from_follower or not self._size_bytes:
            return
        services = self._context.services
        counted = 0
        for asked, row in self._served:
            size_bytes = _size_of(row)
            partition = self._known(asked) if size_bytes else None
            if partition is not None and self._is_throttled(partition):
                counted += size_bytes
        if counted:
            services.replication_throttle.record(
                counted, services.config.leader_replication_throttled_rate, services.env.clock.monotonic()
            )

    def _count_bytes(self) -> None:
        if not self._size_bytes:
            return
        partitions = self._context.services.partitions
        for asked, row in self._served:
            if row.records:
                self._count_partition(partitions.get(self._name_of(asked.topic), asked.partition), row)

    def _count_partition(self, partition: Partition | None, row: PartitionData) -> None:
        if partition is None:
            return  # deleted while the request waited
        if self.is_from_follower:
            partition.traffic.replication_bytes_out += _size_of(row)
        else:
            partition.traffic.bytes_out += _size_of(row)

    def _refusal(self, asked: FetchedPartition, error: ApiError) -> PartitionData:
        row = PartitionData(
            partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b""
        )
        if error.code not in _WITHOUT_PARTITION:
            row.aborted_transactions = None
        if error.code not in _NOT_COUNTED:
            partition = self._known(asked)
            if partition is not None:
                partition.traffic.failed_fetch_requests += 1
        if self._context.version >= _LEADER_IN_ROW_FROM and error.code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        ):
            known = self._context.services.image.partition(self._name_of(asked.topic), asked.partition)
            if known is not None:
                row.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return row

    def _find(self, asked: FetchedPartition) -> Partition:
        name = self._name_of(asked.topic)
        if not name and not isinstance(asked.topic, str):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._context.services.partitions.find(name, asked.partition)

    def _known(self, asked: FetchedPartition) -> Partition | None:
        return self._context.services.partitions.get(self._name_of(asked.topic), asked.partition)

    def _name_of(self, topic: TopicRef) -> str:
        if isinstance(topic, str):
            return topic
        return self._context.services.image.topic_names.get(topic, "")

    def _watched(self, alarm: _Alarm) -> list[tuple[Partition, Callable[[], None]]]:
        partitions = self._context.services.partitions
        watched: list[tuple[Partition, Callable[[], None]]] = []
        for asked in self._rows:
            partition = partitions.get(self._name_of(asked.topic), asked.partition)
            if partition is not None:
                watched.append((partition, partial(alarm.wake, asked)))
        return watched

    def _endpoints(self) -> list[NodeEndpoint]:
        brokers = self._context.services.image.brokers
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
    """Wakes one waiting coroutine when a partition changes, or at the deadline."""

    __slots__ = ("_changed", "_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._changed: dict[FetchedPartition, None] = {}

    def wake(self, asked: FetchedPartition) -> None:
        self._changed[asked] = None
        self._resume()

    def _resume(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait_until(self, deadline: float) -> list[FetchedPartition]:
        """Waits for changed partitions, and returns them; none at the deadline."""
        if not self._changed:
            self._future = self._loop.create_future()
            timer = self._loop.call_at(deadline, self._resume)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        changed, self._changed = self._changed, {}
        return list(changed)


def _is_current(row: PartitionData, asked: FetchedPartition, partition: Partition) -> bool:
    """Whether a follower that gets this row knows the high watermark and the log start of its partition."""
    return row.high_watermark == asked.fetch_offset and row.log_start_offset == partition.log.log_start_offset


def _size_of(row: PartitionData) -> int:
    return row.records.size_bytes if row.records else 0


def _topic_row(topic: TopicRef) -> FetchableTopicResponse:
    if isinstance(topic, UUID):
        return FetchableTopicResponse(topic_id=topic)
    return FetchableTopicResponse(topic=topic)


def _aborted(found: FetchedRecords) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in sorted(found.aborted or (), key=lambda aborted: aborted.first_offset)
    ]
