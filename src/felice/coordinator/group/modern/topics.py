"""The topics of the cluster, as an immutable value for groups. Each change of the topics makes a new value.

Keeps true: a higher `version` means that a topic was added or removed, or has another number of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol
from uuid import UUID

from felice.dataclass import dataclass

_ODD = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835
_HASH_MASK = 2**64 - 1
_HIGHEST_INT64 = 2**63


class Topic(Protocol):
    """The facts about a topic that groups use."""

    @property
    def topic_id(self) -> UUID:
        """Its id."""
        ...

    @property
    def partitions(self) -> Collection[object]:
        """Its partitions, by number."""
        ...


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics by name, and their names by id."""

    by_name: Mapping[str, Topic]
    names: Mapping[UUID, str]
    version: int

    def is_as(self, by_name: Mapping[str, Topic]) -> bool:
        """Whether these topics have the same ids and numbers of partitions. Looks at each topic."""
        if len(by_name) != len(self.by_name):
            return False
        for name, topic in by_name.items():
            known = self.by_name.get(name)
            if known is not topic and (
                known is None
                or known.topic_id != topic.topic_id
                or len(known.partitions) != len(topic.partitions)
            ):
                return False
        return True

    def counts(self, names: Iterable[str]) -> dict[UUID, int]:
        """The numbers of partitions of those topics that exist, by id."""
        found = (self.by_name.get(name) for name in names)
        return {topic.topic_id: len(topic.partitions) for topic in found if topic is not None}

    def ids(self, names: Iterable[str]) -> frozenset[UUID]:
        """The ids of those topics that exist."""
        return frozenset(topic.topic_id for name in names if (topic := self.by_name.get(name)) is not None)

    def hash_of(self, names: Iterable[str]) -> int:
        """A hash of ids and numbers of partitions, as a signed 64-bit number; 0 without an existing topic.

        Groups store the hash, to see whether their topics changed. Kafka computes another hash. So the assignment of a
        group whose records Kafka wrote is computed once more, and moves no partition.
        """
        total = 0
        for name in names:
            topic = self.by_name.get(name)
            if topic is not None:
                # Topic ids are random, so a product with an odd number mixes in the number of partitions well enough.
                total += (topic.topic_id.int + len(topic.partitions)) * _ODD
        total &= _HASH_MASK
        return total - 2**64 if total >= _HIGHEST_INT64 else total


NO_TOPICS = Topics({}, {}, -1)
"""The topics of a shard that was made without topics."""
