"""The broker's assignors of KIP-848: `uniform` and `range`.

They are those of classic groups, with the ids of topics in the place of names, and a member's target in the place of
the partitions that it reports. Neither looks at racks, as in Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias
from uuid import UUID

from felice.assignment.eager import assign_range
from felice.assignment.sticky import assign_sticky
from felice.assignment.values import Assignment, Subscription
from felice.coordinator.group.modern.reconciliation import NOTHING, Partitions
from felice.dataclass import dataclass
from felice.protocol.topic_partition import TopicPartition

Assign: TypeAlias = Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]

_ASSIGNORS: Mapping[str, Assign] = {"uniform": assign_sticky, "range": assign_range}


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as an assignor sees it: the ids of its topics that exist, and the partitions of its last target."""

    instance_id: str | None = None
    topics: frozenset[UUID] = frozenset()
    assigned: Partitions = field(default_factory=lambda: NOTHING)


def assign(
    name: str, members: Mapping[str, AssignorMember], partition_counts: Mapping[UUID, int]
) -> dict[str, Partitions]:
    """The partitions of each member, by the assignor of this name."""
    ids = {topic_id.hex: topic_id for topic_id in partition_counts}
    subscriptions = {
        member_id: Subscription(
            topics=tuple(sorted(topic_id.hex for topic_id in member.topics)),
            owned=tuple(
                TopicPartition(topic_id.hex, partition)
                for topic_id, partitions in member.assigned.items()
                for partition in partitions
            ),
            instance_id=member.instance_id,
        )
        for member_id, member in members.items()
    }
    counts = {topic_id.hex: count for topic_id, count in partition_counts.items()}
    found = _ASSIGNORS[name](subscriptions, counts)
    assigned: dict[str, Partitions] = {}
    for member_id in members:
        grouped: dict[UUID, set[int]] = {}
        for partition in found.get(member_id, ()):
            grouped.setdefault(ids[partition.topic], set()).add(partition.partition)
        assigned[member_id] = {topic_id: frozenset(numbers) for topic_id, numbers in grouped.items()}
    return assigned
