"""The input and output of assignors: subscriptions, and partitions by member. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from felice.dataclass import dataclass
from felice.protocol.topic_partition import TopicPartition

NO_GENERATION = -1

T = TypeVar("T")
"""A topic, by name or by id."""


Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id. Every member has an entry, which may be empty."""


class RebalanceProtocol(Enum):
    """How a member behaves while the group rebalances (KIP-429)."""

    EAGER = "eager"
    """The member gives up all partitions before it rejoins."""
    COOPERATIVE = "cooperative"
    """The member keeps its partitions, and gives up only those that the new assignment takes away."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of one member, from its JoinGroup metadata.

    `owned` has the partitions of the member when it joined, and `generation` is the generation in which it got them:
    claims of a newer generation win. `rack_id` is for assignors of applications; the assignors of Felice do not use
    racks.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


def members_in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Returns static members by instance id, then dynamic members by member id, in the order of Java's assignors.

    A static member that restarts gets a new member id. In the order by instance id it keeps its place.
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = subscriptions[member_id].instance_id
        return (instance_id is None, instance_id or "", member_id)

    return sorted(subscriptions, key=place)


def topic_sets(subscriptions: Mapping[str, Subscription]) -> dict[str, frozenset[str]]:
    """Returns the topics of each member as a set. Members with the same topics share one set: it may be large."""
    sets: dict[tuple[str, ...], frozenset[str]] = {}
    found = {}
    for member_id, subscription in subscriptions.items():
        topics = sets.get(subscription.topics)
        if topics is None:
            topics = sets[subscription.topics] = frozenset(subscription.topics)
        found[member_id] = topics
    return found


def subscribers_by_topic(
    members: Sequence[str], wanted: Mapping[str, frozenset[T]], topics: Iterable[T]
) -> dict[T, list[str]]:
    """Returns the members that want each topic, in their order. Topics of the same members share one list."""
    distinct = set(wanted.values())
    lists: dict[frozenset[frozenset[T]], list[str]] = {}
    found: dict[T, list[str]] = {}
    for topic in topics:
        wanting = frozenset(kind for kind in distinct if topic in kind)
        if wanting not in lists:
            lists[wanting] = [member_id for member_id in members if wanted[member_id] in wanting]
        found[topic] = lists[wanting]
    return found


def subscribed_topics(
    subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> list[str]:
    """Returns the names of all subscribed topics that exist."""
    distinct = {subscription.topics for subscription in subscriptions.values()}
    asked = {topic for topics in distinct for topic in topics}
    return sorted(topic for topic in asked if partition_counts.get(topic, 0) > 0)


def partitions_of(topics: Iterable[str], partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """Returns all partitions of these topics, in order."""
    return [TopicPartition(topic, index) for topic in topics for index in range(partition_counts[topic])]
