"""The assignors by name, behind one interface.

A member uses three things: `user_data` when it joins, `assign` when it leads, and `protocol` to know whether to
give its partitions up before rejoining. The names are those on the wire, which Java and librdkafka share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol

from felice.assignment.eager import assign_range, assign_round_robin
from felice.assignment.sticky import assign_sticky
from felice.assignment.user_data import (
    decode_generation,
    decode_previous_assignment,
    encode_generation,
    encode_previous_assignment,
)
from felice.assignment.values import (
    NO_GENERATION,
    Assignment,
    RebalanceProtocol,
    Subscription,
)
from felice.protocol.topic_partition import TopicPartition


class Assignor(Protocol):
    """What a consumer needs of an assignor; an application may bring its own."""

    @property
    def name(self) -> str: ...

    @property
    def protocol(self) -> RebalanceProtocol: ...

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What goes into this member's subscription beside its topics."""
        ...

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """Subscriptions by member id, partition counts by topic; a topic that is missing does not exist."""
        ...


class RangeAssignor:
    name: ClassVar[str] = "range"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.EAGER

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        return assign_range(subscriptions, partition_counts)


class RoundRobinAssignor:
    name: ClassVar[str] = "roundrobin"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.EAGER

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        return assign_round_robin(subscriptions, partition_counts)


class StickyAssignor:
    """Eager, so members own nothing when they join: the last assignment comes back in the user data."""

    name: ClassVar[str] = "sticky"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.EAGER

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        if not last_assignment:
            return None
        return encode_previous_assignment(last_assignment, generation)

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        with_previous = {
            member_id: _with_previous_assignment(sub) for member_id, sub in subscriptions.items()
        }
        return assign_sticky(with_previous, partition_counts)


class CooperativeStickyAssignor:
    """The sticky assignment in two rounds (KIP-429): first given up, in the next rebalance handed over.

    A partition that moves is in nobody's assignment for one round. Its old owner sees it missing, gives it up
    and rejoins, and only then does it reach the new owner: no two members ever hold it at once.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.COOPERATIVE

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        return encode_generation(generation)

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        with_generations = {member_id: _with_generation(sub) for member_id, sub in subscriptions.items()}
        target = assign_sticky(with_generations, partition_counts)
        return _withhold_held_by_others(target, subscriptions)


class UniformAssignor:
    """The broker's own assignor of KIP-848 groups: the sticky assignment over the previous target.

    The coordinator reconciles members towards the target one by one, so nothing is withheld here.
    """

    name: ClassVar[str] = "uniform"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.COOPERATIVE

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        return assign_sticky(subscriptions, partition_counts)


def _with_previous_assignment(subscription: Subscription) -> Subscription:
    if subscription.user_data is None:
        return subscription
    owned, generation = decode_previous_assignment(subscription.user_data)
    return replace(subscription, owned=owned, generation=generation)


def _with_generation(subscription: Subscription) -> Subscription:
    if subscription.generation != NO_GENERATION:
        return subscription
    return replace(subscription, generation=decode_generation(subscription.user_data))


def _withhold_held_by_others(target: Assignment, subscriptions: Mapping[str, Subscription]) -> Assignment:
    """Even a claim that lost counts here: its member still reads the partition until it gives it up."""
    held = {partition for subscription in subscriptions.values() for partition in subscription.owned}
    return {
        member_id: [
            partition
            for partition in partitions
            if partition not in held or partition in subscriptions[member_id].owned
        ]
        for member_id, partitions in target.items()
    }


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
        UniformAssignor(),
    )
}
"""Every assignor by the name it has on the wire. `uniform` is the broker's, never a client's, choice."""
