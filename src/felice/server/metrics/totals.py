"""Sums over partitions, which collectors compute in slices of time and `mbeans` at once."""

from __future__ import annotations

from felice.dataclass import dataclass
from felice.metadata import ClusterImage, TopicImage
from felice.replication.partition import Partition


@dataclass(slots=True)
class ReplicaTotals:
    """Sums over the partitions on this broker."""

    partitions: int = 0
    leaders: int = 0
    open: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    max_lag: int = 0

    def add(self, partition: Partition) -> None:
        """Adds one partition."""
        self.partitions += 1
        self.open += partition.is_open
        self.max_lag = max(self.max_lag, _lag(partition))
        if not partition.is_leader:
            return
        margin = isr_margin(partition)
        self.leaders += 1
        self.under_replicated += lacks_replicas(partition)
        self.under_min_isr += margin < 0
        self.at_min_isr += margin == 0
        self.reassigning += partition.image.is_reassigning


def lacks_replicas(partition: Partition) -> bool:
    """Whether the partition is under-replicated. Replicas that a reassignment adds do not count while they catch up."""
    return len(partition.isr) < len(partition.image.origin)


def isr_margin(partition: Partition) -> int:
    """The number of in-sync replicas that may fail before writes with acks=all fail."""
    needed = min(partition.log.config.min_insync_replicas, len(partition.replicas))
    return len(partition.isr) - needed


def _lag(partition: Partition) -> int:
    is_following = partition.is_open and partition.leader is None
    return max(0, partition.leader_high_watermark - partition.log_end_offset) if is_following else 0


@dataclass(slots=True)
class ControllerTotals:
    """Sums over the partitions of the cluster."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    not_preferred: int = 0

    def add(self, topic: TopicImage, image: ClusterImage) -> None:
        """Adds one topic."""
        self.topics += 1
        self.partitions += len(topic.partitions)
        self.offline += sum(one.leader not in image.brokers for one in topic.partitions)
        self.not_preferred += sum(one.leader != one.replicas[0] for one in topic.partitions)
