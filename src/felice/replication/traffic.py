"""What producers, consumers and followers moved, counted for each topic.

Keeps true: a count never falls while its topic exists, also when partitions move between brokers.
            The counts of the whole broker never fall: they contain the counts of deleted topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class TopicTraffic:
    """Counts since the start of the broker. Partitions of the topic add to them on every append and read."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0

    def add(self, other: TopicTraffic) -> None:
        """Adds all counts of another topic."""
        for counted in fields(self):
            name = counted.name
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class BrokerTraffic:
    """The counts of all topics of one broker."""

    topics: dict[str, TopicTraffic] = field(default_factory=dict)
    _deleted: TopicTraffic = field(default_factory=TopicTraffic)

    def of(self, topic: str) -> TopicTraffic:
        """The counts of one topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def keep_only(self, topics: Iterable[str]) -> None:
        """Forgets topics that were deleted. Only their part of `total` stays."""
        for name in self.topics.keys() - set(topics):
            self._deleted.add(self.topics.pop(name))

    def total(self) -> TopicTraffic:
        """The counts of the broker: of all topics, and of topics that were deleted."""
        total = TopicTraffic()
        total.add(self._deleted)
        for traffic in self.topics.values():
            total.add(traffic)
        return total
