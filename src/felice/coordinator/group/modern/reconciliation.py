"""The steps of one member from its current partitions to its target (KIP-848). Pure.

Keeps true:  G6: a member gets a partition only when no other member has the partition, or still has to give it up.
             A member gets the target epoch only when it has given up every partition that is not in its target.
Each member takes these steps alone: a member whose partitions do not change continues to consume.

| state                 | the member                                        | leaves it when                        |
|-----------------------|---------------------------------------------------|---------------------------------------|
| STABLE                | has its target assignment, and the target epoch   | there is a new target                 |
| UNREVOKED_PARTITIONS  | must give up partitions, and keeps its old epoch  | its heartbeat no longer reports them  |
| UNRELEASED_PARTITIONS | waits for partitions that others still have       | all are free (tried at each heartbeat)|
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from felice.dataclass import dataclass

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No topic has an empty set."""
Assigned: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which the member received it (KIP-1251)."""

NOTHING: Partitions = MappingProxyType({})
NOTHING_ASSIGNED: Assigned = MappingProxyType({})


class MemberState(IntEnum):
    """The numbers in the records of consumer groups."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Current:
    """The current assignment of a member. `pending` are partitions that it must give up, and may still read."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=lambda: NOTHING_ASSIGNED)
    pending: Assigned = field(default_factory=lambda: NOTHING_ASSIGNED)

    @property
    def partitions(self) -> Partitions:
        """The assigned partitions without their epochs."""
        return {topic_id: frozenset(partitions) for topic_id, partitions in self.assigned.items()}

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch at which the member got the partition; None if it is neither assigned nor pending."""
        for held in (self.assigned, self.pending):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


IsTaken: TypeAlias = Callable[[UUID, int], bool]
"""Whether another member has a partition, or still has to give it up."""


def reconcile(
    current: Current,
    target_epoch: int,
    target: Partitions,
    *,
    owned: Partitions | None,
    subscribed: frozenset[UUID],
    is_taken: IsTaken,
) -> Current:
    """The member's next step.

    `owned` are the partitions that the member reports, None if it reports nothing. `subscribed` are the topics of its
    partitions and its target to which it subscribes now. If the member unsubscribes from a topic, the topic's
    partitions are revoked at once. They are not assigned again, even if the old target still has them.
    """
    match current.state:
        case MemberState.STABLE if current.epoch == target_epoch:
            return _give_up(current, subscribed, owned)
        case MemberState.UNREVOKED_PARTITIONS if _still_has(current.pending, owned):
            return _give_up(current, subscribed, owned)
    target = {topic_id: wanted for topic_id, wanted in target.items() if topic_id in subscribed}
    return _advance(current, target_epoch, target, owned, is_taken)


def _advance(
    current: Current, target_epoch: int, target: Partitions, owned: Partitions | None, is_taken: IsTaken
) -> Current:
    kept, dropped = _divide(current.assigned, lambda topic_id: target.get(topic_id, frozenset()))
    if dropped and _still_has(dropped, owned):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending=dropped)
    assigned = {topic_id: dict(partitions) for topic_id, partitions in kept.items()}
    is_waiting = False
    for topic_id, wanted in target.items():
        has = kept.get(topic_id, {})
        for partition in wanted:
            if partition in has:
                continue
            if is_taken(topic_id, partition):
                is_waiting = True
            else:
                assigned.setdefault(topic_id, {})[partition] = target_epoch
    return Current(
        target_epoch,
        # If the epoch stays, the previous epoch stays, too: so a member that lost two responses is not fenced.
        current.previous_epoch if current.epoch == target_epoch else current.epoch,
        MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned,
    )


def _give_up(current: Current, subscribed: frozenset[UUID], owned: Partitions | None) -> Current:
    """Revokes the partitions of topics to which the member no longer subscribes."""
    everything = {
        topic_id: frozenset(has) for topic_id, has in current.assigned.items() if topic_id in subscribed
    }
    kept, dropped = _divide(current.assigned, lambda topic_id: everything.get(topic_id, frozenset()))
    if not dropped:
        return current
    pending = {topic_id: dict(partitions) for topic_id, partitions in current.pending.items()}
    for topic_id, partitions in dropped.items():
        pending.setdefault(topic_id, {}).update(partitions)
    if not _still_has(pending, owned):
        return replace(current, assigned=kept)
    return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending=pending)


def _divide(
    assigned: Assigned, wanted: Callable[[UUID], frozenset[int]]
) -> tuple[dict[UUID, dict[int, int]], dict[UUID, dict[int, int]]]:
    """The assigned partitions that are wanted, and those that are not."""
    kept: dict[UUID, dict[int, int]] = {}
    dropped: dict[UUID, dict[int, int]] = {}
    for topic_id, partitions in assigned.items():
        stay = wanted(topic_id)
        for partition, epoch in partitions.items():
            (kept if partition in stay else dropped).setdefault(topic_id, {})[partition] = epoch
    return kept, dropped


def _still_has(partitions: Assigned, owned: Partitions | None) -> bool:
    """Whether the member may still read one of these partitions: it reports one, or reports nothing."""
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(has) for topic_id, has in partitions.items())
