"""Keeps a consumer in its group: joins, assigns partitions as the leader, sends heartbeats, rejoins, leaves.

Keeps true:  partitions are revoked (callback, commit) before other members can get them: an eager member revokes before
             it joins, a cooperative member before it joins again (KIP-429).
             Heartbeats continue while callbacks run. A consumer that is not polled for `max.poll.interval.ms` leaves
             the group, and joins again when it is polled. Partitions that the group took away are reported as lost.
How:         three tasks: one joins, syncs and waits for the next reason to rebalance; one sends heartbeats; one watches
             the topics.
Leaves:      the protocol's decisions to `member`, callbacks and commits to its `Rebalances`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.group.member import GroupMember, GroupSettings, MemberAction
from felice.client.model import Partition
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.waiting import Waiting
from felice.client.options import Settings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.join_group import JoinGroupResponse
from felice.protocol.messages.sync_group import SyncGroupRequestAssignment
from felice.protocol.patterns import Pattern
from felice.protocol.primitives import MalformedMessage

_WATCH_INTERVAL_S = 1.0
_JOIN = "join"


class Rebalances(Protocol):
    """The consumer's reactions to a rebalance: assigning, revoking, reporting errors."""

    async def on_assign(self, partitions: Sequence[Partition]) -> None:
        """Take over these partitions."""

    async def on_revoke(self, partitions: Sequence[Partition]) -> None:
        """Give these partitions up, after a commit."""

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        """Give these partitions up without a commit: other members may own them."""

    def on_group_error(self, error: KafkaError) -> None:
        """Report an error of the group to the application."""

    def polled_at(self) -> float:
        """Return the loop time of the application's last poll."""


class Interest(Protocol):
    """The topics that the consumer subscribes to, by name and by pattern."""

    topics: frozenset[str]
    pattern: Pattern | None

    def wanted_topics(self, existing: Iterable[str]) -> set[str]:
        """Return the subscribed topics, given the existing ones."""


