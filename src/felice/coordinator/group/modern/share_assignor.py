"""The broker's assignor of share groups (KIP-932), `simple`: members share partitions. Pure.

Keeps true:  every partition of a subscribed topic has a member, and every member that subscribes to a topic with
             partitions has at least one of them. Among topics with the same subscribers, all partitions have the same
             number of members: the smallest number with which each member has a partition. The numbers of partitions
             of two members then differ by at most one. As far as these rules allow, a member keeps its partitions.
             The order of the arguments does not matter.
How:         topics with the same subscribers are divided together. If all members subscribe to the same topics, there
             is one division.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias
from uuid import UUID

from felice.assignment.values import subscribers_by_topic
from felice.coordinator.group.modern.assignors import Assignment, Subscriber

_Partition: TypeAlias = tuple[UUID, int]


def simple(members: Mapping[str, Subscriber], partitions: Mapping[UUID, Collection[int]]) -> Assignment:
    """The partitions of each member. `partitions` are the partitions with a share state; others are not assigned."""
    load = dict.fromkeys(sorted(members), 0)
    assigned: dict[str, set[_Partition]] = {member_id: set() for member_id in load}
    for subscribers, shared in _divisions(members, partitions):
        held = {
            member_id: {
                (topic_id, index)
                for topic_id, indexes in members[member_id].assigned.items()
                for index in indexes
            }
            for member_id in subscribers
        }
        division = _Division(subscribers, shared, held, load)
        for member_id, found in division.run().items():
            assigned[member_id] |= found
            load[member_id] += len(found)
    return {member_id: _by_topic(found) for member_id, found in assigned.items()}


def _divisions(
    members: Mapping[str, Subscriber], partitions: Mapping[UUID, Collection[int]]
) -> list[tuple[tuple[str, ...], list[_Partition]]]:
    """Groups of members, each with the partitions to which exactly these members subscribe. Small groups come first."""
    wanted = {member_id: members[member_id].topics for member_id in sorted(members)}
    topics = sorted(frozenset[UUID]().union(*set(wanted.values())))
    found: dict[tuple[str, ...], list[_Partition]] = {}
    for topic_id, subscribers in subscribers_by_topic(list(wanted), wanted, topics).items():
        if indexes := sorted(partitions.get(topic_id, ())):
            found.setdefault(tuple(subscribers), []).extend((topic_id, index) for index in indexes)
    return sorted(found.items(), key=lambda item: (len(item[0]), item))


class _Division:
    """Divides partitions among members that subscribe to all of them."""

    def __init__(
        self,
        members: Collection[str],
        partitions: list[_Partition],
        held: Mapping[str, Collection[_Partition]],
        load: Mapping[str, int],
    ) -> None:
        sharing = -(-len(members) // len(partitions))
        self.members = members
        self.open = dict.fromkeys(partitions, sharing)
        """The number of members that each partition still needs."""
        self.held = held
        self.load = load
        self.quota, self.extra = divmod(sharing * len(partitions), len(members))
        self.found: dict[str, set[_Partition]] = {member_id: set() for member_id in members}

    def run(self) -> dict[str, set[_Partition]]:
        """The partitions of each member."""
        for member_id in self.members:
            self._keep(member_id)
        self._fill()
        return self.found

    def _keep(self, member_id: str) -> None:
        """The member keeps partitions up to its quota; the first `extra` members may keep one more."""
        for partition in sorted(self.held[member_id]):
            if not self.open.get(partition):
                continue
            if len(self.found[member_id]) == self.quota:
                if not self.extra:
                    return
                self.extra -= 1
            elif len(self.found[member_id]) > self.quota:
                return
            self._give(partition, member_id)

    def _give(self, partition: _Partition, member_id: str) -> None:
        self.found[member_id].add(partition)
        self.open[partition] -= 1

    def _fill(self) -> None:
        """Repeatedly gives the member with the fewest partitions the partition that needs the most members."""
        waiting = [(len(found), self.load[member_id], member_id) for member_id, found in self.found.items()]
        heapify(waiting)
        lacking = [(-count, partition) for partition, count in self.open.items() if count]
        heapify(lacking)
        while lacking:
            count, load, member_id = heappop(waiting)
            passed = []
            while lacking and lacking[0][1] in self.found[member_id]:
                passed.append(heappop(lacking))
            if lacking:
                missing, partition = heappop(lacking)
                self._give(partition, member_id)
            else:
                missing, partition = passed.pop()
                self._swap(partition, member_id)
            for entry in passed:
                heappush(lacking, entry)
            if missing < -1:
                heappush(lacking, (missing + 1, partition))
            heappush(waiting, (count + 1, load, member_id))

    def _swap(self, partition: _Partition, member_id: str) -> None:
        """The member has all partitions that need members: another member gets `partition`, and gives up another one.

        In this case there are at least as many members as partitions, and this member has only `partition`. Not all
        members have `partition`, so another member has a different partition.
        """
        other = next(name for name, found in self.found.items() if partition not in found)
        given = min(self.found[other])
        self.found[other].remove(given)
        self.found[member_id].add(given)
        self._give(partition, other)


def _by_topic(partitions: Collection[_Partition]) -> dict[UUID, frozenset[int]]:
    indexes: dict[UUID, list[int]] = {}
    for topic_id, index in partitions:
        indexes.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(found) for topic_id, found in indexes.items()}
