"""Decides which connection gives way when there are too many.

Keeps true: clients that begin requests and do not finish them, or do not read their answers, keep nobody out. Above
            `half_requests` unfinished requests the one that began first gives way, above `unread_answers` the one that
            has waited longest, and above `connections` the connection that has waited longest for its client, whatever
            for. A connection that waits for this server, because its request is being answered, stays.
            A connection may be `FRESH_S` old before it gives way: in a burst of good clients each request arrives a
            moment after its connection, and clients that mean no good come again as soon as theirs are closed. One
            whose bytes have arrived, but were not read yet because this process is busy, stays too. Only above
            `connections + BURST` neither counts.
Leaves:     how a connection ends to `connection`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Protocol

from felice.web.limits import Limits

FRESH_S = 1.0
BURST = 512
# So many of those that wait longest are looked at, and so soon again, if all of them have bytes that were not read yet.
_LOOKED_AT = 16
_AGAIN_S = 0.02


class Waits(Enum):
    """What a connection waits for. Its client must do it."""

    REQUEST = "the rest of a request"
    NEXT = "the next request"
    READING = "the client to read its answer"


class Member(Protocol):
    """A connection."""

    def has_bytes(self) -> bool:
        """Whether bytes of its client wait to be read."""

    def give_way(self) -> None:
        """Ends the connection now."""


class Crowd:
    """All connections of one server. `now` is in seconds, and `later` calls a function after some seconds."""

    def __init__(
        self,
        limits: Limits,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._limits = limits
        self._most = {Waits.REQUEST: limits.half_requests, Waits.READING: limits.unread_answers}
        self._now = now
        self._later = later
        self._members: dict[Member, Waits | None] = {}
        # Since when they wait, the longest first.
        self._waiting: dict[Waits, dict[Member, float]] = {waits: {} for waits in Waits}
        self._has_timer = False

    def __len__(self) -> int:
        return len(self._members)

    @property
    def members(self) -> list[Member]:
        """All connections, in the order in which they came."""
        return list(self._members)

    @property
    def is_full(self) -> bool:
        """Whether another member is one too many."""
        return len(self._members) >= self._limits.connections

    @property
    def is_busy(self) -> bool:
        """Whether so many requests are being answered that another one must be refused."""
        waiting = sum(map(len, self._waiting.values()))
        return len(self._members) - waiting > self._limits.connections

    def enter(self, member: Member) -> None:
        """Adds a new connection, which waits for its first request."""
        self.move(member, Waits.REQUEST)
        self._relieve()

    def move(self, member: Member, waits: Waits | None) -> None:
        """States what a connection waits for, None if for this server. The same again does not begin a new wait."""
        before = self._members.get(member)
        if before is waits and member in self._members:
            return
        if before is not None:
            del self._waiting[before][member]
        self._members[member] = waits
        if waits is not None:
            self._waiting[waits][member] = self._now()
            self._relieve()

    def leave(self, member: Member) -> None:
        """Removes a connection that ends. A second call does nothing."""
        waits = self._members.pop(member, None)
        if waits is not None:
            del self._waiting[waits][member]

    def _relieve(self) -> None:
        """Lets connections give way until the limits hold, or until the next of them may be looked at again."""
        while self._is_over_a_limit():
            found = self._next_to_go()
            if found is None:
                self._relieve_later(_AGAIN_S)
                return
            member, since = found
            wait_s = since + FRESH_S - self._now()
            if wait_s > 0 and not self._is_burst_full:
                self._relieve_later(wait_s)
                return
            self.leave(member)
            member.give_way()

    def _is_over_a_limit(self) -> bool:
        return len(self._members) > self._limits.connections or self._crowded() is not None

    def _crowded(self) -> Waits | None:
        """The first wait that too many connections have in common."""
        return next((waits for waits, most in self._most.items() if len(self._waiting[waits]) > most), None)

    @property
    def _is_burst_full(self) -> bool:
        return len(self._members) > self._limits.connections + BURST

    def _next_to_go(self) -> tuple[Member, float] | None:
        crowded = self._crowded()
        kinds = Waits if crowded is None else (crowded,)
        longest = [found for waits in kinds if (found := self._longest(waits)) is not None]
        return min(longest, key=lambda found: found[1], default=None)

    def _longest(self, waits: Waits) -> tuple[Member, float] | None:
        """The member that has waited longest, and since when. One whose bytes were not read yet does not wait."""
        waiting = self._waiting[waits].items()
        if self._is_burst_full:
            return next(iter(waiting), None)
        return next((found for found in islice(waiting, _LOOKED_AT) if not found[0].has_bytes()), None)

    def _relieve_later(self, wait_s: float) -> None:
        if not self._has_timer:
            self._has_timer = True
            self._later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._has_timer = False
        self._relieve()
