"""One event's workplace: the settings, the time, and what comes out. Functions of the protocol pass it along."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from felice.coordinator.group.records import GroupRecord, OffsetRecord
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.shard import Instant, Outcome, Waiter

Record: TypeAlias = GroupRecord | OffsetRecord


@dataclass(frozen=True, slots=True)
class Turn:
    settings: GroupSettings
    now: Instant
    outcome: Outcome[Record] = field(default_factory=Outcome)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `new_member_id` is for the member it may become: randomness comes from outside."""

    waiter: Waiter
    version: int
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""
