"""The steps that only fetches of followers have: their requests tell the leader which offsets they have reached.

Keeps true: all offsets of a request are recorded before a partition is read, so that the response has the high
            watermarks that the offsets raise.
            A client that may not replicate gets TOPIC_AUTHORIZATION_FAILED for every partition, and its offsets do
            not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from felice.env import Clock
from felice.log.throttle import RateLimit
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import FetchRequest, PartitionData
from felice.replication.partition import Partition
from felice.replication.partitions import Partitions
from felice.replication.throttle import is_throttled
from felice.server.configs.settings import Settings
from felice.server.fetching.fetch_rows import FetchRows
from felice.server.fetching.fetch_sessions import FetchedPartition, FetchPlan, FetchSession
from felice.server.fetching.finding import Metadata, Named, PartitionFinder
from felice.server.fetching.leaders import Leaders
from felice.server.flow.pace import MAX_ITEMS_WITHOUT_PAUSE, for_each


class FollowerFinder(PartitionFinder):
    """The partitions of one request of a follower."""

    __slots__ = ("_clock", "_epoch", "_is_allowed", "_refused", "replica_id")

    def __init__(
        self,
        partitions: Partitions,
        metadata: Metadata,
        replica_id: int,
        epoch: int,
        clock: Clock,
        *,
        is_allowed: bool,
    ) -> None:
        """`epoch`: that of the follower's registration. `is_allowed`: whether the client may replicate."""
        super().__init__(partitions, metadata, None)
        self.replica_id = replica_id
        self._epoch = epoch
        self._clock = clock
        self._is_allowed = is_allowed
        # Errors found before reading.
        self._refused: dict[Named, ApiError] = {}

    async def record_offsets(self, plan: FetchPlan, check_session: Callable[[], None]) -> None:
        """Records which offset of each partition the follower has reached. Call it before the plan is read.

        `check_session` is called after pauses: the process may have been suspended meanwhile, and another broker may
        lead the partitions now.
        """
        if not self._is_allowed:
            plan.wake_all()  # each has the error
            return
        if plan.session is not None:
            self._keep_alive(plan, plan.session)
        if len(plan.partitions) <= MAX_ITEMS_WITHOUT_PAUSE:
            await for_each(plan.partitions, self._record, self._clock)
            return

        def record(asked: FetchedPartition) -> None:
            check_session()
            self._record(asked)

        await for_each(plan.partitions, record, self._clock)

    def _keep_alive(self, plan: FetchPlan, session: FetchSession) -> None:
        known = self.metadata.image.brokers.get(self.replica_id)
        registration = self._epoch, known.epoch if known is not None else None
        if session.registration != registration:
            plan.wake_all()  # the follower's fetches may count now
            session.registration = registration
        # The follower is caught up on its idle partitions at this fetch, too.
        session.reading.liveness.last_fetch_ms = int(self._clock.monotonic() * 1000)

    def _record(self, asked: FetchedPartition) -> None:
        try:
            super().find(asked).on_follower_fetch(
                self.replica_id,
                asked.fetch_offset,
                log_start_offset=asked.log_start_offset,
                broker_epoch=self._epoch,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
            )
        except ApiError as error:
            # Reading would raise the same error, except for a broker that is no replica of the partition.
            self._refused[asked] = error

    def find(self, asked: Named) -> Partition:
        """The partition. Raises `ApiError`, also if the follower's offset was refused."""
        if not self._is_allowed:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if asked in self._refused:
            raise self._refused[asked]
        return super().find(asked)


class FollowerRows(FetchRows):
    """The rows that a follower gets: up to the end of the log, but without records while the follower is throttled."""

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        finder: FollowerFinder,
        leaders: Leaders,
        settings: Settings,
        *,
        session: FetchSession | None,
        broker_id: int,
        throttle: RateLimit,
        clock: Clock,
    ) -> None:
        """`throttle`: the rate of this broker for followers that are not in sync."""
        super().__init__(request, version, finder, leaders, settings)
        self._rack = ""  # a follower reads from the leader
        self._replica_id = finder.replica_id
        self._session = session
        self._broker_id = broker_id
        self._throttle = throttle
        self._clock = clock

    def row(
        self, asked: FetchedPartition, partition: Partition, max_bytes: int, min_one: bool
    ) -> PartitionData:
        """Reads a partition. The row has no records while the follower is throttled. Raises `ApiError`."""
        throttled = partition.log.config.leader_replication_throttled_replicas
        if (
            throttled
            and self._is_throttled(partition, throttled)
            and self._throttle.is_exceeded(self._clock.monotonic())
        ):
            max_bytes, min_one = 0, False
        return super().row(asked, partition, max_bytes, min_one)

    def _is_throttled(self, partition: Partition, throttled: Sequence[str]) -> bool:
        """Whether the follower has to wait for the rate. In-sync replicas never have to."""
        return self._replica_id not in partition.isr and is_throttled(
            throttled, partition.partition, self._broker_id
        )

    def demands_answer(self, asked: FetchedPartition, row: PartitionData) -> bool:
        """Whether the response must be sent because of this row, however few bytes it has."""
        if super().demands_answer(asked, row):
            return True
        if asked.sent_high_watermark < 0:
            return False
        # Consumers that read from the follower may be waiting for its high watermark.
        serves_consumers = self._settings.config.replica_selector_class is not None
        return row.log_start_offset != asked.sent_log_start_offset or (
            serves_consumers and row.high_watermark != asked.sent_high_watermark
        )

    def served(self, asked: FetchedPartition, partition: Partition, row: PartitionData) -> None:
        """Counts the bytes of a partition in the response. Stops reading the partition if the follower caught up."""
        if row.records:
            partition.traffic.replication_bytes_out += row.records.size_bytes
            throttled = partition.log.config.leader_replication_throttled_replicas
            if throttled and self._is_throttled(partition, throttled):
                self.throttled_bytes += row.records.size_bytes
        elif self._session is not None and row.diverging_epoch is None:
            self._begin_idle(asked, partition, row, self._session)

    def _begin_idle(
        self, asked: FetchedPartition, partition: Partition, row: PartitionData, session: FetchSession
    ) -> None:
        """Lets the session read the partition again only when it changes."""
        is_current = (
            row.high_watermark == asked.fetch_offset
            and row.log_start_offset == partition.log.log_start_offset
        )
        if not is_current or not session.reading.may_begin_idle(asked):
            return  # the partition changed while others were read, or the session ended
        progress = partition.begin_idle(self._replica_id, asked.fetch_offset, session.reading.liveness)
        if progress is not None:
            session.reading.begin_idle(asked, progress, partition.on_advance)
