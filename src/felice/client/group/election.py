"""A group whose members get roles from their leader, with any protocol type: for example the leader of a service.

Keeps true:  A member has its assignment only while the coordinator cannot give it to another one: it is given up before
             each rebalance, and at the latest when `_USABLE` of the session timeout has passed, by the local clock,
             since the last request was sent that the coordinator is known to have received.
             `on_assigned` and `on_revoked` are called in turns. `assignment` is None before `on_revoked` is called,
             and as soon as the time is over, even if the event loop is late.
             A process that stops for longer than the session, and goes on in the middle of an action, may act beside a
             newer member: what it writes must be fenced (`compacted.writer`).
Leaves:      the content of metadata and assignments to its callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Never

from felice.client.error import KafkaError, KafkaException, failure
from felice.client.group.member import GroupSettings, Member
from felice.client.group.membership import Membership
from felice.client.net.cluster import Cluster
from felice.client.net.limits import limited
from felice.client.options import ConsumerSettings
from felice.dataclass import dataclass
from felice.env import Environment
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

# The part of the session in which an assignment may be used. The rest is for clocks that run at different speeds, and
# for the callback that gives it up.
_USABLE = 0.8
# A heartbeat without a response in this part of the session is given up, so that the next one can be in time.
_HEARTBEAT_LIMIT = 1 / 3

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Computes the assignment of each member id from the metadata of all members."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the group's leader gave to this member. `data` is empty if it gave nothing."""

    data: bytes
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Roles:
    """The callbacks of an election: plain functions on the event loop that return soon.

    `assign` runs at the group's leader. `on_revoked` gets True if the session was lost: another member may have the
    role already. `on_error` gets errors that a retry alone does not resolve; the member tries again.
    """

    assign: Assign
    on_assigned: Callable[[Assignment], object]
    on_revoked: Callable[[bool], object]
    on_error: Callable[[KafkaError], object] = lambda error: None


class Election:
    """`election = Election(config, "group", "type", "protocol", metadata, roles); await election.start()`.

    `metadata` is sent with each join; after a change call `rejoin`. A function is called before each join.
    A member that does not answer for
    `session_timeout_s` is removed from the group; brokers accept 6 s to 30 min by default.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        group_id: str,
        protocol_type: str,
        protocol_name: str,
        metadata: bytes | Callable[[], bytes],
        roles: Roles,
        *,
        session_timeout_s: float = 10.0,
        heartbeat_interval_s: float = 3.0,
        env: Environment | None = None,
    ) -> None:
        session_ms = int(session_timeout_s * 1000)
        own = {
            "group.id": group_id,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": int(heartbeat_interval_s * 1000),
            "max.poll.interval.ms": max(300_000, session_ms),
        }
        if not {"request.timeout.ms", "socket.timeout.ms"} & config.keys():
            # A connection that has been silent for so long is replaced: the coordinator may be gone.
            own["request.timeout.ms"] = session_ms
        self.metadata = metadata
        self.group_id = group_id
        self._settings = ConsumerSettings.parse({**config, **own}, env)
        self._protocol = protocol_type, protocol_name
        self._roles = roles
        self._candidacy: _Candidacy | None = None
        self._cluster: Cluster | None = None

    async def start(self, timeout_s: float = 60.0) -> None:
        """Join the group, and wait for the first assignment.

        Raises `KafkaException`: _TIMED_OUT with the last reason, and at once what a retry does not resolve, such as
        missing rights or a group of another protocol type. After an error, `start` may be called again.
        """
        if self._candidacy is not None:
            raise failure(KafkaError._STATE, f"the election of group {self.group_id!r} has started already")
        cluster = Cluster(self._settings, self._on_trouble)
        self._cluster = cluster
        self._candidacy = _Candidacy(cluster, self._settings, self._protocol, self._roles, self)
        self._candidacy.start()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._candidacy.first)
        except BaseException as error:
            trouble = self._candidacy.trouble
            await self.stop()
            if not isinstance(error, TimeoutError):
                raise
            why = "no assignment arrived" if trouble is None else trouble.str()
            raise failure(
                KafkaError._TIMED_OUT,
                f"group {self.group_id!r} was not joined in {timeout_s:g} s: {why}",
                retriable=True,
            ) from None

    def _on_trouble(self, error: KafkaError) -> None:
        if self._candidacy is not None:
            self._candidacy.trouble = error

    @property
    def assignment(self) -> Assignment | None:
        """The assignment that this member has; None if it has none, or may have it no longer."""
        return None if self._candidacy is None else self._candidacy.assignment

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave to this member; empty without one."""
        return "" if self._candidacy is None else self._candidacy.member.member_id

    def rejoin(self, why: str) -> None:
        """Let the group assign again, for example because `metadata` changed."""
        if self._candidacy is not None:
            self._candidacy.rejoin(why)

    async def stop(self) -> None:
        """Give up the assignment (`on_revoked`), leave the group, and disconnect: at most 5 s without an answer."""
        candidacy, self._candidacy = self._candidacy, None
        cluster, self._cluster = self._cluster, None
        try:
            if candidacy is not None:
                await candidacy.end()
                await candidacy.leave("the member was stopped")
        finally:
            if cluster is not None:
                await cluster.close()


