"""Who leads the registries: this one, another, or none; and the membership in the group that decides it.

Keeps true:  `is_mine` is false from the moment when this registry's membership may have ended, by its clock, even if
             the event loop is late.
             While the group assigns again, nobody leads; writes wait for that a short time (`wait_other`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from felice.client.group.election import Assignment, Election, Roles
from felice.registry.leader import (
    NO_ERROR,
    PROTOCOL,
    PROTOCOL_TYPE,
    BadMember,
    Identity,
    assign,
    choice_of,
)

_log = logging.getLogger("felice.registry")


SESSION_TIMEOUT_S = 10.0
"""After this time without a heartbeat the group replaces a leader."""
_HEARTBEATS = 0.3
"""The interval of heartbeats as a part of that."""


class NotLeader(Exception):
    """This registry may not write. `url` is the leader's address, or None if it is not known."""

    def __init__(self, url: str | None) -> None:
        super().__init__(url)
        self.url = url


class Leadership:
    """The role of this registry: `lead` and `follow` change it. At first nobody leads."""

    def __init__(self) -> None:
        self.leader: Identity | None = None
        """The leader, if one is known."""
        self._is_mine = False
        self._changed = asyncio.Event()
        self.holds: Callable[[], bool] = lambda: True
        """Whether the membership that gave the role still lasts."""
        self.on_mine: Callable[[], None] = lambda: None
        """Called when this registry becomes the leader."""

    def lead(self, own: Identity) -> None:
        """This registry leads. It is told each time: another one may have led in between."""
        self._is_mine, self.leader = True, own
        self._wake()
        self.on_mine()

    def follow(self, leader: Identity | None) -> None:
        """Another registry leads, or, for None, none does."""
        self._is_mine, self.leader = False, leader
        self._wake()

    @property
    def is_mine(self) -> bool:
        """Whether this registry may write."""
        return self._is_mine and self.holds()

    def check(self) -> None:
        """Raises `NotLeader` unless this registry leads."""
        if self._is_mine and not self.holds():
            raise NotLeader(None)
        if not self._is_mine:
            raise NotLeader(None if self.leader is None else self.leader.url)

    async def wait_other(self, url: str | None, timeout_s: float) -> None:
        """Waits until a registry at another address than `url` leads, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.leader is None or self.leader.url == url:
                    await self._changed.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class GroupMembership:
    """Takes part in the group of registries, and tells `leadership` what the group decides."""

    def __init__(
        self,
        client: Mapping[str, object],
        group: str,
        own: Identity,
        leadership: Leadership,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> None:
        self._own = own
        self._leadership = leadership
        roles = Roles(assign, self._on_assigned, self._on_revoked)
        self._election = Election(
            client,
            group,
            PROTOCOL_TYPE,
            PROTOCOL,
            own.encode(),
            roles,
            session_timeout_s=session_timeout_s,
            heartbeat_interval_s=session_timeout_s * _HEARTBEATS,
        )
        leadership.holds = lambda: self._election.assignment is not None

    async def start(self, timeout_s: float) -> None:
        """Joins the group, and waits for its first decision. Raises `KafkaException`."""
        await self._election.start(timeout_s)

    async def stop(self) -> None:
        """Leaves the group."""
        await self._election.stop()

    def _on_assigned(self, assignment: Assignment) -> None:
        try:
            choice = choice_of(assignment.data)
        except BadMember as error:
            _log.error("the group's leader sent an unknown decision", extra={"reason": str(error)})
            self._leadership.follow(None)
            return
        if choice.error != NO_ERROR:
            _log.error("two registries of the group have one address, so none can lead")
            self._leadership.follow(None)
        elif choice.member_id == assignment.member_id:
            _log.info("this registry leads", extra={"address": self._own.url})
            self._leadership.lead(self._own)
        else:
            url = None if choice.identity is None else choice.identity.url
            _log.info("this registry follows", extra={"leader": url})
            self._leadership.follow(choice.identity)

    def _on_revoked(self, lost: bool) -> None:
        self._leadership.follow(None)
