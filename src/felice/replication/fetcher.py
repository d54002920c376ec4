"""Fetching by followers: for each broker that leads a partition followed here, `num.replica.fetchers` tasks.

Keeps true:  a record is appended only under the leader epoch under which it was requested, and only to a replica that
             still follows. A follower reports only records that it has, with `flush.messages` only records on disk.
             Each task holds one answer of at most `replica.fetch.response.max.bytes`, or one batch, in memory.
             A partition with an error waits `replica.fetch.backoff.ms`; the others go on.
How:         a task requests all its partitions in one Fetch within a session (KIP-227), appends, and repeats. For the
             next request it looks only at partitions that something happened to: an answer, an image, a change of
             the log, the end of a delay.
Leaves:      what an answer means for the log to `follower`, through `partition`; connections to `peers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias
from uuid import UUID
from zlib import crc32

from felice.config import BrokerConfig
from felice.dataclass import dataclass
from felice.env import Clock
from felice.env.clock import set_within
from felice.log.throttle import RATE_CHECK_INTERVAL_S, RateLimit
from felice.metadata import ClusterImage
from felice.protocol.api import API
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode
from felice.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from felice.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from felice.replication.fetch_session import FollowersSession, SessionPlan
from felice.replication.follower import FetchPosition
from felice.replication.partition import Partition
from felice.replication.peers import Peers, PeerUnavailable
from felice.replication.throttle import is_throttled

_log = logging.getLogger("felice.replication")

_NO_EPOCH = -1
_LONGEST_WAIT_S = 60.0
# Errors that pass when the next image arrives; they are not logged.
_TRANSIENT = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)

_Key: TypeAlias = tuple[UUID, int]
_Plan: TypeAlias = SessionPlan[_Key, FetchPosition]


@dataclass(slots=True)
class _Followed:
    partition: Partition
    on_advance: Callable[[], None]
    retry_at_s: float = 0.0
    # The reason of the last reported failure. A leader that denies access repeats it until an operator allows access.
    reported: str | None = None
    asked_epoch: int = _NO_EPOCH

    def is_answered_in_time(self) -> bool:
        partition = self.partition
        return partition.is_open and partition.leader is None and partition.leader_epoch == self.asked_epoch


class Fetchers:
    """All fetchers of one broker."""

    def __init__(
        self,
        broker_id: int,
        peers: Peers,
        clock: Clock,
        config_of: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        self.peers = peers
        self.clock = clock
        self.throttle = RateLimit(lambda: self.config.follower_replication_throttled_rate)
        self._config_of = config_of
        self._broker_epoch = broker_epoch
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._is_stopped = False

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration at this moment: some options change while it runs."""
        return self._config_of()

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, which leaders compare (KIP-903)."""
        return self._broker_epoch()

    def follow(self, partitions: Iterable[Partition], image: ClusterImage) -> None:
        """Fetches every partition that has another broker as its leader, and no other partition."""
        if self._is_stopped:
            return
        wanted: dict[tuple[int, int], dict[_Key, Partition]] = {}
        for partition in partitions:
            if partition.is_open and partition.leader is None and partition.leader_id in image.brokers:
                fetcher = wanted.setdefault((partition.leader_id, self._number_of(partition)), {})
                fetcher[partition.topic_id, partition.partition] = partition
        for key in [key for key in self._fetchers if key not in wanted]:
            self._fetchers.pop(key).stop()
        for key, followed in wanted.items():
            if key not in self._fetchers:
                self._fetchers[key] = Fetcher(self, *key)
            self._fetchers[key].follow(followed)

    def _number_of(self, partition: Partition) -> int:
        return crc32(f"{partition.topic}-{partition.partition}".encode()) % self.config.num_replica_fetchers

    async def stop(self) -> None:
        """Ends all fetch tasks, and returns when they have ended."""
        self._is_stopped = True
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        for fetcher in fetchers:
            fetcher.stop()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)


class Fetcher:
    """Fetches from one broker until it is stopped."""

    def __init__(self, owner: Fetchers, source: int, number: int) -> None:
        self._owner = owner
        self._source = source
        self._lane = f"fetch-{number}"
        self._followed: dict[_Key, _Followed] = {}
        self._session: FollowersSession[_Key, FetchPosition] = FollowersSession()
        # The partitions to request, and those to look at before the next request.
        self._positions: dict[_Key, FetchPosition] = {}
        self._touched: dict[_Key, None] = {}
        self._delayed: dict[_Key, _Followed] = {}
        self._unflushed: dict[_Key, _Followed] = {}
        self._was_throttled = False
        self._changed = asyncio.Event()
        self._was_reached = True
        self._is_stopped = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def follow(self, partitions: dict[_Key, Partition]) -> None:
        """Replaces the set of partitions; partitions that stay keep their position."""
        for key in [key for key in self._followed if key not in partitions]:
            self._let_go(key)
        for key, partition in partitions.items():
            known = self._followed.get(key)
            if known is None or known.partition is not partition:
                self._let_go(key)
                self._take_over(key, partition)
            elif known.asked_epoch != partition.leader_epoch:
                known.retry_at_s = 0.0
                self._touched[key] = None
        self._changed.set()

    def _take_over(self, key: _Key, partition: Partition) -> None:
        followed = self._followed[key] = _Followed(partition, partial(self._touch, key))
        partition.on_advance.add(followed.on_advance)
        self._touched[key] = None

    def _let_go(self, key: _Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            followed.partition.on_advance.discard(followed.on_advance)
            self._touched[key] = None

    def _touch(self, key: _Key) -> None:
        self._touched[key] = None

    def stop(self) -> None:
        """Lets go of every partition and cancels the task; `task` ends soon afterwards."""
        for key in list(self._followed):
            self._let_go(key)
        # Both: the call that the task awaits may swallow the cancellation.
        self._is_stopped = True
        self.task.cancel()

    async def _run(self) -> None:
        while not self._is_stopped:
            self._changed.clear()
            now_s = self._owner.clock.monotonic()
            touched = self._look(now_s)
            if not self._positions:
                # No request is sent now. The next one must still name the partitions that have left the session.
                self._touched.update(touched)
                await set_within(self._changed, self._next_retry_s(now_s))
                continue
            try:
                await self._round(touched)
            except PeerUnavailable as error:
                self._session.on_failure()
                self._report_unreachable(error)
                await set_within(self._changed, self._backoff_s)
            except Exception:
                # An error in this code must not end replication for good.
                _log.exception("fetching failed", extra={"source": self._source})
                self._session.on_failure()
                await asyncio.sleep(self._backoff_s)

    @property
    def _backoff_s(self) -> float:
        return self._owner.config.replica_fetch_backoff_ms / 1000

    def _report_unreachable(self, error: PeerUnavailable) -> None:
        if self._was_reached:
            _log.warning("a leader cannot be reached", extra={"broker": self._source, "reason": str(error)})
        self._was_reached = False

    def _next_retry_s(self, now_s: float) -> float:
        """Time in seconds until the next partition is due; a change ends the wait."""
        waits = [max(0.001, followed.retry_at_s - now_s) for followed in self._delayed.values()]
        if self._was_throttled:
            wait_s = min(self._owner.throttle.wait_s(now_s), RATE_CHECK_INTERVAL_S)
            waits.append(max(0.001, wait_s))
        return min(waits, default=_LONGEST_WAIT_S)

    def _look(self, now_s: float) -> dict[_Key, None]:
        """Updates `_positions` of the partitions that something happened to, and returns their keys."""
        exceeded = self._owner.throttle.is_exceeded(now_s)
        if exceeded or self._was_throttled:
            self._touched.update(dict.fromkeys(self._followed))
        self._was_throttled = exceeded
        over = [key for key, followed in self._delayed.items() if followed.retry_at_s <= now_s]
        for key in over:
            del self._delayed[key]
        touched, self._touched = self._touched | dict.fromkeys(over), {}
        for key in touched:
            followed = self._followed.get(key)
            if followed is None or self._waits(key, followed, now_s, exceeded):
                self._positions.pop(key, None)
            else:
                self._positions[key] = followed.partition.next_fetch()
                followed.asked_epoch = followed.partition.leader_epoch
        return touched

    def _waits(self, key: _Key, followed: _Followed, now_s: float, exceeded: bool) -> bool:
        if followed.retry_at_s > now_s:
            self._delayed[key] = followed
            return True
        return exceeded and self._is_throttled(followed.partition)

    def _is_throttled(self, partition: Partition) -> bool:
        owner = self._owner
        replicas = partition.log.config.follower_replication_throttled_replicas
        return owner.broker_id not in partition.isr and is_throttled(
            replicas, partition.partition, owner.broker_id
        )

    # One round

    async def _round(self, touched: Iterable[_Key]) -> None:
        config = self._owner.config
        request = self._request(self._session.plan(self._positions, touched), config)
        response: FetchResponse = await self._owner.peers.call(
            self._source, API.FETCH, request, config.replica_socket_timeout_ms / 1000, lane=self._lane
        )
        self._was_reached = True
        if not self._session.on_response(response.error_code, response.session_id):
            if response.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ):
                raise PeerUnavailable(f"broker {self._source}: {ErrorCode(response.error_code).name}")
            return
        await self._take_all(response)

    async def _take_all(self, response: FetchResponse) -> None:
        out_of_range = []
        for topic in response.responses:
            for row in topic.partitions:
                key = topic.topic_id, row.partition_index
                followed = self._followed.get(key)
                if followed is None or key not in self._positions:
                    continue
                self._touched[key] = None
                if not followed.is_answered_in_time():
                    continue
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(followed)
                else:
                    self._take(followed, row)
                if followed.partition.is_open and followed.partition.log.needs_flush:
                    self._unflushed[key] = followed
        if self._unflushed:
            await self._flush()
        for followed in out_of_range:
            await self._find_place(followed)

    async def _flush(self) -> None:
        """Flushes followers with `flush.messages`. If the disk was full, the next answer repeats the flush."""
        unflushed, self._unflushed = self._unflushed, {}
        rows = {key: row for key, row in unflushed.items() if row.partition.is_open}
        if rows:
            # Not `gather`: cancelling this task must not cancel a flush.
            await asyncio.wait([row.partition.flusher.begin() for row in rows.values()])
        self._unflushed = {key: row for key, row in rows.items() if row.partition.log.needs_flush}

    def _take(self, followed: _Followed, row: PartitionData) -> None:
        if row.error_code != ErrorCode.NONE:
            self._delay(followed, ErrorCode(row.error_code).name, row.error_code not in _TRANSIENT)
            return
        try:
            if self._apply(followed.partition, row):
                followed.reported = None
            else:
                # Every batch has a newer epoch than the leader (KAFKA-18723). Usually the next image has it, too.
                self._delay(followed, "the leader sent only batches of a newer leader epoch", True)
        except ApiError as error:
            # A broken invariant has stopped the partition, and is reported.
            self._delay(followed, error.message, not isinstance(error, BrokenInvariant))
        except Exception as error:
            # An error in this code must not cost the other partitions their records.
            _log.exception("the response for a partition could not be processed")
            self._delay(followed, repr(error), True)

    def _apply(self, partition: Partition, row: PartitionData) -> bool:
        """Returns False if the same request would get the same answer."""
        if row.diverging_epoch is not None and row.diverging_epoch.end_offset >= 0:
            partition.follow_divergence(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
            return True
        owner, records = self._owner, row.records or b""
        if records and self._is_throttled_at_all(partition):
            owner.throttle.record(len(records), owner.clock.monotonic())
        return partition.append_as_follower(
            records,
            high_watermark=row.high_watermark,
            log_start_offset=row.log_start_offset,
            now_ms=owner.clock.now_ms(),
        )

    def _is_throttled_at_all(self, partition: Partition) -> bool:
        replicas = partition.log.config.follower_replication_throttled_replicas
        return bool(replicas) and is_throttled(replicas, partition.partition, self._owner.broker_id)

    def _delay(self, followed: _Followed, reason: str, is_worth_a_line: bool) -> None:
        followed.retry_at_s = self._owner.clock.monotonic() + self._backoff_s
        if is_worth_a_line and reason != followed.reported:
            followed.reported = reason
            _log.warning(
                "a partition could not be fetched from its leader, and is fetched again after a pause",
                extra={
                    "partition": followed.partition.log.name,
                    "leader": self._source,
                    "reason": reason,
                },
            )

    # Where the leader has no records at this log's end

    async def _find_place(self, followed: _Followed) -> None:
        try:
            end_offset = await self._list_offset(followed, LATEST_TIMESTAMP)
            start_offset = await self._list_offset(followed, EARLIEST_TIMESTAMP)
            if not followed.is_answered_in_time():
                return
            if not followed.partition.follow_out_of_range(start_offset, end_offset):
                # The leader's log has moved meanwhile, or it knows no epoch as new as that of the last record here.
                reason = f"the leader refused an offset that lies between {start_offset} and {end_offset}"
                self._delay(followed, reason, True)
        except ApiError as error:
            self._delay(followed, error.message, error.code not in _TRANSIENT)

    async def _list_offset(self, followed: _Followed, timestamp: int) -> int:
        partition = followed.partition
        asked = ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=followed.asked_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsTopic(name=partition.topic, partitions=[asked])
        request = ListOffsetsRequest(replica_id=self._owner.broker_id, topics=[topic])
        timeout_s = self._owner.config.replica_socket_timeout_ms / 1000
        response = await self._owner.peers.call(
            self._source, API.LIST_OFFSETS, request, timeout_s, lane=self._lane
        )
        row = response.topics[0].partitions[0]
        if row.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(row.error_code))
        return int(row.offset)

    # Requests

    def _request(self, plan: _Plan, config: BrokerConfig) -> FetchRequest:
        topics: dict[UUID, FetchTopic] = {}
        for (topic_id, partition), position in plan.asked.items():
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id, partitions=[]))
            topic.partitions.append(_asked(partition, position, config.replica_fetch_max_bytes))
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._owner.broker_id, replica_epoch=self._owner.broker_epoch
            ),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=forgotten_topics(plan.forgotten),
        )


def _asked(partition: int, position: FetchPosition, max_bytes: int) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        current_leader_epoch=position.current_leader_epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.last_fetched_epoch,
        log_start_offset=position.log_start_offset,
        partition_max_bytes=max_bytes,
    )


def forgotten_topics(keys: Sequence[_Key]) -> list[ForgottenTopic]:
    """The partitions that the leader should drop from the session, by topic."""
    topics: dict[UUID, ForgottenTopic] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(
            partition
        )
    return list(topics.values())
