"""Keeps a consumer in a group whose partitions the broker assigns (KIP-848): heartbeats, callbacks, commits' epochs.

Keeps true:  One heartbeat is on its way at a time. Heartbeats go on while callbacks run. When a callback has given up
             or taken over partitions, the next heartbeat is sent at once, not at the interval.
             A consumer that is not polled for `max.poll.interval.ms` leaves the group, and joins again when it is
             polled.
How:         One task sends heartbeats, one carries out what the member has to do with its partitions, and one watches
             subscribed topics that do not exist.
Leaves:      the protocol's decisions to `epoch_member`, callbacks and commits to its `Rebalances`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib

from felice.client.error import KafkaError, KafkaException, beyond_the_code, error_of
from felice.client.group.consumer_group import Interest, Rebalances, SubscribedTopics
from felice.client.group.epoch_member import (
    Action,
    Duty,
    EpochMember,
    EpochSettings,
    Phase,
    Reaction,
    Topics,
)
from felice.client.group.requests import Committer
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.limits import limited
from felice.client.net.waiting import Waiting
from felice.client.net.wire import ByVersion
from felice.client.options import ConsumerSettings
from felice.env.clock import set_within
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

_JOIN = "join"
_LEAVE_S = 5.0
_WATCH_INTERVAL_S = 1.0
# How long the name of an assigned topic may stay unknown before the brokers are asked again.
_NAMES_INTERVAL_S = 1.0
# A coordinator that wants heartbeats more often than this gets them this often.
_SHORTEST_INTERVAL_S = 0.05
_BACKOFF_MS, _LONGEST_BACKOFF_MS = 100, 1000
# The first answer may be that to a heartbeat sent before the commit was refused, the second is that to a newer one.
_ANSWERS_AFTER_STALE = 2

_NOT_OFFERED = (
    '"group.protocol=consumer" (KIP-848) does not work with this cluster: '
    'use "classic", or set the feature group.version to 1'
)


class EpochMembership:
    """The membership of one consumer. Runs on the loop from `start` to `end` and `leave`."""

    cooperative = True

    def __init__(
        self, cluster: Cluster, subscription: Interest, settings: ConsumerSettings, rebalances: Rebalances
    ) -> None:
        self._settings = settings
        self.member = EpochMember(
            EpochSettings(
                settings.group_id,
                settings.max_poll_interval_ms,
                settings.group_instance_id or None,
                settings.client_rack or None,
                settings.group_remote_assignor or None,
            ),
            _new_member_id(settings),
        )
        self._cluster = cluster
        self._subscription = subscription
        self._rebalances = rebalances
        self._log = settings.log("group")
        self._loop = asyncio.get_running_loop()
        self._topics = SubscribedTopics(cluster, subscription, rebalances)
        self._tasks: list[asyncio.Task[None]] = []
        self._attempt = 0
        # A heartbeat may be due.
        self._to_send = asyncio.Event()
        # The member may have a duty.
        self._to_do = asyncio.Event()
        # The next heartbeat must not wait: a commit was refused because of its epoch.
        self._is_asked = False
        self._answered = asyncio.Event()
        self._waiting = Waiting(self._loop.time, cluster.tell_of_waiting)
        self.rebalance_count = 0
        self.last_reason = "first join"
        self._rebalanced_at = self._loop.time()

    # For the consumer

    @property
    def stable(self) -> bool:
        """True if the member owns exactly what the coordinator lets it have."""
        return self.member.stable

    @property
    def rebalance_age_ms(self) -> int:
        """Milliseconds since partitions last came or went, or since the start."""
        return int((self._loop.time() - self._rebalanced_at) * 1000)

    def start(self) -> None:
        """Start the tasks."""
        if not self._tasks:
            self.rejoin(self.last_reason)
            work = (self._send_heartbeats(), self._carry_out(), self._watch())
            self._tasks = [self._loop.create_task(each) for each in work]

    def rejoin(self, why: str) -> None:
        """Tell the coordinator of the subscription as soon as possible."""
        self.last_reason = why
        self.member.topics = Topics(self._subscription.topics, self._subscription.expression)
        self._to_send.set()

    async def is_renewed(self, used: Committer) -> bool:
        """Wait for a newer epoch than one that the coordinator calls stale; False if the coordinator sends none."""
        for _ in range(_ANSWERS_AFTER_STALE):
            if self.member.committer != used or not self._tasks:
                break
            self._is_asked = True
            self._to_send.set()
            await self._answered.wait()
        now = self.member.committer
        return self.member.joined and now != used and now.stay == used.stay

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        member, limit_s = self.member, self._settings.max_poll_interval_ms / 1000
        sent_at = float("-inf")
        while member.phase is not Phase.OUT:
            self._to_send.clear()
            now = self._loop.time()
            idle_at = self._rebalances.polled_at() + limit_s
            if now >= idle_at:
                await self._while_idle()
                continue
            next_at = sent_at + max(member.interval_ms / 1000, _SHORTEST_INTERVAL_S)
            if member.may_send and (member.is_due or self._is_asked or now >= next_at):
                sent_at = now
                await self._send_heartbeat()
                continue
            until = min(next_at, idle_at) if member.may_send else idle_at
            await set_within(self._to_send, until - now)

    async def _send_heartbeat(self) -> None:
        self._is_asked = False
        before = self.member.target
        try:
            response = await self._ask(self.member.heartbeat())
        except KafkaException as error:
            reaction = self._on_exception(error.error)
        else:
            reaction = self._on_answer(response)
        self._tell_answered()
        if self.member.target != before or not self.member.joined:
            self._to_do.set()
        if reaction is Reaction.GO_ON:
            self._attempt = 0
        elif reaction is not Reaction.STOP:
            random = self._settings.env.random
            await asyncio.sleep(backoff_s(self._attempt, _BACKOFF_MS, _LONGEST_BACKOFF_MS, random))
            self._attempt += 1

    def _tell_answered(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    async def _ask(self, request: ByVersion) -> ConsumerGroupHeartbeatResponse:
        group_id = self.member.settings.group_id
        coordinator = await self._cluster.coordinator(group_id, self._cluster.timeout_s)
        response: ConsumerGroupHeartbeatResponse = await self._cluster.call(
            coordinator, request, purpose="group"
        )
        return response

    def _on_exception(self, error: KafkaError) -> Reaction:
        self._log.debug("group %s: %s", self.member.settings.group_id, error.str())
        self.member.on_no_answer()
        if error == KafkaError._UNSUPPORTED_FEATURE:
            self.member.stop()
            self._on_stopped(error)
            return Reaction.STOP
        self._cluster.forget_coordinator(self.member.settings.group_id)
        if not error.retriable():
            self._rebalances.on_group_error(error)
        return Reaction.FIND

    def _on_answer(self, response: ConsumerGroupHeartbeatResponse) -> Reaction:
        code, group_id = response.error_code, self.member.settings.group_id
        epoch = self.member.epoch
        reaction = self.member.on_answer(response)
        if reaction is Reaction.GO_ON:
            self._waiting.end(_JOIN)
            if self.member.epoch != epoch:
                self._log.debug("group %s: epoch %d, was %d", group_id, self.member.epoch, epoch)
            return reaction
        said = beyond_the_code(code, response.error_message)
        error = error_of(code, f"group {group_id!r}: {said}" if said else f"group {group_id!r}")
        self._log.debug("group %s: %s", group_id, error.str())
        if reaction in (Reaction.RETRY, Reaction.FIND):
            self._waiting.go_on(_JOIN, error_of(code, f"no heartbeat to group {group_id!r} yet"))
        if reaction is Reaction.FIND:
            self._cluster.forget_coordinator(group_id)
        elif reaction is Reaction.LOSE:
            self.last_reason = "the coordinator fenced this member"
        elif reaction is Reaction.TELL:
            self._rebalances.on_group_error(error)
        elif reaction is Reaction.STOP:
            self._on_stopped(error)
        return reaction

    def _on_stopped(self, error: KafkaError) -> None:
        """Report that the group refuses this consumer for good."""
        if error in (ErrorCode.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE):
            error = error_of(KafkaError._UNSUPPORTED_FEATURE, f"{_NOT_OFFERED} ({error.str()})")
        self._rebalances.on_fatal_error(error)

    # Applications that stop polling

    async def _while_idle(self) -> None:
        """Leave the group (KIP-62), and wait until the application polls again."""
        limit_ms = self._settings.max_poll_interval_ms
        if self.member.joined:
            reason = f"not polled for more than {limit_ms} ms"
            self._rebalances.on_group_error(error_of(KafkaError._MAX_POLL_EXCEEDED, reason))
            await self._send_leave()
            self.member.lose()
            self.last_reason = "polled again"
            self._to_do.set()
        while self._loop.time() >= self._rebalances.polled_at() + limit_ms / 1000:
            await asyncio.sleep(0.1)

    # Partitions that come and go

    async def _carry_out(self) -> None:
        topology = self._cluster.topology
        while True:
            self._to_do.clear()
            if (duty := self.member.duty(topology.names_by_id)) is not None:
                await self._do(duty)
                self.member.on_done(duty)
                self._to_send.set()
            elif unnamed := self.member.unnamed(topology.names_by_id):
                with contextlib.suppress(KafkaException):
                    await self._cluster.refresh_by_id(unnamed)
                if self.member.unnamed(topology.names_by_id):
                    await set_within(self._to_do, _NAMES_INTERVAL_S)
            else:
                await self._to_do.wait()

    async def _do(self, duty: Duty) -> None:
        partitions = sorted(duty.partitions.values())
        if not partitions:
            return
        group_id = self.member.settings.group_id
        self._log.debug("group %s: %s %d partitions", group_id, duty.action.name.lower(), len(partitions))
        self.rebalance_count += 1
        self._rebalanced_at = self._loop.time()
        if duty.action is Action.ASSIGN:
            await self._rebalances.on_assign(partitions)
        elif duty.action is Action.REVOKE:
            await self._rebalances.on_revoke(partitions)
        else:
            await self._rebalances.on_lost(partitions)

    async def _watch(self) -> None:
        """Ask again for missing subscribed topics, which a request may create, and report those that do not exist."""
        await self._topics.refresh()
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            if missing := self._topics.missing:
                await self._topics.refresh()
                self._topics.report_missing(missing)

    # The end

    async def end(self) -> None:
        """Stop the tasks, and give everything up. `leave` may follow."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tell_answered()
        owned = dict(self.member.owned)
        duty = Duty(Action.REVOKE if self.member.joined else Action.LOSE, owned)
        await self._do(duty)
        self.member.on_done(duty)

    async def leave(self, reason: str) -> None:
        """Leave the group, after `end`. The protocol has no place for the reason."""
        self._log.debug("group %s: leaves: %s", self.member.settings.group_id, reason)
        await self._send_leave()
        self.member.stop()

    async def _send_leave(self) -> None:
        if not self.member.is_known:
            return
        with contextlib.suppress(KafkaException):
            async with limited(min(self._cluster.timeout_s, _LEAVE_S), "leaving the group: no answer"):
                await self._ask(self.member.leave())


def _new_member_id(settings: ConsumerSettings) -> str:
    """A random UUID in the form in which Kafka writes them."""
    return base64.urlsafe_b64encode(settings.env.random.randbytes(16)).decode().rstrip("=")