class GroupMembership:
    """The membership of one consumer. Runs on the loop from `start` to `leave`."""

    def __init__(
        self, cluster: Cluster, subscription: Interest, settings: Settings, rebalances: Rebalances
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._settings = settings
        self._rebalances = rebalances
        self._log = settings.logger("group")
        self._loop = asyncio.get_running_loop()
        self.member = GroupMember(
            GroupSettings(
                settings["group.id"],
                settings["group.instance.id"],
                settings["session.timeout.ms"],
                settings["max.poll.interval.ms"],
                settings["partition.assignment.strategy"],
                settings["client.rack"] or None,
            )
        )
        self._reason = asyncio.Event()
        self._why = "first join"
        self._lost = False
        self._fenced = False
        self._coordinator = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._stable = False
        self.rebalance_count = 0
        self._rebalanced_at = self._loop.time()
        self._attempt = 0
        self._joined_topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._complained: set[str] = set()
        # Reports once if a coordinator does not let this member join for long.
        self._waiting = Waiting(self._loop.time, cluster.tell_of_waiting)

    @property
    def stable(self) -> bool:
        """True while an assignment is in force."""
        return self._stable

    @property
    def last_reason(self) -> str:
        """The reason for the last rebalance, if this member knows it."""
        return self._why

    @property
    def rebalance_age_ms(self) -> int:
        """Milliseconds since the last assignment came into force, or since the start."""
        return int((self._loop.time() - self._rebalanced_at) * 1000)

    @property
    def cooperative(self) -> bool:
        """True if the member rebalances cooperatively (KIP-429)."""
        return self.member.cooperative

    def start(self) -> None:
        """Start the tasks that join the group, send heartbeats and watch the topics."""
        if not self._tasks:
            self._tasks = [
                self._loop.create_task(self._run()),
                self._loop.create_task(self._send_heartbeats()),
                self._loop.create_task(self._watch()),
            ]

    def rejoin(self, why: str) -> None:
        """Rebalance as soon as possible, because the subscription or the topics changed."""
        self._why = why
        self._reason.set()

    # Join and sync

    async def _run(self) -> None:
        await self._learn_topics()
        while not self._fenced:
            try:
                if await self._join():
                    self._attempt = 0
                    await self._reason.wait()
                    await self._before_rejoin()
                    continue
            except KafkaException as error:
                self._on_exception(error)
            except MalformedMessage as error:
                self._rebalances.on_group_error(error_of(KafkaError._BAD_MSG, str(error)))
            if self._lost:
                await self._drop_lost()
            await asyncio.sleep(backoff_s(self._attempt, 100, 1000, self._settings.env.random))
            self._attempt += 1

    def _on_exception(self, error: KafkaException) -> None:
        self._log.debug("group %s: %s", self.member.settings.group_id, error.error.str())
        self._cluster.forget_coordinator(self.member.settings.group_id)
        if not error.error.retriable():
            self._rebalances.on_group_error(error.error)

    async def _before_rejoin(self) -> None:
        """Revoke the partitions that a join may not keep. Heartbeats continue until the callback is done."""
        if not self._lost and not self.cooperative:
            await self._revoke(sorted(self.member.owned))
        self._stable = False
        if self._lost:
            await self._drop_lost()

    async def _drop_lost(self) -> None:
        self._lost = False
        owned = sorted(self.member.owned)
        self.member.own(())
        if owned:
            await self._rebalances.on_lost(owned)

    async def _revoke(self, partitions: Sequence[Partition]) -> None:
        if partitions:
            await self._rebalances.on_revoke(partitions)
            self.member.own(self.member.owned.difference(partitions))

    async def _join(self) -> bool:
        """Run one rebalance; True if it ended with an assignment in force."""
        self._reason.clear()
        while self._is_idle():
            await asyncio.sleep(0.1)
        topics = self._subscription.wanted_topics(self._cluster.topology.topics)
        request = self.member.join_request(topics, self._why)
        limit_s = self._settings["max.poll.interval.ms"] / 1000 + self._cluster.timeout_s
        response = await self._ask(request, limit_s)
        step = self.member.on_join(response)
        if step is not MemberAction.GO_ON:
            return await self._on_other_action(step, response.error_code)
        self._joined_topics = frozenset(topics)
        assignments = []
        if self.member.is_leader and not response.skip_assignment:
            assignments = await self._assign(response)
        answer = await self._ask(self.member.sync_request(assignments), limit_s)
        step = self.member.on_sync(answer.error_code)
        if step is not MemberAction.GO_ON:
            return await self._on_other_action(step, answer.error_code)
        self._waiting.end(_JOIN)
        await self._apply_assignment(answer.assignment)
        return True

    async def _assign(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        subscriptions = self.member.subscriptions(response)
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        self._cluster.interesting |= topics
        await self._cluster.refresh(sorted(topics), allow_auto_create=self._cluster.allow_auto_create)
        self._counts = self._partition_counts(topics)
        counts = {topic: count for topic, count in self._counts.items() if count}
        return self.member.assignments(subscriptions, counts)

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self._cluster.topology.partition_count(topic) for topic in topics}

    async def _apply_assignment(self, data: bytes) -> None:
        change = self.member.on_assignment(data)
        self._log.debug(
            "group %s: generation %d, %d partitions assigned",
            self.member.settings.group_id,
            self.member.generation,
            len(change.assigned),
        )
        self._stable = True
        self.rebalance_count += 1
        self._rebalanced_at = self._loop.time()
        if self.cooperative:
            await self._revoke(change.revoked)
        self.member.own(change.assigned)
        if change.added or not self.cooperative or not change.assigned:
            await self._rebalances.on_assign(change.added)
        if change.revoked and self.cooperative:
            self.rejoin("revoked partitions can be assigned to others now")

    async def _on_other_action(self, step: MemberAction, code: int) -> bool:
        group_id = self.member.settings.group_id
        if step in (MemberAction.FIND, MemberAction.RETRY, MemberAction.FORGET):
            self._waiting.go_on(_JOIN, error_of(code, f"group {group_id!r} cannot be joined yet"))
        if step is MemberAction.FIND:
            self._cluster.forget_coordinator(group_id)
        elif step is MemberAction.FORGET:
            await self._drop_lost()
        elif step is MemberAction.STOP:
            self._rebalances.on_group_error(error_of(code, f"group {group_id!r}"))
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._fenced = True
                await self._drop_lost()
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self._join()
        return False

    async def _ask(self, request: object, timeout_s: float | None = None) -> Any:
        group_id = self.member.settings.group_id
        self._coordinator = await self._cluster.coordinator(group_id, self._cluster.timeout_s)
        return await self._cluster.call(self._coordinator, request, purpose="group", timeout_s=timeout_s)

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        interval_s = self._settings["heartbeat.interval.ms"] / 1000
        while True:
            await asyncio.sleep(min(interval_s, 0.5) if self._is_idle() else interval_s)
            if self._is_idle() and self.member.joined:
                await self._leave_idle()
            elif self.member.joined and self._stable:
                await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        generation = self.member.generation
        limit_s = self._settings["session.timeout.ms"] / 1000
        try:
            response = await self._ask(self.member.heartbeat_request(), limit_s)
        except KafkaException:
            self._cluster.forget_coordinator(self.member.settings.group_id)
            return
        if generation != self.member.generation or not self._stable:
            return
        step = self.member.on_heartbeat(response.error_code)
        if step is MemberAction.FORGET or step is MemberAction.STOP:
            self._lost = True
        if step is MemberAction.STOP:
            # Another member has this instance id: joining again would only fence it in turn.
            self._fenced = response.error_code == ErrorCode.FENCED_INSTANCE_ID
            self.member.forget()
            self._rebalances.on_group_error(
                error_of(response.error_code, f"group {self.member.settings.group_id!r}")
            )
        if step is MemberAction.FIND:
            self._cluster.forget_coordinator(self.member.settings.group_id)
        elif step not in (MemberAction.GO_ON, MemberAction.RETRY):
            self.rejoin("the group rebalances")

    def _is_idle(self) -> bool:
        """True if the application has stopped polling (KIP-62)."""
        idle_s = self._loop.time() - self._rebalances.polled_at()
        return bool(idle_s > self._settings["max.poll.interval.ms"] / 1000)

    async def _leave_idle(self) -> None:
        limit = self._settings["max.poll.interval.ms"]
        self._rebalances.on_group_error(
            error_of(KafkaError._MAX_POLL_EXCEEDED, f"not polled for more than {limit} ms")
        )
        await self._send_leave("max.poll.interval.ms exceeded")
        self.member.forget()
        self._lost = True
        self.rejoin("polled again")

    # Topics

    async def _learn_topics(self) -> None:
        with contextlib.suppress(KafkaException):
            await self._refresh()

    async def _refresh(self) -> None:
        subscription = self._subscription
        self._cluster.interesting |= subscription.topics
        if subscription.pattern is not None:
            await self._cluster.refresh(None)
        else:
            names = sorted(subscription.topics)
            await self._cluster.refresh(names, allow_auto_create=self._cluster.allow_auto_create)

    async def _watch(self) -> None:
        """Rebalance if subscribed topics are created, deleted or get partitions."""
        age_s = self._settings["metadata.max.age.ms"] / 1000
        refreshed = self._loop.time()
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            topology = self._cluster.topology
            missing = [name for name in self._subscription.topics if not topology.partition_count(name)]
            if missing or self._loop.time() - refreshed > age_s:
                refreshed = self._loop.time()
                with contextlib.suppress(KafkaException):
                    await self._refresh()
                self._report_missing(missing)
            if self._stable and self._topics_changed():
                self.rejoin("topics changed")

    def _topics_changed(self) -> bool:
        wanted = self._subscription.wanted_topics(self._cluster.topology.topics)
        if wanted != self._joined_topics:
            return True
        return self.member.is_leader and self._partition_counts(self._counts) != self._counts

    def _report_missing(self, missing: list[str]) -> None:
        """Report each subscribed topic that does not exist, once."""
        for name in missing:
            code = self._cluster.topology.topic_errors.get(name, 0)
            if name not in self._complained and code:
                self._complained.add(name)
                self._rebalances.on_group_error(error_of(code, f"subscribed topic not available: {name}"))

    # The end

    async def leave(self) -> None:
        """Revoke all partitions and leave the group."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stable = False
        if self._lost:
            await self._drop_lost()
        else:
            await self._revoke(sorted(self.member.owned))
        await self._send_leave("the consumer was closed or unsubscribed")
        self.member.forget()

    async def _send_leave(self, reason: str) -> None:
        # KIP-345: a static member keeps its place until its session ends, for every reason for leaving.
        if not self.member.member_id or self.member.settings.instance_id is not None:
            return
        with contextlib.suppress(KafkaException):
            await self._ask(self.member.leave_request(reason), min(self._cluster.timeout_s, 5.0))
