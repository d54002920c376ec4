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
from collections.abc import Collection
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
from felice.server.fetching.fetch_alarm import FetchAlarm
from felice.server.fetching.fetch_sessions import FetchedPartition, FetchPlan, Served, TopicRef
from felice.server.flow.pace import MAX_ITEMS_WITHOUT_PAUSE, for_each
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access

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

guard = in_handler  # READ of each topic; CLUSTER_ACTION for followers


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Reads at once, and waits if the request needs more bytes."""
    services = context.services
    try:
        plan = services.fetching.sessions.open(request, context.version, context.now_ms)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(request, plan, context)
    if fetch.is_long:
        return await fetch.read_with_pauses()
    fetch.read()
    if fetch.must_be_answered:
        return fetch.response()
    return await fetch.wait()


class _Fetch:
    """One request. It reads its partitions once and, while it waits, reads each partition again that changes."""

    def __init__(self, request: FetchRequest, plan: FetchPlan, context: RequestContext) -> None:
        self._request = request
        self._plan = plan
        self._context = context
        # The partitions to read, in service order: those of the request, or the active ones of its session.
        self._rows = dict.fromkeys(plan.partitions, _NOT_READ)
        # Each partition that was read, and how often it had changed then.
        self._read_at: dict[FetchedPartition, tuple[Partition, int]] = {}
        # Whether the response must be sent, however few bytes it has.
        self._is_urgent = False
        # Errors found before reading.
        self._refused: dict[FetchedPartition, ApiError] = {}
        # Whether the client may read each topic; decided when its first partition is read.
        self._may_read: dict[TopicRef, bool] = {}
        # What the client may do, if clients need permission. One object for the request: it bounds the logged refusals.
        self._access = context.access if context.services.security.access.is_enabled else None
        self._size_bytes = 0
        # The response.
        self._topics: dict[TopicRef, FetchableTopicResponse] = {}
        self._named_leaders: set[int] = set()
        self._throttled_bytes = 0
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

        self._is_denied_follower = (
            self._access is not None
            and self.is_from_follower
            and not self._access.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        )
        if self._is_denied_follower:
            self._wake_all()
        elif self.is_from_follower:
            self._wake_after_registration()
        # Whether the partitions must be read with pauses.
        self.is_long = len(self._rows) > MAX_ITEMS_WITHOUT_PAUSE

    def read(self) -> None:
        """Reads every partition."""
        for asked in self._follower_partitions():
            self._record_offset(asked)
        for asked in self._rows:
            self._read_partition(asked)

    async def read_with_pauses(self) -> FetchResponse:
        """Like `read`, and `wait` if necessary, but serves other connections meanwhile."""
        clock = self._context.services.env.clock
        await for_each(self._follower_partitions(), self._record_offset_after_pause, clock)
        await for_each(self._rows, self._read_partition, clock)
        if self.must_be_answered:
            return await self._respond_with_pauses()
        return await self.wait()

    @property
    def must_be_answered(self) -> bool:
        """Whether the response must be sent now."""
        return (
            self._is_enough or self._request.max_wait_ms <= 0 or self._context.services.lifecycle.is_stopping
        )

    @property
    def _is_enough(self) -> bool:
        return self._is_urgent or self._size_bytes >= self._request.min_bytes or self._plan.is_empty

    def _refuse_denied(self, topic: TopicRef, access: Access) -> None:
        """Raises `ApiError` unless the client may read the topic. Checked at every request of a session.

        It is checked when a partition is read: while this request waits, another may add partitions to the session.
        The ACLs are at least as new as the request.
        """
        may_read = self._may_read.get(topic)
        if may_read is None:
            name = self._name_of(topic)
            if not name and not isinstance(topic, str) and not self._is_denied_follower:
                # An unknown id gets UNKNOWN_TOPIC_ID, which reveals nothing. Not stored: the id may become known later.
                return
            may_read = not self._is_denied_follower and (
                self.is_from_follower or access.allows(Operation.READ, ResourceType.TOPIC, name)
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

    def _follower_partitions(self) -> Collection[FetchedPartition]:
        """The partitions of which the follower's offsets count."""
        if not self.is_from_follower or self._is_denied_follower:
            return ()
        if self._plan.session is not None:
            # The follower had everything of its idle partitions at this fetch, too.
            now_ms = int(self._context.services.env.clock.monotonic() * 1000)
            self._plan.session.reading.liveness.last_fetch_ms = now_ms
        return self._rows

    def _record_offset(self, asked: FetchedPartition) -> None:
        """Records the follower's offset before any partition is read, so that the response has the high
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

    def _record_offset_after_pause(self, asked: FetchedPartition) -> None:
        # The process may have been suspended meanwhile, and another broker may lead the partition now.
        self._context.services.image_follower.check_session()
        self._record_offset(asked)

    def _read_partition(self, asked: FetchedPartition) -> None:
        self._size_bytes -= _size_of(self._rows.get(asked, _NOT_READ))
        try:
            row = self._row(asked, self._max_bytes - self._size_bytes, self._size_bytes == 0)
        except ApiError as error:
            row = self._refusal(asked, error)
        self._rows[asked] = row
        self._size_bytes += _size_of(row)
        self._is_urgent = self._is_urgent or self._demands_answer(asked, row)

    def _demands_answer(self, asked: FetchedPartition, row: PartitionData) -> bool:
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
        """Reads again each partition that changes, until there are enough bytes or the deadline has come.

        Call it after all partitions were read once.
        """
        services, session = self._context.services, self._plan.session
        loop, clock = asyncio.get_running_loop(), services.env.clock
        deadline = loop.time() + self._request.max_wait_ms / 1000
        alarm = FetchAlarm[FetchedPartition](loop)
        if session is not None:
            session.reading.on_wake = alarm.wake
        try:
            await self._watch(alarm)
            await alarm.follow(
                self._read_partition,
                lambda: self._is_enough or services.lifecycle.is_stopping,
                deadline,
                services.flow.wakeups.turn,
                clock,
            )
        finally:
            alarm.close()
            if session is not None and session.reading.on_wake == alarm.wake:
                session.reading.on_wake = None
        return await self._respond_with_pauses()

    async def _watch(self, alarm: FetchAlarm[FetchedPartition]) -> None:
        """Lets the alarm listen to all partitions. Those that changed since they were read wake it at once."""
        session = self._plan.session
        for asked in () if session is None else session.reading.active:
            if asked not in self._rows:
                alarm.wake(asked)  # it was idle, or another request added it

        def watch(asked: FetchedPartition) -> None:
            partition, change_count = self._read_at[asked]
            alarm.watch(asked, partition, change_count)

        # A partition that could not be read has an error, so the request would not wait.
        await for_each(list(self._read_at), watch, self._context.services.env.clock)

    def response(self) -> FetchResponse:
        """The response with what was read last of each partition."""
        for served in self._rows.items():
            self._conclude(served)
        return self._concluded()

    async def _respond_with_pauses(self) -> FetchResponse:
        await for_each(list(self._rows.items()), self._conclude, self._context.services.env.clock)
        return self._concluded()

    def _conclude(self, served: Served) -> None:
        """Adds the row of a partition to the response if it must name it."""
        asked, row = served
        if row.records:
            self._count_bytes(self._read_at[asked][0], row.records.size_bytes)
        if row.current_leader is not None:
            self._named_leaders.add(row.current_leader.leader_id)
        if self._plan.reports(asked, row):
            topic = self._topics.get(asked.topic)
            if topic is None:
                topic = self._topics[asked.topic] = _topic_row(asked.topic)
            topic.partitions.append(row)
        if self.is_from_follower:
            self._begin_idle(asked, row)

    def _concluded(self) -> FetchResponse:
        services = self._context.services
        if self._throttled_bytes:
            services.fetching.throttle.record(self._throttled_bytes, services.env.clock.monotonic())
        response = FetchResponse(session_id=self._plan.session_id, responses=list(self._topics.values()))
        if self._context.version >= _ENDPOINTS_FROM:
            response.node_endpoints = self._endpoints()
        return response

    def _begin_idle(self, asked: FetchedPartition, row: PartitionData) -> None:
        """Stops reading a partition on which the follower has caught up, until it changes."""
        session = self._plan.session
        if session is None or row.error_code or row.records or row.diverging_epoch is not None:
            return
        partition = self._read_at[asked][0]
        if not session.reading.may_begin_idle(asked) or not _is_current(row, asked, partition):
            return  # the session ended, or the partition changed while others were read
        progress = partition.begin_idle(self._replica_id, asked.fetch_offset, session.reading.liveness)
        if progress is not None:
            session.reading.begin_idle(asked, progress, partition.on_advance)

    def _row(self, asked: FetchedPartition, left_bytes: int, min_one: bool) -> PartitionData:
        if self._access is not None:
            self._refuse_denied(asked.topic, self._access)
        if asked in self._refused:
            raise self._refused[asked]
        partition = self._find(asked)
        self._read_at[asked] = partition, partition.change_count
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
        return self._is_throttled(partition) and services.fetching.throttle.is_exceeded(
            services.env.clock.monotonic()
        )

    def _count_bytes(self, partition: Partition, size_bytes: int) -> None:
        """Counts the bytes of a partition, those of a throttled replica also against the replication throttle."""
        if not self.is_from_follower:
            partition.traffic.bytes_out += size_bytes
            return
        partition.traffic.replication_bytes_out += size_bytes
        if self._is_throttled(partition):
            self._throttled_bytes += size_bytes

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

    def _endpoints(self) -> list[NodeEndpoint]:
        brokers = self._context.services.image.brokers
        found = (brokers[leader] for leader in sorted(self._named_leaders) if leader in brokers)
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
