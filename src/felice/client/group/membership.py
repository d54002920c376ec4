"""Keeps a member in its group: joins, lets the leader assign, sends heartbeats, rejoins, leaves.

Keeps true:  A member gives up what it has before others can get it: `_before_rejoin` is over before it joins again.
             Heartbeats continue meanwhile. What the group took away is dropped as lost.
             `confirmed_at` is the time at which the last request was sent that kept the member's session alive: the
             coordinator ends the session no earlier than the session timeout after it.
How:         Two tasks: one joins, syncs and waits for the next reason to rebalance; one sends heartbeats. A subclass
             knows the content of metadata and assignments, and what to give up.
Leaves:      the protocol's decisions to `member`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, Generic, Never, TypeVar

from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.group.member import Member, MemberAction
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.limits import limited
from felice.client.net.waiting import Waiting
from felice.client.options import ConsumerSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.primitives import MalformedMessage

M = TypeVar("M", bound=Member)

_JOIN = "join"
_LEAVE_S = 5.0


class Membership(ABC, Generic[M]):
    """The membership of one member. Runs on the loop from `start` to `end`, which `leave` may follow."""

    # Whether a request waits until some broker can be reached. Otherwise it fails, and the next attempt follows.
    _waits_for_brokers = True

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, member: M) -> None:
        self.member = member
        self._cluster = cluster
        self._settings = settings
        self._log = settings.log("group")
        self._loop = asyncio.get_running_loop()
        self._reason = asyncio.Event()
        self._why = "first join"
        self._lost = False
        self._fenced = False
        self._tasks: list[asyncio.Task[None]] = []
        self._stable = False
        self._attempt = 0
        self.confirmed_at = float("-inf")
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

    def start(self) -> None:
        """Start the tasks."""
        if not self._tasks:
            self._tasks = [self._loop.create_task(work) for work in self._work()]

    def _work(self) -> list[Coroutine[object, Never, None]]:
        return [self._run(), self._send_heartbeats()]

    def rejoin(self, why: str) -> None:
        """Rebalance as soon as possible."""
        self._why = why
        self._reason.set()

    # What a subclass knows

    @abstractmethod
    async def _join_request(self) -> JoinGroupRequest:
        """Return the next request to join, as soon as the member may join."""

    @abstractmethod
    async def _assign(self, response: JoinGroupResponse) -> Mapping[str, bytes]:
        """As the leader, return the assignment of each member id."""

    @abstractmethod
    async def _apply_assignment(self, data: bytes) -> None:
        """Put the assignment into force. `_stable` is True already."""

    @abstractmethod
    async def _give_up(self) -> None:
        """Give up what may not be kept in the next join."""

    @abstractmethod
    async def _on_lost(self) -> None:
        """Drop everything: other members may have it."""

    @abstractmethod
    def _on_group_error(self, error: KafkaError) -> None:
        """Report an error that a retry alone does not resolve; the member tries again."""

    async def _prepare(self) -> None:
        """Runs once, before the first join."""

    # Join and sync

    async def _run(self) -> None:
        await self._prepare()
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
                self._stable = False
                self._on_group_error(error_of(KafkaError._BAD_MSG, str(error)))
            if self._lost:
                await self._drop_lost()
            await asyncio.sleep(backoff_s(self._attempt, 100, 1000, self._settings.env.random))
            self._attempt += 1

    def _on_exception(self, error: KafkaException) -> None:
        self._log.debug("group %s: %s", self.member.settings.group_id, error.error.str())
        self._cluster.forget_coordinator(self.member.settings.group_id)
        if not error.error.retriable():
            self._on_group_error(error.error)

    async def _before_rejoin(self) -> None:
        if not self._lost:
            await self._give_up()
        self._stable = False
        if self._lost:
            await self._drop_lost()

    async def _drop_lost(self) -> None:
        self._lost = False
        await self._on_lost()

    async def _join(self) -> bool:
        """Run one rebalance; True if it ended with an assignment in force."""
        self._reason.clear()
        request = await self._join_request()
        limit_s = self.member.settings.rebalance_timeout_ms / 1000 + self._cluster.timeout_s
        response = await self._ask(request, limit_s)
        step = self.member.on_join(response)
        if step is not MemberAction.GO_ON:
            return await self._on_other_action(step, response.error_code)
        assignments: Mapping[str, bytes] = {}
        if self.member.is_leader and not response.skip_assignment:
            assignments = await self._assign(response)
        sent_at = self._loop.time()
        answer = await self._ask(self.member.sync_request(assignments), limit_s)
        step = self.member.on_sync(answer.error_code)
        if step is not MemberAction.GO_ON:
            return await self._on_other_action(step, answer.error_code)
        self._waiting.end(_JOIN)
        self._stable = True
        self.confirmed_at = sent_at
        await self._apply_assignment(answer.assignment)
        return True

    async def _on_other_action(self, step: MemberAction, code: int) -> bool:
        group_id = self.member.settings.group_id
        if step in (MemberAction.FIND, MemberAction.RETRY, MemberAction.FORGET):
            self._waiting.go_on(_JOIN, error_of(code, f"group {group_id!r} cannot be joined yet"))
        if step is MemberAction.FIND:
            self._cluster.forget_coordinator(group_id)
        elif step is MemberAction.FORGET:
            await self._drop_lost()
        elif step is MemberAction.STOP:
            self._on_group_error(error_of(code, f"group {group_id!r}"))
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._fenced = True
                await self._drop_lost()
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self._join()
        return False

    async def _ask(self, request: object, timeout_s: float | None = None) -> Any:
        group_id = self.member.settings.group_id
        coordinator = await self._cluster.coordinator(
            group_id, self._cluster.timeout_s, waits_for_brokers=self._waits_for_brokers
        )
        return await self._cluster.call(coordinator, request, purpose="group", timeout_s=timeout_s)

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            if self.member.joined and self._stable:
                await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        generation, sent_at = self.member.generation, self._loop.time()
        limit_s = self._settings.session_timeout_ms / 1000
        try:
            response = await self._ask(self.member.heartbeat_request(), limit_s)
        except KafkaException:
            self._cluster.forget_coordinator(self.member.settings.group_id)
            return
        if generation != self.member.generation or not self._stable:
            return
        self._on_heartbeat(response.error_code, sent_at)

    def _on_heartbeat(self, code: int, sent_at: float) -> None:
        group_id = self.member.settings.group_id
        step = self.member.on_heartbeat(code)
        if step is MemberAction.GO_ON:
            self.confirmed_at = sent_at
        if step is MemberAction.FORGET or step is MemberAction.STOP:
            self._lost = True
        if step is MemberAction.STOP:
            # Another member has this instance id: joining again would only fence it in turn.
            self._fenced = code == ErrorCode.FENCED_INSTANCE_ID
            self.member.forget()
            self._on_group_error(error_of(code, f"group {group_id!r}"))
        if step is MemberAction.FIND:
            self._cluster.forget_coordinator(group_id)
        elif step not in (MemberAction.GO_ON, MemberAction.RETRY):
            self.rejoin("the group rebalances")

    # The end

    async def end(self) -> None:
        """Stop rebalancing, and give everything up. `leave` may follow."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stable = False
        if self._lost:
            await self._drop_lost()
        else:
            await self._give_up_all()

    async def _give_up_all(self) -> None:
        """Give up everything, at the end."""
        await self._give_up()

    async def leave(self, reason: str) -> None:
        """Leave the group, after `end`."""
        await self._send_leave(reason)
        self.member.forget()

    async def _send_leave(self, reason: str) -> None:
        # KIP-345: a static member keeps its place until its session ends, for every reason for leaving.
        if not self.member.member_id or self.member.settings.instance_id is not None:
            return
        with contextlib.suppress(KafkaException):
            async with limited(min(self._cluster.timeout_s, _LEAVE_S), "leaving the group: no answer"):
                await self._ask(self.member.leave_request(reason))
