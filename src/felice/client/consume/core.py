"""The core of a consumer on its event loop: assignment, fetching, commits and the group. Both APIs build on it.

Keeps true:  Only delivered offsets are committed: the positions with automatic commits, otherwise the offsets that the
             application stored or named.
             With automatic commits, every removal of partitions commits what was handed out of them: a revocation
             before the partitions are given up, every other removal in the background. From the start of a
             revocation, and while the application's callback runs, none of its records is delivered.
             A look-up of committed offsets, the end of a revocation and the close wait for the commits on their way.
             If a rebalance callback assigns or unassigns partitions itself, its assignment holds. Otherwise the
             consumer applies the rebalance as the coordinator sent it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from felice.client.consume.commits import Commits, failure_of_all, row_of
from felice.client.consume.delivery import Delivery
from felice.client.consume.fetcher import Fetcher
from felice.client.consume.offsets import (
    EARLIEST,
    LATEST,
    UNKNOWN_LIMIT_S,
    commit_offsets,
    fetch_committed,
    list_offsets,
)
from felice.client.consume.statistics import describe_consumer
from felice.client.consume.subscription import AssignedPartition, Subscription
from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.group.consumer_group import GroupMembership
from felice.client.group.consumer_membership import ConsumerMembership
from felice.client.group.epoch_membership import EpochMembership
from felice.client.group.requests import NOBODY, CommittedOffset
from felice.client.model import (
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ClusterMetadata,
    ConsumerGroupMetadata,
    OffsetAndTimestamp,
    Partition,
    ThrottleEvent,
    TopicPartition,
    error_message,
)
from felice.client.net.cluster import Cluster
from felice.client.net.limits import limited
from felice.client.net.statistics import Document, Statistics
from felice.client.options import ConsumerSettings
from felice.protocol.errors import ErrorCode

PartitionsCallback = Callable[[list[TopicPartition]], object]
"""A rebalance callback of the application: on_assign, on_revoke or on_lost."""

AskApplication = Callable[[PartitionsCallback, list[TopicPartition]], Awaitable[None]]
"""Runs a rebalance callback of the application, in the thread that the API chooses."""

_LAST_COMMIT_TIMEOUT_S = 5.0
_NOT_THIS_MEMBER = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ConsumerCore:
    """One consumer. `ask` runs the application's rebalance callbacks, `tell` its notices (commits, errors).

    Its methods run on the event loop, except those that say otherwise.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        delivery: Delivery,
        ask: AskApplication,
        tell: Callable[..., None],
    ) -> None:
        self.settings = settings
        self.delivery = delivery
        self._by_epoch = settings.group_protocol == "consumer"
        self.subscription = Subscription(resolves_patterns=not self._by_epoch)
        self.cluster = Cluster(settings, self._on_cluster_error, self._on_throttled)
        self.fetcher = Fetcher(self.cluster, self.subscription, delivery, settings)
        self.membership: GroupMembership | None = None
        self.last_poll = asyncio.get_running_loop().time()
        self._ask = ask
        self._tell = tell
        self._callbacks: dict[str, PartitionsCallback | None] = {}
        self._assigned_by_application = False
        self._is_ending = False
        self._auto_commit: asyncio.Task[None] | None = None
        self._commits = Commits(
            self._send_commit, self.cluster.timeout_s, self._report_commit if settings.on_commit else None
        )
        self.fatal: KafkaError | None = None
        # Of partitions that are no longer assigned.
        self._last_watermarks: dict[Partition, tuple[int, int]] = {}
        if settings.group_id:
            self.fetcher.find_committed = self._find_committed
        self.statistics = Statistics(self.cluster, settings, self._describe, tell)
        self.statistics.start()

    @classmethod
    async def start(
        cls, settings: ConsumerSettings, delivery: Delivery, ask: AskApplication, tell: Callable[..., None]
    ) -> ConsumerCore:
        """Create the consumer on the running event loop."""
        return cls(settings, delivery, ask, tell)

    def _on_cluster_error(self, error: KafkaError) -> None:
        if self.settings.error_cb is not None:
            self._tell(self.settings.error_cb, error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            # The error does not end a wait for a coordinator: many applications stop at the first error of a poll.
            self.delivery.put(error_message(error))

    def _describe(self, document: Document) -> None:
        describe_consumer(document, self.cluster, self.subscription, self.delivery, self.membership)

    def _on_throttled(self, event: ThrottleEvent) -> None:
        if self.settings.throttle_cb is not None:
            self._tell(self.settings.throttle_cb, event)

    # Subscription and assignment

    async def subscribe(
        self, topics: Sequence[str], callbacks: Mapping[str, PartitionsCallback | None]
    ) -> None:
        """Subscribe to topics (names, or patterns that begin with ^) and join the group."""
        if not self.settings.group_id:
            raise failure(KafkaError._UNKNOWN_GROUP, 'subscribe() needs "group.id"')
        self._check_alive()
        if not topics or not all(topics):
            raise failure(
                KafkaError._INVALID_ARG,
                "subscribe() needs topics with names; unsubscribe() ends a subscription",
            )
        if len(set(topics)) < len(topics):
            raise failure(KafkaError._INVALID_ARG, "subscribe(): a topic is named twice")
        self.subscription.subscribe(topics)
        self._callbacks = dict(callbacks)
        if self.membership is None:
            kind = EpochMembership if self._by_epoch else ConsumerMembership
            self.membership = kind(self.cluster, self.subscription, self.settings, self)
            self.membership.start()
            self._start_auto_commit()
        else:
            self.membership.rejoin("the subscription changed")

    async def unsubscribe(self) -> None:
        """Leave the group and drop the assignment."""
        self._check_alive()
        await self._give_up_everything()
        self.subscription.unsubscribe()

    async def _give_up_everything(self) -> None:
        """Revoke all partitions, commit, drop the assignment and leave the group, in this order."""
        membership = self.membership
        if membership is not None:
            self._is_ending = True
            try:
                await membership.end()
            finally:
                self._is_ending = False
        self._assigned_by_application = True
        self._on_removed(self.subscription.assign([]))
        # Until it has left the group, the consumer is a member and commits as a member.
        await self._commits.finish(_LAST_COMMIT_TIMEOUT_S)
        if membership is not None:
            await membership.leave("the consumer was closed or unsubscribed")
            self.membership = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment. Raises _STATE if the broker assigns the partitions of the group."""
        if self._by_epoch and self.membership is not None and not self._is_ending:
            # As in librdkafka: the broker adds and removes single partitions, so no call replaces the whole assignment.
            why = "with group.protocol=consumer, use incremental_assign() and incremental_unassign()"
            raise failure(KafkaError._STATE, f"assign() and unassign(): {why}")
        removed = self.subscription.assign(partitions)
        self._assigned_by_application = True
        self._on_removed(removed)
        self._on_assigned()

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions; raises if one is assigned already."""
        self.subscription.incremental_assign(partitions)
        self._assigned_by_application = True
        self._on_assigned()

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions; raises if one is not assigned."""
        removed = self.subscription.incremental_unassign(partitions)
        self._assigned_by_application = True
        self._on_removed(removed)

    def _on_removed(self, partitions: list[AssignedPartition]) -> None:
        self._last_watermarks.update({p.key: p.watermarks for p in partitions})
        if self._commits_automatically and (offsets := self.moved(partitions)):
            self.commit_later(offsets)

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
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"expected a TopicPartition, not {type(tp).__name__}")
        partition = self._known(tp.topic, tp.partition)
        partition.seek(tp.offset)
        partition.not_before = 0.0
        self.fetcher.wake()

    def _known(self, topic: str, number: int) -> AssignedPartition:
        """Return an assigned partition; raises another error if its topic was never assigned."""
        if topic not in self.cluster.interesting:
            raise failure(KafkaError._UNKNOWN_PARTITION, f"{topic}-{number} was never assigned")
        return self.subscription.of(topic, number)

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

    def on_group_error(self, error: KafkaError, topic: str = "") -> None:
        """Deliver an error of the group, or of one subscribed topic, to the application."""
        # librdkafka names partition 0 beside a topic.
        self.delivery.put(error_message(error, topic, 0 if topic else -1))

    def on_fatal_error(self, error: KafkaError) -> None:
        """Deliver an error after which this consumer cannot be a member again."""
        self.on_group_error(self._fail_for_good(error))

    def _fail_for_good(self, error: KafkaError) -> KafkaError:
        """Refuse commits and subscriptions from now on."""
        self.fatal = KafkaError(
            KafkaError._FATAL, f"{error_of(KafkaError._FATAL).str()}: {error.str()}", fatal=True
        )
        return self.fatal

    def _check_alive(self) -> None:
        if self.fatal is not None:
            raise KafkaException(self.fatal)

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
            self._on_removed(self.subscription.assign(wanted))
        self._on_assigned()

    async def on_revoke(self, partitions: Sequence[Partition]) -> None:
        """Commit, run the on_revoke callback, unassign the partitions unless the callback did, and commit again."""
        self.subscription.withhold(partitions)
        self._commit_what_moved()
        await self._commits.finish(_LAST_COMMIT_TIMEOUT_S)
        if await self._asked("on_revoke", partitions):
            self._keep(partitions)
        else:
            self._unassign(partitions)
        await self._commits.finish(_LAST_COMMIT_TIMEOUT_S)

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        """Drop the partitions without committing: another member may own them already."""
        self.subscription.withhold(partitions)
        self.subscription.lose(partitions)
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
        self._on_removed(
            self.subscription.incremental_unassign(p for p in partitions if p in self.subscription.assigned)
        )

    async def _asked(self, kind: str, partitions: Sequence[Partition]) -> bool:
        """Run the callback, if there is one; True if it changed the assignment itself."""
        callback = self._callbacks.get(kind)
        if callback is None:
            return False
        self._assigned_by_application = False
        await self._ask(callback, [TopicPartition(*partition) for partition in partitions])
        return self._assigned_by_application

    # Commits

    @property
    def _commits_automatically(self) -> bool:
        return bool(self.settings.enable_auto_commit and self.settings.group_id)

    def _start_auto_commit(self) -> None:
        if self._commits_automatically and self._auto_commit is None:
            self._auto_commit = asyncio.get_running_loop().create_task(self._commit_now_and_then())

    async def _commit_now_and_then(self) -> None:
        interval_s = self.settings.auto_commit_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            self._commit_what_moved()
            await self._commits.wait()

    def _commit_what_moved(self) -> None:
        """Begin a commit, if commits are automatic and offsets changed."""
        if self._commits_automatically and (offsets := self.moved()):
            self.commit_later(offsets)

    def moved(
        self, partitions: Iterable[AssignedPartition] | None = None
    ) -> dict[Partition, CommittedOffset]:
        """Return the offsets to commit of these partitions (None: all): those that changed since the last commit."""
        automatic = self.settings.enable_auto_offset_store
        moved = self.subscription.to_commit(auto_store=automatic, partitions=partitions)
        return {key: CommittedOffset(offset, text, epoch) for key, (offset, epoch, text) in moved.items()}

    def check_group(self, what: str) -> None:
        """Raise unless there is a group. Any thread may call this."""
        if not self.settings.group_id:
            raise failure(KafkaError._UNKNOWN_GROUP, f'{what} needs "group.id"')

    async def commit(
        self, offsets: Mapping[Partition, CommittedOffset] | None, timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Commit these offsets, or (with None) those that changed. Raises if no partition could be committed.

        `timeout_s` is `request.timeout.ms` if not given.
        """
        self.check_group("committing")
        self._check_alive()
        chosen = self.moved() if offsets is None else offsets
        if not chosen:
            raise failure(KafkaError._NO_OFFSET)
        rows = await self._commits.run(chosen, self._limit_s(timeout_s))
        if (failed := failure_of_all(rows)) is not None:
            raise KafkaException(failed)
        return rows

    def commit_later(self, offsets: Mapping[Partition, CommittedOffset] | None) -> None:
        """Begin to commit these offsets, or (with None) those that changed; `on_commit` gets the result."""
        chosen = self.moved() if offsets is None else offsets
        if chosen:
            self._commits.begin(chosen)
        elif self.settings.on_commit is not None:
            rows = [TopicPartition(*key) for key in self.subscription.assigned]
            self._report_commit(error_of(KafkaError._NO_OFFSET), rows)

    def _report_commit(self, error: KafkaError | None, rows: list[TopicPartition]) -> None:
        self._tell(self.settings.on_commit, error, rows)

    async def _send_commit(self, offsets: Mapping[Partition, CommittedOffset]) -> dict[Partition, int]:
        """Send one commit as the member that this consumer is now; returns the error code of each partition."""
        group_id = self.settings.group_id
        self._check_alive()
        membership = self.membership
        if membership is not None and membership.member.expelled:
            # A commit without a member id could overwrite the commits of the new owners.
            raise failure(ErrorCode.UNKNOWN_MEMBER_ID, f"no longer a member of group {group_id!r}")
        committer = membership.member.committer if membership is not None else NOBODY
        results = await commit_offsets(self.cluster, group_id, offsets, committer)
        while stale := [key for key, code in results.items() if code == ErrorCode.STALE_MEMBER_EPOCH]:
            if membership is None or not await membership.is_renewed(committer):
                break
            committer, again = membership.member.committer, {key: offsets[key] for key in stale}
            results |= await commit_offsets(self.cluster, group_id, again, committer)
        if ErrorCode.FENCED_INSTANCE_ID in results.values():
            raise KafkaException(self._fail_for_good(error_of(ErrorCode.FENCED_INSTANCE_ID)))
        self.subscription.on_committed(
            {key: offsets[key].offset for key, code in results.items() if not code and key in offsets}
        )
        return results

    def store_offsets(self, offsets: Mapping[Partition, CommittedOffset]) -> None:
        """Store the offsets for the next commit. Any thread may call this."""
        if self.settings.enable_auto_offset_store:
            raise failure(
                KafkaError._INVALID_ARG, '"enable.auto.offset.store" must be false to store offsets'
            )
        errors = []
        for key, row in offsets.items():
            try:
                partition = self._known(*key)
            except KafkaException as error:
                errors.append(error)
            else:
                partition.stored, partition.stored_metadata = (row.offset, row.leader_epoch), row.metadata
        if errors and len(errors) == len(offsets):
            raise errors[0]

    # Queries. The functions that are not coroutines read whole values: any thread may call them.

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, each with the offset where reading started."""
        return [
            TopicPartition(p.topic, p.partition, OFFSET_STORED if p.start == OFFSET_INVALID else p.start)
            for p in self.subscription.assigned.values()
        ]

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last delivered message; OFFSET_INVALID before the first."""
        rows = []
        for tp in partitions:
            found = self.subscription.assigned.get(tp.key)
            place = None if found is None else found.place
            known = place is not None and place.consumed
            if known and place is not None and place.position is not None:
                rows.append(row_of(tp.key, CommittedOffset(place.position, "", place.leader_epoch), 0))
            else:
                rows.append(TopicPartition(tp.topic, tp.partition))
        return rows

    def cached_watermarks(self, tp: TopicPartition) -> tuple[int, int]:
        """Return log start offset and high watermark from the last fetch; OFFSET_INVALID before the first fetch."""
        known = self.subscription.assigned.get(tp.key)
        if known is not None and known.watermarks != (-1, -1):
            return known.watermarks
        low, high = self._last_watermarks.get(tp.key, (-1, -1))
        return (OFFSET_INVALID if low < 0 else low), (OFFSET_INVALID if high < 0 else high)

    # The coroutines end after `timeout_s`, by default (None or negative) after `request.timeout.ms`.

    def _limit_s(self, timeout_s: float | None) -> float:
        return self.cluster.timeout_s if timeout_s is None or timeout_s < 0 else timeout_s

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; OFFSET_INVALID for a partition without one."""
        self.check_group("committed()")
        keys = [tp.key for tp in partitions]
        async with limited(self._limit_s(timeout_s), "committed(): no answer"):
            found = await self._find_committed(keys, waits_for_all=True)
        return [_committed_row(tp, found.get(tp.key)) for tp in partitions]

    async def _find_committed(
        self, keys: Sequence[Partition], *, waits_for_all: bool
    ) -> dict[Partition, CommittedOffset]:
        """Look up committed offsets; in a group of KIP-848 with the member's epoch, which the coordinator checks.

        Waits for the commits on their way, because they may change these offsets.
        """
        await self._commits.wait()
        group_id, isolation = self.settings.group_id, self.settings.isolation_level
        while True:
            membership = self.membership if self._by_epoch else None
            reader = NOBODY if membership is None else membership.member.committer
            try:
                return await fetch_committed(
                    self.cluster, group_id, keys, isolation, waits_for_all=waits_for_all, reader=reader
                )
            except KafkaException as error:
                if membership is None or error.code not in _NOT_THIS_MEMBER:
                    raise
                if not await membership.is_renewed(reader):
                    # A retry can succeed: the heartbeats bring the member back, or take the partitions away.
                    raise failure(error.code, f"offsets of group {group_id!r}", retriable=True) from None

    async def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Look up offsets by time: `offset` holds milliseconds. OFFSET_END means that no record is that recent.

        A partition that cannot be looked up carries an error. Raises the error if that is so of all partitions.
        """
        if not partitions:
            raise failure(KafkaError._INVALID_ARG, "offsets_for_times() needs partitions")
        times = {tp.key: tp.offset for tp in partitions}
        async with limited(self._limit_s(timeout_s), "offsets_for_times(): no answer", self._late_code):
            found = await list_offsets(self.cluster, times, self.settings.isolation_level, UNKNOWN_LIMIT_S)
        if not any(isinstance(answer, OffsetAndTimestamp) for answer in found.values()):
            raise KafkaException(next(iter(found.values())))
        rows = []
        for tp in partitions:
            answer = found[tp.key]
            if isinstance(answer, KafkaError):
                rows.append(TopicPartition(tp.topic, tp.partition, tp.offset, error=answer))
            else:
                offset = answer.offset if answer.offset >= 0 else OFFSET_END
                rows.append(TopicPartition(tp.topic, tp.partition, offset, leader_epoch=answer.leader_epoch))
        return rows

    async def watermarks(self, tp: TopicPartition, timeout_s: float | None = None) -> tuple[int, int]:
        """Ask the leader for the log start offset and the end: what this consumer may read (`isolation.level`)."""
        ends = []
        isolation = self.settings.isolation_level
        async with limited(self._limit_s(timeout_s), "get_watermark_offsets(): no answer", self._late_code):
            for timestamp in (EARLIEST, LATEST):
                found = await list_offsets(self.cluster, {tp.key: timestamp}, isolation, UNKNOWN_LIMIT_S)
                answer = found[tp.key]
                if not isinstance(answer, OffsetAndTimestamp):
                    raise KafkaException(answer)
                ends.append(answer.offset)
        return ends[0], ends[1]

    @property
    def _late_code(self) -> int:
        """The error of a lookup that ended at its limit: as with librdkafka, another one before any broker answered."""
        return KafkaError._TIMED_OUT if self.cluster.topology.brokers else KafkaError._ALL_BROKERS_DOWN

    async def metadata(
        self, topics: Sequence[str] | None, timeout_s: float | None = None, code: int = KafkaError._TRANSPORT
    ) -> ClusterMetadata:
        """Refresh and return the cluster's metadata, of all topics if None. An empty name stands for no topic.

        After the limit it raises `code`, by default librdkafka's.
        """
        return await self.cluster.describe(topics, self._limit_s(timeout_s), code)

    @property
    def member_id(self) -> str:
        """The id of the group's member; an empty text outside a group. Any thread may read this."""
        return "" if self.membership is None else self.membership.member.member_id

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return group id, generation and member id, for `send_offsets_to_transaction`."""
        group_id = self.settings.group_id
        if self.membership is None:
            return ConsumerGroupMetadata(group_id)
        member = self.membership.member.committer
        return ConsumerGroupMetadata(group_id, member.generation, member.member_id, member.instance_id)

    async def close(self) -> None:
        """Commit the last positions, leave the group and close the connections."""
        if self._auto_commit is not None:
            self._auto_commit.cancel()
        try:
            await self._give_up_everything()
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
    return row_of(tp.key, found, 0)
