"""Which of the servers with one service id runs the persistent queries, and takes statements that change something.

Keeps true: the leader stays the leader while it lives, also when other servers come and go. Only a newer server with
            the leader's address replaces it. A server that may have lost the leadership writes nothing, because the
            command topic is fenced.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from felice.client.group.election import Assignment, Election, Roles

_log = logging.getLogger("felice.sql")

_PROTOCOL_TYPE, _PROTOCOL = "felice-sql", "v1"
SESSION_TIMEOUT_S = 10.0
_HEARTBEATS = 0.3
"""The interval of heartbeats as a part of that."""


def member(url: str, begun: float, *, leads: bool) -> bytes:
    """What a server tells the group of itself. `begun` is when it started."""
    return json.dumps({"url": url, "begun": begun, "leads": leads}).encode()


def assign(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The assignment of each member: the address of the leader, whether it leads itself, and whether another one has
    its address. The leader is the one that leads already, or else the one with the smallest address.

    Of two with one address the newer one leads: mostly the older one was killed, and the group does not know it yet.
    If both live, only one of them writes commands and runs queries.
    """
    found = {id: json.loads(one) for id, one in members.items()}
    leader = min(found.values(), key=lambda one: (not one["leads"], one["url"]))["url"]
    chosen = max((one.get("begun", 0), id) for id, one in found.items() if one["url"] == leader)[1]
    urls = Counter(one["url"] for one in found.values())
    return {
        id: json.dumps({"leader": leader, "leads": id == chosen, "shared": urls[one["url"]] > 1}).encode()
        for id, one in found.items()
    }


class Leadership:
    """The part of one server in the group. `lead` and `follow` are called on the event loop when the role changes."""

    def __init__(
        self,
        client: Mapping[str, object],
        group: str,
        url: str,
        lead: Callable[[], None],
        follow: Callable[[], None],
    ) -> None:
        self._url, self._lead, self._follow = url, lead, follow
        self.leader: str | None = None
        """The leader's address, if one is known."""
        self._leads = False
        self.is_shared = False
        """Whether another server of the group has the address of this one."""
        begun = time.time()
        self._election = Election(
            client,
            group,
            _PROTOCOL_TYPE,
            _PROTOCOL,
            lambda: member(url, begun, leads=self._leads),
            Roles(assign, self._on_assigned, self._on_revoked),
            session_timeout_s=SESSION_TIMEOUT_S,
            heartbeat_interval_s=SESSION_TIMEOUT_S * _HEARTBEATS,
        )

    @property
    def is_mine(self) -> bool:
        """Whether this server leads."""
        return self._leads

    async def start(self, timeout_s: float) -> None:
        """Join the group, and wait for its first decision. Raises `KafkaException`."""
        await self._election.start(timeout_s)

    async def stop(self) -> None:
        """Leave the group."""
        await self._election.stop()

    def _on_assigned(self, assignment: Assignment) -> None:
        told: dict[str, Any] = json.loads(assignment.data) if assignment.data else {"leader": None}
        self.leader = told["leader"]
        # A server of an older version, which assigns, tells only the address.
        leads = bool(told.get("leads", self.leader == self._url))
        if told.get("shared", False) and not self.is_shared:
            _log.warning(
                "another server has this address; give each one its own", extra={"address": self._url}
            )
        self.is_shared = told.get("shared", False)
        if leads and not self._leads:
            _log.info("this server leads", extra={"address": self._url})
            self._leads = True
            self._lead()
        elif not leads:
            self._end()

    def _on_revoked(self, lost: bool) -> None:
        # Each rebalance begins with this; the queries run on unless another server may have got the role.
        if lost:
            self.leader = None
            self._end()

    def _end(self) -> None:
        if self._leads:
            _log.warning("this server no longer leads", extra={"leader": self.leader})
            self._leads = False
            self._follow()
