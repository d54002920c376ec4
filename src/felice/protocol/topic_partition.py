"""One partition, by its topic's name and its number."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

PartitionKey: TypeAlias = tuple[str, int]
"""A `TopicPartition` or the plain tuple that equals it: the key of mappings from partitions."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int
