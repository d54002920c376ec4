"""What producers, consumers and followers moved, counted for each topic.

Keeps true: a count never falls while its topic exists, also when partitions move between brokers.
            The counts of the whole broker never fall: they contain the counts of deleted topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, fields

from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
# Kafka does not count appends with these errors as failed, either.
_NOT_COUNTED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


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

    def on_failed_append(self, size_bytes: int, code: int) -> None:
        """Counts an append that was refused with this error code: too large batches by their size."""
        if code in _TOO_LARGE:
            self.bytes_rejected += size_bytes
        elif code not in _NOT_COUNTED:
            self.failed_produce_requests += 1

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
