"""The assignors by name, behind one interface.

A member calls `user_data` when it joins, `assign` when it is the group leader, and `protocol` to know whether it gives
its partitions up before it rejoins. The names are those of the wire protocol, as in Java and librdkafka.
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
    """The interface of an assignor. An application may provide its own."""

    @property
    def name(self) -> str:
        """The name on the wire."""
        ...

    @property
    def protocol(self) -> RebalanceProtocol:
        """Whether members give up their partitions before they rejoin."""
        ...

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Returns the user data of this member's subscription, or None."""
        ...

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """Returns the partitions of each member.

        Subscriptions are by member id, partition counts by topic. A topic without a count does not exist.
        """
        ...


class RangeAssignor:
    """Assigns consecutive ranges of each topic (`assign_range`)."""

    name: ClassVar[str] = "range"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.EAGER

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        """None: range needs nothing but the subscriptions."""
        return None

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """Each topic's partitions in contiguous ranges, see `assign_range`."""
        return assign_range(subscriptions, partition_counts)


class RoundRobinAssignor:
    """Assigns partitions in turn (`assign_round_robin`)."""

    name: ClassVar[str] = "roundrobin"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.EAGER

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        """None: round-robin needs nothing but the subscriptions."""
        return None

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """All topics' partitions in turn, see `assign_round_robin`."""
        return assign_round_robin(subscriptions, partition_counts)


class StickyAssignor:
    """Eager and sticky. Members own nothing when they join, so the user data carries their last assignment."""

    name: ClassVar[str] = "sticky"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.EAGER

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        """The partitions that the member had, with their generation; None if it had none."""
        if not last_assignment:
            return None
        return encode_previous_assignment(last_assignment, generation)

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """A balanced assignment that moves few partitions; members report their previous ones (KIP-54)."""
        with_previous = {
            member_id: _with_previous_assignment(sub) for member_id, sub in subscriptions.items()
        }
        return assign_sticky(with_previous, partition_counts)


class CooperativeStickyAssignor:
    """The sticky assignment in two rounds (KIP-429): a partition is given up first, and assigned in the next rebalance.

    A partition that moves is unassigned for one round. Its old owner notices that, gives the partition up and rejoins.
    Only then is it assigned to the new owner, so no two members own it at the same time.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocol: ClassVar[RebalanceProtocol] = RebalanceProtocol.COOPERATIVE

    def user_data(self, last_assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
        """The generation of the partitions that the member still owns; the subscription names these (KIP-429)."""
        return encode_generation(generation)

    def assign(
        self, subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
    ) -> Assignment:
        """As sticky, but a partition that changes its owner is not assigned until the next rebalance (KIP-429)."""
        with_generations = {member_id: _with_generation(sub) for member_id, sub in subscriptions.items()}
        target = assign_sticky(with_generations, partition_counts)
        return _withhold_held_by_others(target, subscriptions)


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
    """Removes partitions that another member claims.

    Outdated claims count, too: their members still read the partition.
    """
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
    )
}
"""Every assignor by its name on the wire."""
