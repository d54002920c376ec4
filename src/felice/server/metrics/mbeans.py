"""The metrics of a broker, under the names of Kafka's MBeans.

Keeps true: a gauge is read from the broker's state on request; there is no copy of its value.
            A name that ends in PerSec is a count since the start; the reader computes rates. The same is true of
            LeaderElectionRateAndTimeMs, which has no times in Felice.
            A metric of the controller is 0 on every other broker, so that sums over brokers are right.
How:        the session counts requests, the ISR writer counts ISR changes, and a comparison of successive images
            counts elections.
Leaves:     the export to the collectors beside this module. Only reads: call `snapshot` on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from felice.controller.controller import Controller
from felice.dataclass import dataclass
from felice.metadata import ClusterImage, MetadataStore, PartitionImage, SessionState, TopicImage
from felice.metadata.layout import NO_LEADER
from felice.metadata.watcher import Watcher
from felice.protocol.api import Api
from felice.replication.isr import IsrWriter
from felice.replication.partitions import Partitions
from felice.server.disks.log_directories import LogDirectories
from felice.server.flow.request_times import RequestMetrics
from felice.server.metrics.totals import ControllerTotals, ReplicaTotals

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
    reconnects: int = 0


class Metrics:
    """Counters of one broker, and access to its gauges."""

    def __init__(
        self,
        broker_id: int,
        apis: Mapping[int, Api],
        store: MetadataStore,
        watcher: Watcher,
        directories: LogDirectories,
        partitions: Partitions,
        isr_writer: IsrWriter,
        controller: Controller,
    ) -> None:
        self._broker_id = broker_id
        self._apis = apis
        self.store = store
        self._watcher = watcher
        self._directories = directories
        self._partitions = partitions
        self.isr_writer = isr_writer
        self.controller = controller
        self.counts = Counts()
        # The only metrics whose update costs time on each request.
        self.requests = RequestMetrics(apis)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Counts the elections between two images, on the controller."""
        if old.topics is new.topics or not self.controller.is_controller:
            return
        for before, after in _new_leaderships(old, new):
            self.counts.elections += 1
            self.counts.unclean_elections += after.leader not in before.isr

    def on_session(self, state: SessionState) -> None:
        """Counts expired sessions and disconnects."""
        self.counts.expired_sessions += state is SessionState.EXPIRED
        self.counts.disconnects += state is SessionState.SUSPENDED
        self.counts.reconnects += state is SessionState.CONNECTED

    def snapshot(self) -> Snapshot:
        """Returns all metrics. The broker must have started."""
        return {**self._replicas(), **self._controller_values(), **self._session(), **self._requests()}

    def _replicas(self) -> dict[str, int]:
        found = ReplicaTotals()
        for partition in self._partitions:
            found.add(partition)
        here = _replicas_of(self._watcher.image, self._broker_id)
        writer = self.isr_writer
        values = {
            "PartitionCount": found.partitions,
            "LeaderCount": found.leaders,
            "UnderReplicatedPartitions": found.under_replicated,
            "UnderMinIsrPartitionCount": found.under_min_isr,
            "AtMinIsrPartitionCount": found.at_min_isr,
            "ReassigningPartitions": found.reassigning,
            "OfflineReplicaCount": here - found.open,
            "IsrShrinksPerSec": writer.shrinks,
            "IsrExpandsPerSec": writer.expansions,
            "FailedIsrUpdatesPerSec": writer.failures,
        }
        offline = sum(directory.offline_reason is not None for directory in self._directories)
        directories = {
            _OFFLINE_DIRECTORIES: offline,
            _LOGS_SET_ASIDE: sum(len(directory.strays.present()) for directory in self._directories),
        }
        return {**_named(_REPLICA_MANAGER, values), **directories, _MAX_LAG: found.max_lag}

    def _controller_values(self) -> dict[str, int]:
        is_controller = self.controller.is_controller
        image = self._watcher.image if is_controller else ClusterImage()
        found = ControllerTotals()
        for topic in image.topics.values():
            found.add(topic, image)
        values = {
            "ActiveControllerCount": int(is_controller),
            "ActiveBrokerCount": len(image.brokers),
            "GlobalTopicCount": found.topics,
            "GlobalPartitionCount": found.partitions,
            "OfflinePartitionsCount": found.offline,
            "PreferredReplicaImbalanceCount": found.not_preferred,
        }
        stats = {
            "LeaderElectionRateAndTimeMs": self.counts.elections,
            "UncleanLeaderElectionsPerSec": self.counts.unclean_elections,
        }
        return {**_named(_CONTROLLER, values), **_named(_CONTROLLER_STATS, stats)}

    def _session(self) -> dict[str, int | str]:
        return {
            f"{_SESSIONS}SessionState": self.store.session_state.name,
            f"{_SESSIONS}ZooKeeperExpiresPerSec": self.counts.expired_sessions,
            f"{_SESSIONS}ZooKeeperDisconnectsPerSec": self.counts.disconnects,
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
