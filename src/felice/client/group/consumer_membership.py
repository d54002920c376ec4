"""Keeps a consumer in its group: assigns partitions as the leader, revokes them, watches the topics.

Keeps true:  partitions are revoked (callback, commit) before other members can get them: an eager member revokes before
             it joins, a cooperative member before it joins again (KIP-429).
             Heartbeats continue while callbacks run. A consumer that is not polled for `max.poll.interval.ms` leaves
             the group, and joins again when it is polled. Partitions that the group took away are reported as lost.
How:         beside the tasks of every membership, one that watches the topics.
Leaves:      joining, heartbeats and leaving to `membership`, callbacks and commits to its `Rebalances`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Never

from felice.client.error import KafkaError, error_of
from felice.client.group.consumer_group import Interest, Rebalances, SubscribedTopics
from felice.client.group.consumer_member import ConsumerMember
from felice.client.group.member import GroupSettings
from felice.client.group.membership import Membership
from felice.client.group.requests import Committer
from felice.client.model import Partition
from felice.client.net.cluster import Cluster
from felice.client.options import ConsumerSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import PROTOCOL_TYPE
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_WATCH_INTERVAL_S = 1.0


class ConsumerMembership(Membership[ConsumerMember]):
    """The membership of one consumer. Runs on the loop from `start` to `end` and `leave`."""

    def __init__(
        self, cluster: Cluster, subscription: Interest, settings: ConsumerSettings, rebalances: Rebalances
    ) -> None:
        group = GroupSettings(
            settings.group_id,
            PROTOCOL_TYPE,
            settings.group_instance_id,
            settings.session_timeout_ms,
            settings.max_poll_interval_ms,
        )
        rack_id = settings.client_rack or None
        member = ConsumerMember(group, settings.partition_assignment_strategy, rack_id)
        super().__init__(cluster, settings, member)
        self._subscription = subscription
        self._rebalances = rebalances
        self.rebalance_count = 0
        self._rebalanced_at = self._loop.time()
        self._joined_topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._topics = SubscribedTopics(cluster, subscription, rebalances)

    @property
    def rebalance_age_ms(self) -> int:
        """Milliseconds since the last assignment came into force, or since the start."""
        return int((self._loop.time() - self._rebalanced_at) * 1000)

    @property
    def cooperative(self) -> bool:
        """True if the member rebalances cooperatively (KIP-429)."""
        return self.member.cooperative

    async def is_renewed(self, used: Committer) -> bool:
        """Return False: a member with an old generation has lost the partitions that it would commit."""
        return False

    def _work(self) -> list[Coroutine[object, Never, None]]:
        return [*super()._work(), self._watch()]

    # Rebalances

    async def _prepare(self) -> None:
        await self._topics.refresh()

    async def _join_request(self) -> JoinGroupRequest:
        while self._is_idle():
            await asyncio.sleep(0.1)
        topics = self._subscription.wanted_topics(self._cluster.topology.topics)
        self._joined_topics = frozenset(topics)
        return self.member.join_request(topics, self._why)

    async def _assign(self, response: JoinGroupResponse) -> Mapping[str, bytes]:
        subscriptions = self.member.subscriptions(response)
        topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        self._cluster.interesting |= topics
        await self._cluster.refresh(sorted(topics), allow_auto_create=self._settings.allow_auto_create_topics)
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
        self.rebalance_count += 1
        self._rebalanced_at = self._loop.time()
        if self.cooperative:
            await self._revoke(change.revoked)
        self.member.own(change.assigned)
        if change.added or not self.cooperative or not change.assigned:
            await self._rebalances.on_assign(change.added)
        if change.revoked and self.cooperative:
            self.rejoin("revoked partitions can be assigned to others now")

    async def _give_up(self) -> None:
        """Revoke the partitions that a join may not keep. Heartbeats continue until the callback is done."""
        if not self.cooperative:
            await self._give_up_all()

    async def _give_up_all(self) -> None:
        await self._revoke(sorted(self.member.owned))

    async def _revoke(self, partitions: Sequence[Partition]) -> None:
        if partitions:
            await self._rebalances.on_revoke(partitions)
            self.member.own(self.member.owned.difference(partitions))

    async def _on_lost(self) -> None:
        owned = sorted(self.member.owned)
        self.member.own(())
        if owned:
            await self._rebalances.on_lost(owned)

    def _on_group_error(self, error: KafkaError) -> None:
        if error == ErrorCode.FENCED_INSTANCE_ID:
            self._rebalances.on_fatal_error(error)
        else:
            self._rebalances.on_group_error(error)

    # Applications that stop polling

    async def _send_heartbeats(self) -> None:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while True:
            await asyncio.sleep(min(interval_s, 0.5) if self._is_idle() else interval_s)
            if self._is_idle() and self.member.joined:
                await self._leave_idle()
            elif self.member.joined and self._stable:
                await self._send_heartbeat()

    def _is_idle(self) -> bool:
        """True if the application has stopped polling (KIP-62)."""
        idle_s = self._loop.time() - self._rebalances.polled_at()
        return bool(idle_s > self._settings.max_poll_interval_ms / 1000)

    async def _leave_idle(self) -> None:
        limit = self._settings.max_poll_interval_ms
        self._rebalances.on_group_error(
            error_of(KafkaError._MAX_POLL_EXCEEDED, f"not polled for more than {limit} ms")
        )
        await self._send_leave("max.poll.interval.ms exceeded")
        self.member.forget()
        self._lost = True
        self.rejoin("polled again")

    # Topics

    async def _watch(self) -> None:
        """Rebalance if subscribed topics are created, deleted or get partitions."""
        age_s = self._settings.metadata_max_age_ms / 1000
        refreshed = self._loop.time()
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            missing = self._topics.missing
            if missing or self._loop.time() - refreshed > age_s:
                refreshed = self._loop.time()
                await self._topics.refresh()
                self._topics.report_missing(missing)
            if self._stable and self._topics_changed():
                self.rejoin("topics changed")

    def _topics_changed(self) -> bool:
        wanted = self._subscription.wanted_topics(self._cluster.topology.topics)
        if wanted != self._joined_topics:
            return True
        return self.member.is_leader and self._partition_counts(self._counts) != self._counts
