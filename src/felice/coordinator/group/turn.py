"""The context of one event: settings, time, and the outcome so far. The protocol's functions pass it along."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Generic, TypeVar

from felice.coordinator.group.modern.topics import NO_TOPICS, Topics
from felice.coordinator.group.records import Record
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.shard import Instant, Outcome, Waiter
from felice.dataclass import dataclass

A = TypeVar("A")


@dataclass(slots=True)
class Turn:
    """One event of a group shard. Functions add records and replies to `outcome`.

    `made` has the groups that the event makes, by id. Each takes its place when its first record is replayed.
    """

    settings: GroupSettings
    now: Instant
    outcome: Outcome[Record] = field(default_factory=Outcome)
    topics: Topics = NO_TOPICS
    made: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Caller(Generic[A]):
    """The sender of a request, which waits for an answer of type `A`.

    `new_member_id` is the id for a new member: randomness comes from outside.
    """

    waiter: Waiter[A]
    version: int
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""
