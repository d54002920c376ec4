"""The committed offsets of one shard, and the commits that wait for the end of their transaction.

Keeps true:  the offsets are a function of the records applied, in order, and of the transactions' markers.
             `apply` returns a function that undoes its record.
A transaction's commit counts from its marker on, unless a later commit counts already. A removal also removes waiting
commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from felice.coordinator.group.records import CommittedOffset, OffsetRecord
from felice.coordinator.shard import NO_PRODUCER_ID, Undo, undo_nothing
from felice.dataclass import dataclass

TopicOffsets: TypeAlias = dict[int, CommittedOffset]
Key: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(slots=True)
class OpenCommits:
    """Commits of open transactions for one partition of one group: `orders` has the order of each producer's commit.

    `latest` is the order of the newest commit that has become effective since.
    """

    orders: dict[int, int] = field(default_factory=dict)
    latest: int = -1


@dataclass(slots=True)
class OffsetStore:
    """Offsets by group, topic and partition. See the module."""

    _committed: dict[str, dict[str, TopicOffsets]] = field(default_factory=dict)
    _pending: dict[int, dict[Key, OffsetRecord]] = field(default_factory=dict)
    _open: dict[str, dict[tuple[str, int], OpenCommits]] = field(default_factory=dict)
    _applied: int = 0

    def apply(self, record: OffsetRecord, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Applies a record; returns the function that undoes it. With a producer id the record waits for the marker."""
        self._applied += 1
        if producer_id != NO_PRODUCER_ID:
            return self._set_pending(producer_id, record)
        key = group_id, topic, partition = record.group_id, record.topic, record.partition
        before = self.get(*key)
        undo_open = self._drop_pending(key) if record.committed is None else self._outdate_pending(key)
        self._set(group_id, topic, partition, record.committed)

        def undo() -> None:
            self._set(group_id, topic, partition, before)
            undo_open()

        return undo

    def end_transaction(self, producer_id: int, committed: bool) -> list[OffsetRecord]:
        """Returns the records that count from now on."""
        counting = []
        for key, record in self._pending.pop(producer_id, {}).items():
            open_commits = self._open[key[0]][key[1:]]
            order = open_commits.orders[producer_id]
            if committed and order > open_commits.latest:
                open_commits.latest = order
                self._set(*key, record.committed)
                counting.append(record)
            self._forget_open(producer_id, key)
        return counting

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset that counts now, or None."""
        return self._committed.get(group_id, {}).get(topic, {}).get(partition)

    def topics(self, group_id: str) -> dict[str, TopicOffsets]:
        """The group's committed offsets by topic and partition."""
        return self._committed.get(group_id, {})

    def all_of(self, group_id: str) -> list[tuple[str, int]]:
        """Every (topic, partition) with a commit of this group, also of an open transaction."""
        found = {
            (topic, partition): None
            for topic, partitions in self.topics(group_id).items()
            for partition in partitions
        }
        return list(found | dict.fromkeys(self._open.get(group_id, ())))

    def of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """Every (group, partition) with a commit for this topic, also of an open transaction."""
        for group_id, topics in self._committed.items():
            for partition in topics.get(topic, ()):
                yield group_id, partition
        for group_id, partitions in self._open.items():
            for name, partition in partitions:
                if name == topic and self.get(group_id, topic, partition) is None:
                    yield group_id, partition

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a commit for the partition (KIP-447: UNSTABLE_OFFSET_COMMIT)."""
        return (topic, partition) in self._open.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has a commit of the group."""
        return group_id in self._open

    def exists(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the partition has a commit, or will have one if an open transaction commits."""
        return self.get(group_id, topic, partition) is not None or self.is_pending(group_id, topic, partition)

    # Open transactions

    def _set_pending(self, producer_id: int, record: OffsetRecord, order: int | None = None) -> Undo:
        key = (record.group_id, record.topic, record.partition)
        records = self._pending.setdefault(producer_id, {})
        orders = self._open.setdefault(key[0], {}).setdefault(key[1:], OpenCommits()).orders
        before, order_before = records.get(key), orders.get(producer_id)
        records[key], orders[producer_id] = record, self._applied if order is None else order

        def undo() -> None:
            if before is None or order_before is None:
                self._remove_pending(producer_id, key)
            else:
                records[key], orders[producer_id] = before, order_before

        return undo

    def _remove_pending(self, producer_id: int, key: Key) -> None:
        records = self._pending[producer_id]
        del records[key]
        if not records:
            del self._pending[producer_id]
        self._forget_open(producer_id, key)

    def _forget_open(self, producer_id: int, key: Key) -> None:
        partitions = self._open[key[0]]
        del partitions[key[1:]].orders[producer_id]
        if not partitions[key[1:]].orders:
            del partitions[key[1:]]
        if not partitions:
            del self._open[key[0]]

    def _outdate_pending(self, key: Key) -> Undo:
        """A commit that counts at once is newer than the waiting ones."""
        open_commits = self._open.get(key[0], {}).get(key[1:])
        if open_commits is None:
            return undo_nothing
        before, open_commits.latest = open_commits.latest, self._applied

        def undo() -> None:
            open_commits.latest = before

        return undo

    def _drop_pending(self, key: Key) -> Undo:
        open_commits = self._open.get(key[0], {}).get(key[1:])
        if open_commits is None:
            return undo_nothing
        latest = open_commits.latest
        dropped = [
            (producer_id, self._pending[producer_id][key], order)
            for producer_id, order in open_commits.orders.items()
        ]
        for producer_id, _, _ in dropped:
            self._remove_pending(producer_id, key)

        def undo() -> None:
            for producer_id, record, order in dropped:
                self._set_pending(producer_id, record, order)
            self._open[key[0]][key[1:]].latest = latest

        return undo

    # Effective commits

    def _set(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        if committed is not None:
            self._committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
            return
        topics = self._committed.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._committed.pop(group_id, None)
