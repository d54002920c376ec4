"""Fetch sessions (KIP-227): the broker remembers which partitions a client reads, so a request names only changes.

Keeps true: an incremental reply names every partition whose records, watermarks or error changed since the last
            reply, and no other. The cache holds at most `slots` sessions, and `max_partitions` in all of them: a
            client for which there is no room is served without a session.
How:        `open` turns a request into a `FetchPlan`: the partitions to read, in service order; `FetchPlan.reports`
            says what the reply must name and moves the partitions that were served to the end of the order, so that
            no partition starves behind a busy one.
Leaves:     partitions that a follower has read to the end, to `idle_partitions`.
Pure: time and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import field
from typing import TypeAlias

from felice.dataclass import dataclass
from felice.env import Random
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from felice.server.fetching.finding import TopicRef
from felice.server.fetching.idle_partitions import IdlePartitions

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
# A session that was not used for this long may be evicted.
EVICTION_MS = 120_000
# Each takes about 200 bytes. Kafka has no such limit, but one request may name millions of partitions.
MAX_PARTITIONS = 500_000

# Requests name topics by name up to version 12, by id from version 13.
_Key: TypeAlias = tuple[TopicRef, int]


class FetchedPartition:
    """A partition of a session: what the client requested, and the state in the last reply."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicRef, asked: FetchPartition) -> None:
        self.topic = topic
        self.partition = asked.partition
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.update(asked)

    def update(self, asked: FetchPartition) -> None:
        """Takes over the position and limits of a request."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset

    def must_be_reported(self, row: PartitionData) -> bool:
        """Whether an incremental reply must contain this row. Remembers the row as sent."""
        changed = (
            bool(row.records)
            or row.high_watermark != self.sent_high_watermark
            or row.log_start_offset != self.sent_log_start_offset
            or row.diverging_epoch is not None
            or row.preferred_read_replica != -1
        )
        self.sent_high_watermark = row.high_watermark
        self.sent_log_start_offset = row.log_start_offset
        if row.error_code:
            # Forget the last watermarks, so that the reply after the error contains the partition again.
            self.sent_high_watermark = -1
            return True
        return changed


@dataclass(slots=True)
class FetchSession:
    """The state of one session; `partitions` is in service order."""

    session_id: int
    is_follower: bool
    uses_topic_ids: bool
    partitions: dict[_Key, FetchedPartition]
    epoch: int
    created_ms: int
    last_used_ms: int
    # The follower's broker epoch, as the request claims it and as the image has it.
    registration: tuple[int, int | None] | None = None
    reading: IdlePartitions[FetchedPartition] = field(init=False)

    def __post_init__(self) -> None:
        self.reading = IdlePartitions(self.partitions.values())

    def close(self) -> None:
        """Stops listening to the session's partitions."""
        self.reading.close()

    def _forget(self, key: _Key) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.reading.remove(partition)

    def apply(self, request: FetchRequest) -> None:
        """Applies the changes of an incremental request."""
        for topic in request.topics:
            ref = topic.topic_id if self.uses_topic_ids else topic.topic
            for asked in topic.partitions:
                known = self.partitions.get((ref, asked.partition))
                if known is None:
                    known = self.partitions[ref, asked.partition] = FetchedPartition(ref, asked)
                    self.reading.add(known)
                else:
                    known.update(asked)
                    self.reading.wake(known)
        for forgotten in request.forgotten_topics_data:
            ref = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for partition in forgotten.partitions:
                self._forget((ref, partition))


