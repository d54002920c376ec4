"""The sticky assignment: as balanced as subscriptions allow, and with as few moves as balance allows.

Keeps true:  when all members want the same topics, no two of them differ by more than one partition, and a
             member keeps what it owned up to its fair share.
             Otherwise no partition can move to a member that has at least two partitions fewer.
             A valid, balanced previous assignment is returned unchanged.

How: first it drops invalid claims of ownership: the newest generation wins, and a partition that two members claim in
one generation has no owner. Members with equal subscriptions get quotas, in one pass. Otherwise each free partition
goes to the member with the fewest partitions, and then single partitions move to members with fewer until nothing
improves.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappush, heapreplace

from felice.assignment.values import (
    Assignment,
    Subscription,
    partitions_of,
    subscribed_topics,
    subscribers_by_topic,
    topic_sets,
)
from felice.protocol.topic_partition import TopicPartition


def assign_sticky(
    subscriptions: Mapping[str, Subscription], partition_counts: Mapping[str, int]
) -> Assignment:
    """Returns the partitions of each member."""
    members = sorted(subscriptions)
    if not members:
        return {}
    partitions = partitions_of(subscribed_topics(subscriptions, partition_counts), partition_counts)
    wanted = topic_sets(subscriptions)
    owned = _valid_claims(subscriptions, wanted, frozenset(partitions))
    if len(set(wanted.values())) == 1:
        return _assign_by_quota(members, partitions, owned)
    return _Balancing(members, partitions, wanted, owned).run()


def _valid_claims(
    subscriptions: Mapping[str, Subscription],
    wanted: Mapping[str, frozenset[str]],
    existing: frozenset[TopicPartition],
) -> Assignment:
    """Returns what each member owns, without invalid claims.

    A member that missed a generation may still claim partitions that were assigned to others since. So for each
    partition the newest generation wins. If two members of that generation claim a partition, both claims are dropped.
    """
    newest: dict[TopicPartition, int] = {}
    claims: dict[TopicPartition, int] = {}
    for member_id in sorted(subscriptions):
        subscription = subscriptions[member_id]
        for partition in dict.fromkeys(subscription.owned):
            generation = newest.get(partition)
            if generation is None or subscription.generation > generation:
                newest[partition], claims[partition] = subscription.generation, 1
            elif subscription.generation == generation:
                claims[partition] += 1

    def holds(member_id: str, partition: TopicPartition) -> bool:
        return (
            partition in existing
            and partition.topic in wanted[member_id]
            and newest[partition] == subscriptions[member_id].generation
            and claims[partition] == 1
        )

    return {
        member_id: sorted(partition for partition in set(subscription.owned) if holds(member_id, partition))
        for member_id, subscription in sorted(subscriptions.items())
    }


def _assign_by_quota(members: list[str], partitions: list[TopicPartition], owned: Assignment) -> Assignment:
    """Assigns partitions to members with equal subscriptions.

    `extra` members get one more than `quota`: first those that already own more than `quota`.
    """
    quota, extra = divmod(len(partitions), len(members))
    assignment: Assignment = {}
    for member_id in members:
        allowed = quota
        if extra and len(owned[member_id]) > quota:
            allowed, extra = quota + 1, extra - 1
        assignment[member_id] = owned[member_id][:allowed]

    taken = {partition for held in assignment.values() for partition in held}
    free = [partition for partition in partitions if partition not in taken]
    position = 0
    # Each round gives one partition to each member, so that the partitions of a topic are spread over the members.
    while below_quota := [member_id for member_id in members if len(assignment[member_id]) < quota]:
        for member_id in below_quota:
            assignment[member_id].append(free[position])
            position += 1
    at_quota = [member_id for member_id in members if len(assignment[member_id]) == quota]
    for member_id, partition in zip(at_quota, free[position:], strict=False):
        assignment[member_id].append(partition)
    return assignment


class _Balancing:
    """One assignment for unequal subscriptions: places free partitions, then moves partitions."""

    def __init__(
        self,
        members: list[str],
        partitions: list[TopicPartition],
        wanted: Mapping[str, frozenset[str]],
        owned: Assignment,
    ) -> None:
        topics = sorted({partition.topic for partition in partitions})
        self.candidates = subscribers_by_topic(members, wanted, topics)
        # Partitions with few candidates are placed first: the others can balance the load better.
        self.partitions = sorted(partitions, key=lambda tp: (len(self.candidates[tp.topic]), tp))
        self.load = {member_id: len(owned[member_id]) for member_id in members}
        self.owner = {partition: member_id for member_id, held in owned.items() for partition in held}
        self.queues: dict[int, list[tuple[int, str]]] = {}
        """For each list of candidates, by its `id`: a heap of candidates by load. Its loads may be too low."""
        self.queues_of: dict[str, list[list[tuple[int, str]]]] = {member_id: [] for member_id in members}
        for candidates in {id(one): one for one in self.candidates.values()}.values():
            queue = self.queues[id(candidates)] = [
                (self.load[member_id], member_id) for member_id in candidates
            ]
            heapify(queue)
            for member_id in candidates:
                self.queues_of[member_id].append(queue)

    def run(self) -> Assignment:
        for partition in self.partitions:
            if partition not in self.owner:
                self._give(partition, self._least_loaded(partition))
        while self._move_in_cycle():
            pass
        assignment: Assignment = {member_id: [] for member_id in self.load}
        for partition in sorted(self.owner):
            assignment[self.owner[partition]].append(partition)
        return assignment

    def _least_loaded(self, partition: TopicPartition) -> str:
        queue = self.queues[id(self.candidates[partition.topic])]
        while (entry := queue[0])[0] != (load := self.load[entry[1]]):
            # The entry is older than the load. A load that has fallen has an entry of its own (`_take`).
            heapreplace(queue, (load, entry[1]))
        return entry[1]

    def _take(self, member_id: str) -> None:
        self.load[member_id] -= 1
        for queue in self.queues_of[member_id]:
            heappush(queue, (self.load[member_id], member_id))

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self.owner[partition] = member_id
        self.load[member_id] += 1

    def _move_in_cycle(self) -> bool:
        """Makes one pass of moves. Returns whether it moved a partition.

        Each move reduces a difference of two or more, so the sum of the squared loads falls and the moves must end.
        """
        moved = False
        for partition in self.partitions:
            owner, least_loaded = self.owner[partition], self._least_loaded(partition)
            if self.load[owner] > self.load[least_loaded] + 1:
                self._take(owner)
                self._give(partition, least_loaded)
                moved = True
        return moved
