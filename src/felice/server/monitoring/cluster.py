"""Metrics of the controller, of the metadata store, and of the log directories."""

from __future__ import annotations

from functools import partial

from felice.metadata import ClusterImage
from felice.metadata.store import SessionState
from felice.server.metrics.families import (
    PAUSE,
    Families,
    Family,
    Kind,
    counter,
    gauge,
    histogram_rows,
    label_text,
)
from felice.server.metrics.names import MBean
from felice.server.metrics.totals import ControllerTotals
from felice.server.monitoring.sources import Sources

_controller = partial(MBean, "kafka.controller", "KafkaController")
_stats = partial(MBean, "kafka.controller", "ControllerStats")
_sessions = partial(MBean, "kafka.server", "SessionExpireListener")
_LATENCY = MBean("kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs")
_LATENCY_COUNT = MBean("kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs", "_count")


def controller(sources: Sources) -> Families:
    """What the controller knows of the cluster; zeros on all other brokers, so that sums over brokers are right."""
    is_controller = sources.metrics.controller.is_controller
    image = sources.image if is_controller else ClusterImage()
    found = ControllerTotals()
    for topic in image.topics.values():
        found.add(topic, image)
        yield PAUSE
    counts = sources.metrics.counts
    yield gauge(_controller("ActiveControllerCount"), "1 on the controller.", int(is_controller))
    yield gauge(_controller("ActiveBrokerCount"), "Registered brokers.", len(image.brokers))
    yield gauge(_controller("GlobalTopicCount"), "Topics of the cluster.", found.topics)
    yield gauge(_controller("GlobalPartitionCount"), "Partitions of the cluster.", found.partitions)
    yield gauge(_controller("OfflinePartitionsCount"), "Partitions without a live leader.", found.offline)
    yield gauge(
        _controller("PreferredReplicaImbalanceCount"),
        "Partitions that another replica than the first one leads.",
        found.not_preferred,
    )
    yield counter(
        _stats("LeaderElectionRateAndTimeMs", "_count"), "Changes of partition leaders.", counts.elections
    )
    yield counter(
        _stats("UncleanLeaderElectionsPerSec"),
        "Elections of replicas that were not in sync.",
        counts.unclean_elections,
    )


def store(sources: Sources) -> Families:
    """The session with the metadata store, and the brokers that it shows."""
    counts, found = sources.metrics.counts, sources.metrics.store
    yield counter(
        _sessions("ZooKeeperDisconnectsPerSec"), "Losses of the connection to the store.", counts.disconnects
    )
    yield counter(_sessions("ZooKeeperExpiresPerSec"), "Sessions that expired.", counts.expired_sessions)
    yield counter(
        _sessions("ZooKeeperSyncConnectsPerSec"),
        "Connections to the store that were restored.",
        counts.reconnects,
    )
    states = [(label_text(state=state.name), int(state is found.session_state)) for state in SessionState]
    yield Family(
        "felice_metadata_session_state", Kind.GAUGE, "1 for the current state of the session.", states
    )
    latencies = found.request_latencies
    yield Family(
        _LATENCY,
        Kind.GAUGE,
        "Milliseconds that the newest requests to ZooKeeper took.",
        histogram_rows({"": latencies.recent_s}, 1000.0) if latencies.count else (),
    )
    yield counter(_LATENCY_COUNT, "Requests to ZooKeeper that were answered.", latencies.count)
    image = sources.image
    yield gauge("kafka_brokers", "Registered brokers.", len(image.brokers))
    rows = [
        (label_text(id=broker.broker_id, address=f"{endpoint.host}:{endpoint.port}"), 1)
        for broker in image.brokers.values()
        for endpoint in list(broker.endpoints.values())[:1]
    ]
    yield Family("kafka_broker_info", Kind.GAUGE, "The address of each broker.", rows)


def directories(sources: Sources) -> Families:
    """The log directories and the log cleaner."""
    found = list(sources.services.disks.directories)
    manager = partial(MBean, "kafka.log", "LogManager")
    offline = sum(directory.offline_reason is not None for directory in found)
    yield gauge(manager("OfflineLogDirectoryCount"), "Log directories that failed.", offline)
    yield gauge(
        "felice_log_manager_stray_logs",
        "Logs with records that were set aside, because no topic has them.",
        sum(len(directory.strays.present()) for directory in found),
    )
    yield from _cleaner(sources)


def _cleaner(sources: Sources) -> Families:
    cleaner = partial(MBean, "kafka.log", "LogCleanerManager")
    status = sources.cleaner.status
    yield gauge(
        cleaner("uncleanable-partitions-count"), "Partitions that cannot be cleaned.", len(status.uncleanable)
    )
    yield gauge("felice_log_cleaner_running", "Partitions that are being cleaned.", len(status.running))
    yield counter("felice_log_cleaner_passes_total", "Partitions that were cleaned.", status.passes)
    yield counter(
        "felice_log_cleaner_aborted_passes_total",
        "Cleanings that were given up because the log changed.",
        status.aborted_passes,
    )
    yield counter(
        "felice_log_cleaner_read_bytes_total", "Bytes that the cleaner read to clean them.", status.bytes_read
    )
    yield counter(
        "felice_log_cleaner_written_bytes_total", "Bytes that the cleaner wrote.", status.bytes_written
    )
