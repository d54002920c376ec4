"""Range and round-robin: the two assignors that ignore the previous assignment.

Keeps true: both give exactly the assignment that Java's `RangeAssignor` (with no racks known) and `RoundRobinAssignor`
            give.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from felice.assignment.values import (
    Assignment,
    Subscription,
    members_in_order,
    partitions_of,
    subscribed_topics,
    subscribers_by_topic,
    topic_sets,
)
from felice.protocol.topic_partition import TopicPartition


def assign_range(
    subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Divides each topic into consecutive ranges; the first members get one partition more.

    Topics with equal partition counts and subscribers have equal ranges, as joins of co-partitioned topics need.
    """
    order = members_in_order(subscriptions)
    assignment: Assignment = {member_id: [] for member_id in order}
    topics = subscribed_topics(subscriptions, partition_counts)
    for topic, subscribers in subscribers_by_topic(order, topic_sets(subscriptions), topics).items():
        each, extra = divmod(partition_counts[topic], len(subscribers))
        start = 0
        # Members after the last partition get none.
        for place, member_id in enumerate(subscribers[: partition_counts[topic]]):
            end = start + each + (place < extra)
            assignment[member_id].extend(TopicPartition(topic, index) for index in range(start, end))
            start = end
    return assignment


def assign_round_robin(
    subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Assigns partitions to members in turn, and skips members that are not subscribed to the topic."""
    order = members_in_order(subscriptions)
    assignment: Assignment = {member_id: [] for member_id in order}
    turn = 0
    topics = subscribed_topics(subscriptions, partition_counts)
    for partition in partitions_of(topics, partition_counts):
        turn = next(
            place
            for place in count(turn)
            if partition.topic in subscriptions[order[place % len(order)]].topics
        )
        assignment[order[turn % len(order)]].append(partition)
        turn += 1
    return assignment
