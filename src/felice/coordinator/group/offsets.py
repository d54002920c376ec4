"""The committed offsets of one shard: what is committed, and what waits for a transaction's end.

Keeps true:  the offsets are a function of the records applied, in order, and of the transactions' markers.
             `apply` gives back a function that takes its record back.
A transaction's commit counts at its marker, as if it were written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from felice.coordinator.group.records import CommittedOffset, OffsetRecord
from felice.coordinator.shard import NO_PRODUCER_ID, Undo

TopicOffsets: TypeAlias = dict[int, CommittedOffset]


@dataclass(slots=True)
class OffsetStore:
    _committed: dict[str, dict[str, TopicOffsets]] = field(default_factory=dict)
    _pending: dict[int, dict[tuple[str, str, int], OffsetRecord]] = field(default_factory=dict)

    def apply(self, record: OffsetRecord, producer_id: int = NO_PRODUCER_ID) -> Undo:
        if producer_id != NO_PRODUCER_ID:
            return self._set_pending(producer_id, record)
        group_id, topic, partition = record.group_id, record.topic, record.partition
        before = self.get(group_id, topic, partition)
        self._set(group_id, topic, partition, record.committed)
        return lambda: self._set(group_id, topic, partition, before)

    def end_transaction(self, producer_id: int, committed: bool) -> list[OffsetRecord]:
        """The records that count from now on."""
        ended = list(self._pending.pop(producer_id, {}).values())
        if not committed:
            return []
        for record in ended:
            self._set(record.group_id, record.topic, record.partition, record.committed)
        return ended

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._committed.get(group_id, {}).get(topic, {}).get(partition)

    def topics(self, group_id: str) -> dict[str, TopicOffsets]:
        return self._committed.get(group_id, {})

    def of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """Every (group, partition) with a commit for this topic."""
        for group_id, topics in self._committed.items():
            for partition in topics.get(topic, ()):
                yield group_id, partition

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any((group_id, topic, partition) in records for records in self._pending.values())

    def has_pending(self, group_id: str) -> bool:
        return any(key[0] == group_id for records in self._pending.values() for key in records)

    def _set_pending(self, producer_id: int, record: OffsetRecord) -> Undo:
        key = (record.group_id, record.topic, record.partition)
        records = self._pending.setdefault(producer_id, {})
        before = records.get(key)
        records[key] = record

        def undo() -> None:
            if before is not None:
                records[key] = before
            else:
                records.pop(key, None)

        return undo

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
