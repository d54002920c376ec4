"""The broker's assignors of consumer groups (KIP-848): `uniform` and `range`. Pure.

Keeps true:  every partition of a subscribed topic has exactly one member, which subscribes to the topic.
             Every member has an entry in the result. The order of members and topics in the arguments does not matter.
How:         the assignors of `felice.assignment` name topics by strings: here the string is the topic id.
             Like those of Kafka, they do not look at racks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeAlias
from uuid import UUID

from felice.assignment import Assignment as NamedAssignment
from felice.assignment import Subscription
from felice.assignment.eager import assign_range
from felice.assignment.sticky import assign_sticky
from felice.coordinator.group.modern.reconciliation import Partitions
from felice.dataclass import dataclass
from felice.protocol.topic_partition import TopicPartition

Assignment: TypeAlias = dict[str, Partitions]
"""The partitions of each member, by member id and topic id. No set is empty."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as input of an assignor. `assigned` is its last target assignment, not its current assignment."""

    topics: frozenset[UUID]
    assigned: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


def uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Balances partitions as far as the subscriptions allow, and moves few partitions (`assign_sticky`)."""
    return _by_id(assign_sticky, members, partition_counts)


def ranges(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Gives each member a contiguous range of each topic, static members first (`assign_range`). Ignores `assigned`."""
    return _by_id(assign_range, members, partition_counts)


ASSIGNORS = {"uniform": uniform, "range": ranges}
"""The assignors by the names that members and `group.consumer.assignors` use."""


def _by_id(
    assign: Callable[[Mapping[str, Subscription], Mapping[str, int]], NamedAssignment],
    members: Mapping[str, Subscriber],
    partition_counts: Mapping[UUID, int],
) -> Assignment:
    names = {topic_id: topic_id.hex for topic_id in partition_counts}
    # Members with the same topics share one tuple: a group may have 1,000 of them with 10,000 topics each.
    topics: dict[frozenset[UUID], tuple[str, ...]] = {}
    for member in members.values():
        if member.topics not in topics:
            topics[member.topics] = tuple(names[topic_id] for topic_id in member.topics if topic_id in names)
    named = {member_id: _named(member, topics[member.topics], names) for member_id, member in members.items()}
    found = assign(named, {names[topic_id]: count for topic_id, count in partition_counts.items()})
    ids = {name: topic_id for topic_id, name in names.items()}
    return {member_id: _by_topic(partitions, ids) for member_id, partitions in found.items()}


def _named(member: Subscriber, topics: tuple[str, ...], names: Mapping[UUID, str]) -> Subscription:
    """A topic without a name was deleted."""
    owned = tuple(
        TopicPartition(name, index)
        for topic_id, indexes in member.assigned.items()
        if (name := names.get(topic_id)) is not None
        for index in indexes
    )
    return Subscription(topics, owned, instance_id=member.instance_id, rack_id=member.rack_id)


def _by_topic(partitions: Iterable[TopicPartition], ids: Mapping[str, UUID]) -> dict[UUID, frozenset[int]]:
    indexes: dict[str, list[int]] = {}
    for name, index in partitions:
        indexes.setdefault(name, []).append(index)
    return {ids[name]: frozenset(found) for name, found in indexes.items()}
