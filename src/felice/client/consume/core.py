"""The core of a consumer on its event loop: assignment, fetching, commits and the group. Both APIs build on it.

Keeps true:  Only delivered offsets are committed: the positions with automatic commits, otherwise the offsets that the
             application stored or named.
             With automatic commits, the position of a partition is committed before the partition is revoked. From
             the start of the revocation, and while the application's callback runs, none of its records is delivered.
             If a rebalance callback assigns or unassigns partitions itself, its assignment holds. Otherwise the
             consumer applies the rebalance as the coordinator sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from felice.client.consume.delivery import Delivery
from felice.client.consume.fetcher import Fetcher
from felice.client.consume.offsets import EARLIEST, LATEST, commit_offsets, fetch_committed, list_offsets
from felice.client.consume.statistics import describe_consumer
from felice.client.consume.subscription import Subscription
from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.group.membership import GroupMembership
from felice.client.group.requests import NOBODY, CommittedOffset
from felice.client.model import (
    OFFSET_END,
    OFFSET_INVALID,
    ClusterMetadata,
    ConsumerGroupMetadata,
    OffsetAndTimestamp,
    Partition,
    ThrottleEvent,
    TopicPartition,
    error_message,
)
from felice.client.net.cluster import Cluster
from felice.client.net.statistics import Document, Statistics
from felice.client.options import Settings
from felice.protocol.errors import ErrorCode

PartitionsCallback = Callable[[list[TopicPartition]], object]
"""A rebalance callback of the application: on_assign, on_revoke or on_lost."""

AskApplication = Callable[[PartitionsCallback, list[TopicPartition]], Awaitable[None]]
"""Runs a rebalance callback of the application, in the thread that the API chooses."""

_LAST_COMMIT_TIMEOUT_S = 5.0


class ConsumerCore:
    """One consumer. `ask` runs the application's rebalance callbacks, `tell` its notices (commits, errors).

    Its methods run on the event loop, except those that say otherwise.
    """

    def __init__(
        self,
        settings: Settings,
        delivery: Delivery,
        ask: AskApplication,
        tell: Callable[..., None],
    ) -> None:
        self.settings = settings
        self.delivery = delivery
        self.subscription = Subscription()
        self.cluster = Cluster(settings, settings.logger(), self._on_cluster_error, self._on_throttled)
        self.fetcher = Fetcher(self.cluster, self.subscription, delivery, settings)
        self.membership: GroupMembership | None = None
        self.last_poll = asyncio.get_running_loop().time()
        self._ask = ask
        self._tell = tell
        self._callbacks: dict[str, PartitionsCallback | None] = {}
        self._assigned_by_application = False
        self._auto_commit: asyncio.Task[None] | None = None
        self._commit_lock = asyncio.Lock()
        self.statistics = Statistics(self.cluster, settings, self._describe, tell)
        self.statistics.start()

    @classmethod
    async def start(
        cls, settings: Settings, delivery: Delivery, ask: AskApplication, tell: Callable[..., None]
    ) -> ConsumerCore:
        """Create the consumer on the running event loop."""
        return cls(settings, delivery, ask, tell)

    def _on_cluster_error(self, error: KafkaError) -> None:
        if self.settings["error_cb"] is not None:
            self._tell(self.settings["error_cb"], error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            # The error does not end a wait for a coordinator: many applications stop at the first error of a poll.
            self.delivery.put(error_message(error))

    def _describe(self, document: Document) -> None:
        describe_consumer(document, self.cluster, self.subscription, self.delivery, self.membership)

    def _on_throttled(self, event: ThrottleEvent) -> None:
        if self.settings["throttle_cb"] is not None:
            self._tell(self.settings["throttle_cb"], event)

    # Subscription and assignment

    async def subscribe(
        self, topics: Sequence[str], callbacks: Mapping[str, PartitionsCallback | None]
    ) -> None:
        """Subscribe to topics (names, or patterns that begin with ^) and join the group."""
        if not self.settings["group.id"]:
            raise failure(KafkaError._UNKNOWN_GROUP, 'subscribe() needs "group.id"')
        if not topics:
            raise failure(
                KafkaError._INVALID_ARG, "subscribe() needs a topic; unsubscribe() ends a subscription"
            )
        self._callbacks = dict(callbacks)
        self.subscription.subscribe(topics)
        if self.membership is None:
            self.membership = GroupMembership(self.cluster, self.subscription, self.settings, self)
            self.membership.start()
            self._start_auto_commit()
        else:
            self.membership.rejoin("the subscription changed")

    async def unsubscribe(self) -> None:
        """Leave the group and drop the assignment."""
        if self.membership is not None:
            # Until it has left the group, the consumer is a member and commits as a member.
            await self.membership.leave()
            self.membership = None
        self.subscription.unsubscribe()
        self.assign([])

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment."""
        self._assigned_by_application = True
        self.subscription.assign(partitions)
        self._on_assigned()

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; raises if one is assigned already."""
        self._assigned_by_application = True
        self.subscription.incremental_assign(partitions)
        self._on_assigned()

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions; raises if one is not assigned."""
        self._assigned_by_application = True
        self.subscription.incremental_unassign(partitions)

    def _on_assigned(self) -> None:
        topics = {topic for topic, _ in self.subscription.assigned}
        unknown = topics - set(self.cluster.topology.topics)
        self.cluster.interesting |= topics
        if unknown:
            self.cluster.refresh_soon().add_done_callback(lambda task: self.fetcher.wake())
        self._start_auto_commit()
        self.fetcher.wake()

    def seek(self, tp: TopicPartition) -> None:
        """Continue the partition at `tp.offset`; raises if it is not assigned."""
        partition = self.subscription.of(tp.topic, tp.partition)
        partition.seek(tp.offset)
        partition.not_before = 0.0
        self.fetcher.wake()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause these partitions. Ignores those that are not assigned: a rebalance may just have revoked them."""
        for tp in partitions:
            if (found := self.subscription.assigned.get(tp.key)) is not None:
                found.pause()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume these partitions. Ignores those that are not assigned, as `pause` does."""
        for tp in partitions:
            if (found := self.subscription.assigned.get(tp.key)) is not None:
                found.resume()
        self.fetcher.wake()

    # Rebalances, called by the membership

    def polled_at(self) -> float:
        """Return the loop time of the last poll, for `max.poll.interval.ms`."""
        return self.last_poll

    def on_group_error(self, error: KafkaError) -> None:
        """Deliver an error of the group to the application."""
        self.delivery.put(error_message(error))

    async def on_assign(self, partitions: Sequence[Partition]) -> None:
        """Run the on_assign callback, and assign the partitions unless the callback did."""
        if await self._asked("on_assign", partitions):
            return
        wanted = [TopicPartition(*partition) for partition in partitions]
        if self._cooperative:
            self.subscription.incremental_assign(
                tp for tp in wanted if tp.key not in self.subscription.assigned
            )
        else:
            self.subscription.assign(wanted)
        self._on_assigned()

    async def on_revoke(self, partitions: Sequence[Partition]) -> None:
        """Commit, run the on_revoke callback, and unassign the partitions unless the callback did."""
        self.subscription.withhold(partitions)
        await self.commit_before_giving_up()
        if await self._asked("on_revoke", partitions):
            self._keep(partitions)
            return
        await self.commit_before_giving_up()
        self._unassign(partitions)

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        """Drop the partitions without committing: another member may own them already."""
        self.subscription.withhold(partitions)
        kind = "on_lost" if self._callbacks.get("on_lost") is not None else "on_revoke"
        if await self._asked(kind, partitions):
            self._keep(partitions)
        else:
            self._unassign(partitions)

    def _keep(self, partitions: Sequence[Partition]) -> None:
        """Resume those that are still assigned, after the application's callback changed the assignment itself."""
        self.subscription.keep(partitions)
        self.fetcher.wake()

    @property
    def _cooperative(self) -> bool:
        return self.membership is not None and self.membership.cooperative

    def _unassign(self, partitions: Sequence[Partition]) -> None:
        self.subscription.incremental_unassign(p for p in partitions if p in self.subscription.assigned)

    async def _asked(self, kind: str, partitions: Sequence[Partition]) -> bool:
        """Run the callback, if there is one; True if it changed the assignment itself."""
        callback = self._callbacks.get(kind)
        if callback is None:
            return False
        self._assigned_by_application = False
        await self._ask(callback, [TopicPartition(*partition) for partition in partitions])
        return self._assigned_by_application

    # Commits

    def _start_auto_commit(self) -> None:
        automatic = self.settings["enable.auto.commit"] and self.settings["group.id"]
        if automatic and self._auto_commit is None:
            self._auto_commit = asyncio.get_running_loop().create_task(self._commit_now_and_then())

    async def _commit_now_and_then(self) -> None:
        interval_s = self.settings["auto.commit.interval.ms"] / 1000
        while True:
            await asyncio.sleep(interval_s)
            await self._commit_quietly(self.cluster.timeout_s)

    async def commit_before_giving_up(self) -> None:
        """Commit the positions before partitions are revoked, if commits are automatic."""
        if self.settings["enable.auto.commit"] and self.settings["group.id"]:
            await self._commit_quietly(_LAST_COMMIT_TIMEOUT_S)

    async def _commit_quietly(self, timeout_s: float) -> None:
        """Commit for no caller: a failure goes to the on_commit callback, and the next commit tries again."""
        if self.moved():
            with contextlib.suppress(KafkaException):
                await self.commit(None, timeout_s)

    def moved(self) -> dict[Partition, CommittedOffset]:
        """Return the offsets to commit: those that changed since the last commit."""
        automatic = self.settings["enable.auto.offset.store"]
        moved = self.subscription.to_commit(auto_store=automatic)
        return {key: CommittedOffset(offset, text, epoch) for key, (offset, epoch, text) in moved.items()}

    async def commit(
        self, offsets: Mapping[Partition, CommittedOffset] | None, timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Commit these offsets, or (with None) those that changed. Raises if no partition could be committed."""
        if not self.settings["group.id"]:
            raise failure(KafkaError._UNKNOWN_GROUP, 'committing needs "group.id"')
        async with self._commit_lock:
            chosen = self.moved() if offsets is None else offsets
            try:
                if not chosen:
                    raise failure(KafkaError._NO_OFFSET)
                rows = await self._commit(chosen, timeout_s or self.cluster.timeout_s)
            except KafkaException as error:
                self._report_commit(error.error, [])
                raise
        errors = [row.error for row in rows if row.error is not None]
        failed = errors[0] if errors and len(errors) == len(rows) else None
        self._report_commit(failed, rows)
        if failed is not None:
            raise KafkaException(failed)
        return rows

    async def _commit(
        self, offsets: Mapping[Partition, CommittedOffset], timeout_s: float
    ) -> list[TopicPartition]:
        group_id = self.settings["group.id"]
        member = self.membership.member if self.membership is not None else None
        if member is not None and member.expelled:
            # A commit without a member id could overwrite the commits of the new owners.
            raise failure(ErrorCode.UNKNOWN_MEMBER_ID, f"no longer a member of group {group_id!r}")
        committer = member.committer if member is not None else NOBODY
        results = await commit_offsets(self.cluster, group_id, offsets, committer, timeout_s)
        self.subscription.on_committed(
            {key: offsets[key].offset for key, code in results.items() if not code and key in offsets}
        )
        return [
            TopicPartition(*key, offsets[key].offset, error=error_of(code) if code else None)
            for key, code in results.items()
        ]

    def _report_commit(self, error: KafkaError | None, rows: list[TopicPartition]) -> None:
        if self.settings["on_commit"] is not None:
            self._tell(self.settings["on_commit"], error, rows)

    def store_offsets(self, offsets: Mapping[Partition, CommittedOffset]) -> None:
        """Store the offsets for the next commit. Any thread may call this."""
        if self.settings["enable.auto.offset.store"]:
            raise failure(
                KafkaError._INVALID_ARG, '"enable.auto.offset.store" must be false to store offsets'
            )
        for key, row in offsets.items():
            partition = self.subscription.of(*key)
            partition.stored, partition.stored_metadata = row.offset, row.metadata

    # Queries. The functions that are not coroutines read whole values: any thread may call them.

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, each with the offset where reading started."""
        return [TopicPartition(p.topic, p.partition, p.start) for p in self.subscription.assigned.values()]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last delivered message; OFFSET_INVALID before the first."""
        rows = []
        for tp in partitions:
            found = self.subscription.assigned.get(tp.key)
            known = found is not None and found.consumed and found.position is not None
            offset = found.position if known and found is not None else None
            rows.append(TopicPartition(tp.topic, tp.partition, OFFSET_INVALID if offset is None else offset))
        return rows

    def cached_watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """Return log start offset and high watermark from the last fetch; OFFSET_INVALID before the first fetch."""
        known = self.subscription.assigned.get(tp.key)
        return (known.log_start_offset, known.high_watermark) if known else (OFFSET_INVALID, OFFSET_INVALID)

    async def committed(self, partitions: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """Return the group's committed offsets; OFFSET_INVALID for a partition without one."""
        if not self.settings["group.id"]:
            raise failure(KafkaError._UNKNOWN_GROUP, 'committed() needs "group.id"')
        keys = [tp.key for tp in partitions]
        isolation = self.settings["isolation.level"]
        found = await fetch_committed(self.cluster, self.settings["group.id"], keys, isolation, timeout_s)
        return [_committed_row(tp, found.get(tp.key)) for tp in partitions]

    async def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> list[TopicPartition]:
        """Look up offsets by time: `offset` holds milliseconds. OFFSET_END means that no record is that recent."""
        times = {tp.key: tp.offset for tp in partitions}
        found = await list_offsets(self.cluster, times, self.settings["isolation.level"], timeout_s)
        rows = []
        for tp in partitions:
            answer = found[tp.key]
            if isinstance(answer, KafkaError):
                rows.append(TopicPartition(tp.topic, tp.partition, OFFSET_INVALID, error=answer))
            else:
                offset = answer.offset if answer.offset >= 0 else OFFSET_END
                rows.append(TopicPartition(tp.topic, tp.partition, offset, leader_epoch=answer.leader_epoch))
        return rows

    async def watermarks(self, tp: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Ask the leader for the log start offset and the high watermark."""
        ends = []
        for timestamp in (EARLIEST, LATEST):
            answer = (await list_offsets(self.cluster, {tp.key: timestamp}, 0, timeout_s))[tp.key]
            if not isinstance(answer, OffsetAndTimestamp):
                raise KafkaException(answer)
            ends.append(answer.offset)
        return ends[0], ends[1]

    async def metadata(self, topics: Sequence[str] | None) -> ClusterMetadata:
        """Refresh and return the cluster's metadata, of all topics if None. An empty name stands for no topic."""
        names = None if topics is None else [topic for topic in topics if topic]
        await self.cluster.refresh(names)
        return self.cluster.topology.describe(names)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return group id, generation and member id, for `send_offsets_to_transaction`."""
        group_id = self.settings["group.id"] or ""
        if self.membership is None:
            return ConsumerGroupMetadata(group_id)
        member = self.membership.member
        return ConsumerGroupMetadata(
            group_id, member.generation, member.member_id, self.settings["group.instance.id"]
        )

    async def close(self) -> None:
        """Leave the group, commit the last positions and close the connections."""
        if self._auto_commit is not None:
            self._auto_commit.cancel()
        try:
            if self.membership is not None:
                await self.membership.leave()
                self.membership = None
            else:
                await self.commit_before_giving_up()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Close the connections without leaving the group."""
        self.fetcher.close()
        await self.cluster.close()


def _committed_row(tp: TopicPartition, found: CommittedOffset | None) -> TopicPartition:
    if found is None or found.error_code:
        code = found.error_code if found is not None else KafkaError._UNKNOWN_PARTITION
        return TopicPartition(tp.topic, tp.partition, OFFSET_INVALID, error=error_of(code))
    if found.offset < 0:
        return TopicPartition(tp.topic, tp.partition, OFFSET_INVALID)
    epoch = found.leader_epoch if found.leader_epoch >= 0 else None
    return TopicPartition(tp.topic, tp.partition, found.offset, found.metadata or None, epoch)
