"""How a mirror calls partitions of the source and offsets in them, and how it divides them among tasks."""

from __future__ import annotations

from felice.pipelines.connect.connector.contexts import TopicPartition

CLUSTER, TOPIC, PARTITION, OFFSET = "cluster", "topic", "partition", "offset"
"""The names in the source's partitions and offsets, which are Kafka's. The offset is that of the last record."""


def divided(items: list[str], max_tasks: int) -> list[list[str]]:
    """The items of each task, in turns; no more tasks than items."""
    count = min(max_tasks, len(items))
    return [items[number::count] for number in range(count)]


def text_of(partition: TopicPartition) -> str:
    """A partition as a text, which has no comma: names of topics have none."""
    return f"{partition[0]}-{partition[1]}"


def partition_of(text: str) -> TopicPartition:
    """The partition of a text."""
    topic, _, number = text.rpartition("-")
    return topic, int(number)
