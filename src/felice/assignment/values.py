"""What assignors read and give: subscriptions in, partitions per member out. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from felice.protocol.topic_partition import TopicPartition

NO_GENERATION = -1


Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id; every member has an entry, perhaps an empty one."""


class RebalanceProtocol(Enum):
    """How a member behaves while the group rebalances (KIP-429)."""

    EAGER = "eager"
    """Gives up everything before it rejoins."""
    COOPERATIVE = "cooperative"
    """Keeps what it has, and gives up only what the new assignment takes away."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One member's side of a rebalance, as its JoinGroup metadata says it.

    `owned` is what it held when it joined, and `generation` the generation in which it got that: claims of an
    older generation lose against newer ones. `rack_id` is carried for an application's own assignor; the ones
    here know nothing of the replicas' racks.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


def members_in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Static members first, by instance id, then the others by member id, as Java's assignors walk them.

    A static member that restarts gets a new member id; ordered by instance id it keeps its place.
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = subscriptions[member_id].instance_id
        return (instance_id is None, instance_id or "", member_id)

    return sorted(subscriptions, key=place)


def subscribed_topics(
    subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> list[str]:
    """Every topic that exists and that somebody asks for, by name."""
    asked = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    return sorted(topic for topic in asked if partition_counts.get(topic, 0) > 0)


def partitions_of(topics: Iterable[str], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in topics for index in range(partition_counts[topic])]
