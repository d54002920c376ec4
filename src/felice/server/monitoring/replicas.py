"""Metrics of the replicas on this broker: their sums, and series for each partition.

The series of partitions are the bulk of the page: seventeen for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from felice.metadata import PartitionImage
from felice.replication.partition import Partition
from felice.server.metrics.families import PAUSE, Families, Family, Kind, counter, each, gauge, label_text
from felice.server.metrics.names import MBean
from felice.server.metrics.totals import ReplicaTotals, isr_margin, lacks_replicas
from felice.server.monitoring.sources import Sources

_PARTITIONS_BETWEEN_PAUSES = 100

_manager = partial(MBean, "kafka.server", "ReplicaManager")
_cluster = partial(MBean, "kafka.cluster", "Partition")
_log = partial(MBean, "kafka.log", "Log")

Labelled = list[tuple[str, Partition]]


def totals(sources: Sources) -> Families:
    """The sums over all replicas here."""
    found = ReplicaTotals()
    for number, replica in enumerate(sources.services.partitions):
        found.add(replica)
        if number % _PARTITIONS_BETWEEN_PAUSES == 0:
            yield PAUSE
    assigned = yield from _assigned(sources)
    writer = sources.metrics.isr_writer
    yield gauge(_manager("PartitionCount"), "Replicas on this broker.", found.partitions)
    yield gauge(_manager("LeaderCount"), "Partitions that this broker leads.", found.leaders)
    yield gauge(
        _manager("UnderReplicatedPartitions"),
        "Partitions led here that lack in-sync replicas.",
        found.under_replicated,
    )
    yield gauge(
        _manager("UnderMinIsrPartitionCount"),
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
        found.under_min_isr,
    )
    yield gauge(
        _manager("AtMinIsrPartitionCount"),
        "Partitions led here with exactly min.insync.replicas in-sync replicas.",
        found.at_min_isr,
    )
    yield gauge(
        _manager("ReassigningPartitions"), "Partitions led here that are being moved.", found.reassigning
    )
    yield gauge(
        _manager("OfflineReplicaCount"),
        "Replicas assigned here that cannot be served.",
        assigned - found.open,
    )
    yield counter(_manager("IsrShrinksPerSec"), "Removals from sets of in-sync replicas.", writer.shrinks)
    yield counter(_manager("IsrExpandsPerSec"), "Additions to sets of in-sync replicas.", writer.expansions)
    yield counter(
        _manager("FailedIsrUpdatesPerSec"),
        "Changes of in-sync replicas that were not written.",
        writer.failures,
    )
    lag = MBean("kafka.server", "ReplicaFetcherManager", "MaxLag")
    row = (label_text(clientId="Replica"), found.max_lag)
    yield Family(lag, Kind.GAUGE, "The largest lag of a replica here, in records.", [row])


def _assigned(sources: Sources) -> Generator[None, None, int]:
    """Counts the replicas that the image assigns to this broker."""
    broker_id, count = sources.services.broker_id, 0
    for topic in sources.image.topics.values():
        count += sum(broker_id in one.replicas and one.partition_epoch >= 0 for one in topic.partitions)
        yield PAUSE
    return count


def partitions(sources: Sources) -> Families:
    """State of each partition led here, and each partition's leader and replicas as kafka_exporter names them."""
    led: Labelled = []
    for number, replica in enumerate(sources.services.partitions):
        if replica.is_leader:
            led.append((_labels(replica.topic, replica.partition), replica))
        if number % _PARTITIONS_BETWEEN_PAUSES == 0:
            yield PAUSE
    for name, text, value in _OF_LEADER:
        yield Family(name, Kind.GAUGE, text, each(led, value))
    counted: dict[str, int] = {}
    for _, replica in led:
        counted[replica.topic] = (
            len(sources.image.topics[replica.topic].partitions)
            if (replica.topic in sources.image.topics)
            else 0
        )
    rows = [(label_text(topic=topic), count) for topic, count in counted.items() if count]
    yield Family("kafka_topic_partitions", Kind.GAUGE, "Number of partitions of the topic.", rows)


def logs(sources: Sources) -> Families:
    """Size and offsets of each log on this broker."""
    found: Labelled = []
    for number, replica in enumerate(sources.services.partitions):
        found.append((_labels(replica.topic, replica.partition), replica))
        if number % _PARTITIONS_BETWEEN_PAUSES == 0:
            yield PAUSE
    for name, text, value in _OF_LOG:
        yield Family(name, Kind.GAUGE, text, each(found, value))


def _labels(topic: str, partition: int) -> str:
    # The rules for topic names leave nothing to escape.
    return f'topic="{topic}",partition="{partition}"'


def _lacks_replicas(replica: Partition) -> int:
    return int(lacks_replicas(replica))


def _leads_by_preference(replica: Partition) -> int:
    image: PartitionImage = replica.image
    return int(image.leader in image.replicas[:1])


_OF_LEADER: tuple[tuple[MBean | str, str, Callable[[Partition], float]], ...] = (
    (_cluster("UnderReplicated"), "1 if the partition lacks in-sync replicas.", _lacks_replicas),
    (_cluster("InSyncReplicasCount"), "In-sync replicas of the partition.", lambda one: len(one.isr)),
    (_cluster("ReplicasCount"), "Replicas of the partition.", lambda one: len(one.replicas)),
    (
        _cluster("UnderMinIsr"),
        "1 if fewer replicas are in sync than min.insync.replicas.",
        lambda one: int(isr_margin(one) < 0),
    ),
    (
        _cluster("AtMinIsr"),
        "1 if exactly min.insync.replicas are in sync.",
        lambda one: int(isr_margin(one) == 0),
    ),
    (
        _cluster("LastStableOffsetLag"),
        "Records between the last stable offset and the high watermark.",
        lambda one: one.high_watermark - one.last_stable_offset,
    ),
    ("kafka_topic_partition_current_offset", "The high watermark.", lambda one: one.high_watermark),
    ("kafka_topic_partition_oldest_offset", "The first offset.", lambda one: one.log_start_offset),
    ("kafka_topic_partition_leader", "The broker that leads the partition.", lambda one: one.leader_id),
    (
        "kafka_topic_partition_leader_is_preferred",
        "1 if the first replica leads the partition.",
        _leads_by_preference,
    ),
    ("kafka_topic_partition_replicas", "Replicas of the partition.", lambda one: len(one.replicas)),
    ("kafka_topic_partition_in_sync_replica", "In-sync replicas of the partition.", lambda one: len(one.isr)),
    (
        "kafka_topic_partition_under_replicated_partition",
        "1 if the partition lacks in-sync replicas.",
        _lacks_replicas,
    ),
)

_OF_LOG: tuple[tuple[MBean | str, str, Callable[[Partition], float]], ...] = (
    (_log("Size"), "Bytes of the log's segments.", lambda one: one.log.size_bytes),
    (_log("LogStartOffset"), "The first offset of the log.", lambda one: one.log_start_offset),
    (_log("LogEndOffset"), "The offset of the next record.", lambda one: one.log_end_offset),
    (_log("NumLogSegments"), "Segments of the log.", lambda one: len(one.log.segments)),
)
