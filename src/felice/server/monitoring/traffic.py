"""Messages and bytes in and out, by topic and in all."""

from __future__ import annotations

from operator import attrgetter

from felice.replication.traffic import TopicTraffic
from felice.server.metrics.families import Families, Family, Kind, each, label_text
from felice.server.metrics.names import MBean
from felice.server.monitoring.sources import Sources

_COUNTS = (
    ("MessagesInPerSec", "messages_in", "Records that were appended."),
    ("BytesInPerSec", "bytes_in", "Bytes of records that clients sent."),
    ("BytesOutPerSec", "bytes_out", "Bytes of records that consumers got."),
    ("BytesRejectedPerSec", "bytes_rejected", "Bytes of batches that were too large."),
    ("ReplicationBytesInPerSec", "replication_bytes_in", "Bytes of records copied from leaders."),
    ("ReplicationBytesOutPerSec", "replication_bytes_out", "Bytes of records sent to followers."),
    ("TotalProduceRequestsPerSec", "produce_requests", "Batches that clients sent."),
    ("TotalFetchRequestsPerSec", "fetch_requests", "Reads of partitions."),
    ("FailedProduceRequestsPerSec", "failed_produce_requests", "Batches that could not be appended."),
    ("FailedFetchRequestsPerSec", "failed_fetch_requests", "Reads of partitions that failed."),
)


def topics(sources: Sources) -> Families:
    """One series for each topic, and one without labels for the broker."""
    traffic = sources.services.partitions.traffic
    found: list[tuple[str, TopicTraffic]] = [("", traffic.total())]
    found += [(label_text(topic=name), counted) for name, counted in list(traffic.topics.items())]
    for name, attribute, text in _COUNTS:
        mbean = MBean("kafka.server", "BrokerTopicMetrics", name)
        yield Family(mbean, Kind.COUNTER, text, each(found, attrgetter(attribute)))