@dataclass(slots=True)
class FetchPlan:
    """The plan for one request: the partitions to read, and the rows of the reply."""

    partitions: Sequence[FetchedPartition]
    session_id: int = NO_SESSION
    session: FetchSession | None = None
    is_incremental: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the session has no partition, so that a request need not wait."""
        return not (self.partitions or (self.session is not None and self.session.partitions))

    def wake_all(self) -> None:
        """Lets the request read all partitions of its session, if it has one."""
        if self.session is not None:
            self.session.reading.wake_all()
            self.partitions = list(self.session.reading.active)

    def call_on_wake(
        self, wake: Callable[[FetchedPartition], None], known: Container[FetchedPartition]
    ) -> None:
        """Calls `wake` with each partition that the session wakes, and now with active ones that are not in `known`.

        If several requests of a session wait, only the newest is called.
        """
        if self.session is not None:
            self.session.reading.on_wake = wake
            for partition in self.session.reading.active:
                if partition not in known:
                    wake(partition)  # the partition was idle, or another request added it

    def end_calls(self, wake: Callable[[FetchedPartition], None]) -> None:
        """Ends the calls of `wake` that `call_on_wake` began."""
        if self.session is not None and self.session.reading.on_wake == wake:
            self.session.reading.on_wake = None

    def reports(self, partition: FetchedPartition, row: PartitionData) -> bool:
        """Whether the reply must contain this row. Call it once for each partition, with the row that was read last."""
        if self.session is None:
            return True
        must_be_reported = partition.must_be_reported(row)
        if not self.is_incremental:
            return True
        if row.records:
            self.session.reading.move_to_end(partition)
        return must_be_reported


class FetchSessions:
    """The session cache of one broker."""

    def __init__(self, slots: int, rng: Random, max_partitions: int = MAX_PARTITIONS) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._random = rng
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        """Returns the session with this id, or None."""
        return self._sessions.get(session_id)

    def open(self, request: FetchRequest, version: int, now_ms: int) -> FetchPlan:
        """Finds or creates the session of a request.

        Raises `ApiError`: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        uses_topic_ids = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(request.session_id)
            partitions = _partitions_of(request, uses_topic_ids)
            plan = FetchPlan(list(partitions.values()))
            if request.session_epoch == INITIAL_EPOCH:
                plan.session = self._make(request, partitions, uses_topic_ids, now_ms)
                plan.session_id = plan.session.session_id if plan.session is not None else NO_SESSION
            return plan
        session = self._existing(request, uses_topic_ids)
        known = len(session.partitions)
        session.apply(request)
        if len(session.partitions) > known and self._partition_count() > self._max_partitions:
            self._drop(session.session_id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session grew beyond what is kept")
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        del self._sessions[session.session_id]
        if not session.partitions:
            return FetchPlan([])
        self._sessions[session.session_id] = session
        return FetchPlan(list(session.reading.active), session.session_id, session, is_incremental=True)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _existing(self, request: FetchRequest, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"expected session epoch {session.epoch}, got {request.session_epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _make(
        self,
        request: FetchRequest,
        partitions: dict[_Key, FetchedPartition],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        is_follower = request.replica_id >= 0 or bool(
            request.replica_state and request.replica_state.replica_id >= 0
        )
        if not self._has_room(len(partitions), is_follower, now_ms):
            return None
        session_id = self._unused_id()
        session = self._sessions[session_id] = FetchSession(
            session_id, is_follower, uses_topic_ids, partitions, 1, now_ms, now_ms
        )
        return session

    def _has_room(self, size: int, is_follower: bool, now_ms: int) -> bool:
        if size > self._max_partitions:
            return False
        while len(self._sessions) >= self._slots or self._partition_count() + size > self._max_partitions:
            victim = self._evictable(size, is_follower, now_ms)
            if victim is None:
                return False
            self._drop(victim.session_id)
        return True

    def _partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _evictable(self, size: int, is_follower: bool, now_ms: int) -> FetchSession | None:
        """Returns a session to evict for a new one, or None.

        It is the least recently used session if that was unused for `EVICTION_MS`, or else one of lower priority:
        followers come before consumers, large sessions before small ones. A session of the same kind is safe until
        it is `EVICTION_MS` old.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        lesser = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_MS or (is_follower and not session.is_follower)
            if (session.is_follower, len(session.partitions)) < (is_follower, size)
        ]
        return min(lesser, key=lambda session: (session.is_follower, len(session.partitions)), default=None)

    def _unused_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id


def _partitions_of(request: FetchRequest, uses_topic_ids: bool) -> dict[_Key, FetchedPartition]:
    partitions: dict[_Key, FetchedPartition] = {}
    for topic in request.topics:
        ref = topic.topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            partitions[ref, asked.partition] = FetchedPartition(ref, asked)
    return partitions