class _Candidacy(Membership[Member]):
    """The membership of one member of an election."""

    # The reason of a failed attempt is for the error of a start that takes too long.
    _waits_for_brokers = False

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        protocol: tuple[str, str],
        roles: Roles,
        election: Election,
    ) -> None:
        session_ms = settings.session_timeout_ms
        # As long as the session: a member that does not hear of a rebalance must not be replaced before its session
        # is over by its own clock.
        group = GroupSettings(settings.group_id, protocol[0], None, session_ms, session_ms)
        super().__init__(cluster, settings, Member(group))
        self.first: asyncio.Future[None] = self._loop.create_future()
        """Done with the first assignment, or with the error that prevented it."""
        self.trouble: KafkaError | None = None
        self._usable_s = session_ms / 1000 * _USABLE
        self._protocol_name = protocol[1]
        self._roles = roles
        self._election = election
        self._held: Assignment | None = None
        self._changed = asyncio.Event()

    def _work(self) -> list[Coroutine[object, Never, None]]:
        return [*super()._work(), self._watch_session()]

    @property
    def assignment(self) -> Assignment | None:
        """What this member has, as long as its session is certain."""
        return self._held if self._time_left_s() > 0 else None

    def _time_left_s(self) -> float:
        return float(self.confirmed_at + self._usable_s - self._loop.time())

    async def _watch_session(self) -> None:
        """Give the assignment up when the session may be over: no heartbeat was confirmed for too long."""
        while True:
            left_s = self._time_left_s()
            if self._held is None:
                self._changed.clear()
                await self._changed.wait()
            elif left_s > 0:
                await asyncio.sleep(left_s)
            else:
                self._log.warning(
                    "group %s: no heartbeat was confirmed for %.1f s: this member gives up its role",
                    self.member.settings.group_id,
                    self._loop.time() - self.confirmed_at,
                )
                self._drop(lost=True)
                self.rejoin("no heartbeat was confirmed in time")

    # Rebalances

    async def _join_request(self) -> JoinGroupRequest:
        metadata = self._election.metadata
        data = metadata if isinstance(metadata, bytes) else metadata()
        return self.member.join([(self._protocol_name, data)], self._why)

    async def _assign(self, response: JoinGroupResponse) -> Mapping[str, bytes]:
        members = {row.member_id: row.metadata for row in response.members}
        try:
            assignments = self._roles.assign(members)
        except Exception as error:  # the callback is the application's
            raise failure(
                KafkaError._APPLICATION, f"assign raised {type(error).__name__}: {error}"
            ) from error
        strangers = assignments.keys() - members.keys()
        if strangers:
            raise failure(
                KafkaError._APPLICATION, f"assign named no members of the group: {sorted(strangers)}"
            )
        return assignments

    async def _apply_assignment(self, data: bytes) -> None:
        if self._time_left_s() <= 0:
            self.rejoin("the assignment arrived too late")
            return
        self._held = Assignment(data, self.member.member_id, self.member.generation)
        self._changed.set()
        self.trouble = None
        if not self.first.done():
            self.first.set_result(None)
        self._call(self._roles.on_assigned, self._held)

    async def _give_up(self) -> None:
        self._drop(lost=False)

    async def _on_lost(self) -> None:
        self._drop(lost=True)

    def _drop(self, *, lost: bool) -> None:
        if self._held is not None:
            self._held = None
            self._call(self._roles.on_revoked, lost)

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:  # the callback is the application's; the membership must go on
            self._log.exception("group %s: a callback raised", self.member.settings.group_id)

    # Errors

    def _on_exception(self, error: KafkaException) -> None:
        super()._on_exception(error)
        self.trouble = error.error

    def _on_group_error(self, error: KafkaError) -> None:
        if self.trouble is None or self.trouble.str() != error.str():
            self._log.error("group %s: %s", self.member.settings.group_id, error.str())
        self.trouble = error
        if not self.first.done() and not error.retriable():
            self.first.set_exception(KafkaException(error))
        self._call(self._roles.on_error, error)

    # Heartbeats

    async def _ask(self, request: object, timeout_s: float | None = None) -> object:
        if not isinstance(request, HeartbeatRequest):
            return await super()._ask(request, timeout_s)
        limit_s = self.member.settings.session_timeout_ms / 1000 * _HEARTBEAT_LIMIT
        async with limited(limit_s, "heartbeat: no answer"):
            return await super()._ask(request, timeout_s)
