"""A partition, identified by topic name and index."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

PartitionKey: TypeAlias = tuple[str, int]
"""A `TopicPartition`, or the plain tuple that equals it: the key type of mappings by partition."""


class TopicPartition(NamedTuple):
    """The name of a topic and the index of a partition."""

    topic: str
    partition: int
