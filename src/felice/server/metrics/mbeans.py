"""The metrics of a broker, under the names of Kafka's MBeans.

Keeps true: a gauge is read from the broker's state on request; there is no copy of its value.
            A name that ends in PerSec is a count since the start; the reader computes rates. The same is true of
            LeaderElectionRateAndTimeMs, which has no times in Felice.
            A metric of the controller is 0 on every other broker, so that sums over brokers are right.
How:        the session counts requests, the ISR writer counts ISR changes, and a comparison of successive images
            counts elections.
Leaves:     the export. Only reads: call `snapshot` on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from felice.controller.controller import Controller
from felice.metadata import ClusterImage, MetadataStore, PartitionImage, SessionState, TopicImage
from felice.metadata.layout import NO_LEADER
from felice.metadata.watcher import Watcher
from felice.protocol.api import Api
from felice.replication.partition import Partition
from felice.server.log_directories import LogDirectories
from felice.server.metrics.request_times import RequestMetrics
from felice.server.replication_parts import ReplicationParts

Snapshot: TypeAlias = Mapping[str, int | str]

_REPLICA_MANAGER = "kafka.server:type=ReplicaManager,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_CONTROLLER_STATS = "kafka.controller:type=ControllerStats,name="
_SESSIONS = "kafka.server:type=SessionExpireListener,name="
_MAX_LAG = "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica"
_OFFLINE_DIRECTORIES = "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"
# Kafka has no metric for logs that contain records and were set aside.
_LOGS_SET_ASIDE = "felice.log:type=LogManager,name=StrayLogCount"
_REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request="


@dataclass(slots=True)
class Counts:
    """Counts of events, which cannot be read from the current state."""

    elections: int = 0
    unclean_elections: int = 0
    expired_sessions: int = 0
    disconnects: int = 0


class Metrics:
    """Counters of one broker, and access to its gauges."""

    def __init__(
        self,
        broker_id: int,
        apis: Mapping[int, Api],
        store: MetadataStore,
        watcher: Watcher,
        directories: LogDirectories,
        replication: ReplicationParts,
        controller: Controller,
    ) -> None:
        self._broker_id = broker_id
        self._apis = apis
        self._store = store
        self._watcher = watcher
        self._directories = directories
        self._partitions = replication.partitions
        self._isr_writer = replication.isr_writer
        self._controller = controller
        self._counts = Counts()
        # The only metrics whose update costs time on each request.
        self.requests = RequestMetrics(apis)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Counts the elections between two images, on the controller."""
        if old.topics is new.topics or not self._controller.is_controller:
            return
        for before, after in _new_leaderships(old, new):
            self._counts.elections += 1
            self._counts.unclean_elections += after.leader not in before.isr

    def on_session(self, state: SessionState) -> None:
        """Counts expired sessions and disconnects."""
        self._counts.expired_sessions += state is SessionState.EXPIRED
        self._counts.disconnects += state is SessionState.SUSPENDED

    def snapshot(self) -> Snapshot:
        """Returns all metrics. The broker must have started."""
        return {**self._replicas(), **self._controller_values(), **self._session(), **self._requests()}

    def _replicas(self) -> dict[str, int]:
        partitions = list(self._partitions)
        led = [partition for partition in partitions if partition.is_leader]
        here = _replicas_of(self._watcher.image, self._broker_id)
        writer = self._isr_writer
        values = {
            "PartitionCount": len(partitions),
            "LeaderCount": len(led),
            "UnderReplicatedPartitions": sum(map(_lacks_replicas, led)),
            "UnderMinIsrPartitionCount": sum(_margin(partition) < 0 for partition in led),
            "AtMinIsrPartitionCount": sum(_margin(partition) == 0 for partition in led),
            "ReassigningPartitions": sum(partition.image.is_reassigning for partition in led),
            "OfflineReplicaCount": here - sum(partition.is_open for partition in partitions),
            "IsrShrinksPerSec": writer.shrinks,
            "IsrExpandsPerSec": writer.expansions,
            "FailedIsrUpdatesPerSec": writer.failures,
        }
        offline = sum(directory.offline_reason is not None for directory in self._directories)
        directories = {
            _OFFLINE_DIRECTORIES: offline,
            _LOGS_SET_ASIDE: sum(len(directory.strays.present()) for directory in self._directories),
        }
        lag = max(map(_lag, partitions), default=0)
        return {**_named(_REPLICA_MANAGER, values), **directories, _MAX_LAG: lag}

    def _controller_values(self) -> dict[str, int]:
        is_controller = self._controller.is_controller
        image = self._watcher.image if is_controller else ClusterImage()
        partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
        values = {
            "ActiveControllerCount": int(is_controller),
            "ActiveBrokerCount": len(image.brokers),
            "GlobalTopicCount": len(image.topics),
            "GlobalPartitionCount": len(partitions),
            "OfflinePartitionsCount": sum(one.leader not in image.brokers for one in partitions),
            "PreferredReplicaImbalanceCount": sum(one.leader != one.replicas[0] for one in partitions),
        }
        stats = {
            "LeaderElectionRateAndTimeMs": self._counts.elections,
            "UncleanLeaderElectionsPerSec": self._counts.unclean_elections,
        }
        return {**_named(_CONTROLLER, values), **_named(_CONTROLLER_STATS, stats)}

    def _session(self) -> dict[str, int | str]:
        return {
            f"{_SESSIONS}SessionState": self._store.session_state.name,
            f"{_SESSIONS}ZooKeeperExpiresPerSec": self._counts.expired_sessions,
            f"{_SESSIONS}ZooKeeperDisconnectsPerSec": self._counts.disconnects,
        }

    def _requests(self) -> dict[str, int]:
        totals = {key: self.requests.total(key) for key in self._apis}
        return {f"{_REQUESTS}{self._apis[key].name}": count for key, count in totals.items()}


def _named(prefix: str, values: Mapping[str, int]) -> dict[str, int]:
    return {prefix + name: value for name, value in values.items()}


def _replicas_of(image: ClusterImage, broker_id: int) -> int:
    """The number of partitions with a known state that have a replica on this broker."""
    return sum(
        broker_id in partition.replicas and partition.partition_epoch >= 0
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def _lacks_replicas(partition: Partition) -> bool:
    """Whether the partition is under-replicated. Replicas that a reassignment adds do not count while they catch up."""
    return len(partition.isr) < len(partition.image.origin)


def _margin(partition: Partition) -> int:
    """The number of in-sync replicas that may fail before writes with acks=all fail."""
    needed = min(partition.log.config.min_insync_replicas, len(partition.replicas))
    return len(partition.isr) - needed


def _lag(partition: Partition) -> int:
    is_following = partition.is_open and partition.leader is None
    return max(0, partition.leader_high_watermark - partition.log_end_offset) if is_following else 0


def _new_leaderships(old: ClusterImage, new: ClusterImage) -> Iterator[tuple[PartitionImage, PartitionImage]]:
    """Yields partitions whose leader changed, before and after. The first leader of a new partition does not count."""
    for name, topic in new.topics.items():
        known = old.topics.get(name)
        if known is not None and known is not topic and known.topic_id == topic.topic_id:
            yield from _changed_leaders(known, topic)


def _changed_leaders(known: TopicImage, topic: TopicImage) -> Iterator[tuple[PartitionImage, PartitionImage]]:
    for before, after in zip(known.partitions, topic.partitions, strict=False):
        is_new = before.partition_epoch < 0 or after.leader in (before.leader, NO_LEADER)
        if before is not after and not is_new:
            yield before, after
