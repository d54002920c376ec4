"""Several brokers on a thread of the test's process, which can be stopped, killed and started one by one.

Keeps true: `bootstrap` names every broker, running or not. A broker that starts again has its address and directory.
            `leader`, `isr` and `controller` read the cluster's metadata as the brokers have it.
Does not:   script faults: those belong to a single broker (`felice.testing.Broker`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from felice.client.arguments import takes_lists
from felice.controller.topic_plans import NewTopic
from felice.env.forks import Owner
from felice.env.own_directory import OwnDirectory
from felice.metadata import ClusterImage, PartitionImage
from felice.server.process.embedded import EmbeddedCluster, named
from felice.testing.serving import TEST_SETTINGS, Serving

_POLL_S = 0.005


@takes_lists
class Cluster(Serving):
    """A cluster for tests: `with Cluster(brokers=3) as cluster`. It starts when created, or raises `StartupError`.

    Broker ids start at 1. `topics` are created at once, with replicas on up to three brokers. `properties` are broker
    options by Kafka's names, other keywords by attribute (`num_partitions=3`). `racks` are assigned to the brokers in
    turn.
    """

    def __init__(
        self,
        brokers: int = 3,
        data_dir: str | Path | None = None,
        *,
        topics: Iterable[str] | Mapping[str, int] = (),
        properties: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        **overrides: object,
    ) -> None:
        settings = {**TEST_SETTINGS, **(properties or {}), **named(overrides)}
        self._owner = Owner()
        self._own_dir: OwnDirectory | None = None
        if data_dir is None:
            self._own_dir = OwnDirectory("felice-")
            data_dir = self._own_dir.path
        try:
            self._running = EmbeddedCluster(
                data_dir,
                brokers,
                properties=settings,
                racks=racks,
            )
        except BaseException:
            self._remove_own_dir()
            raise
        self._create_topics(topics)

    # Starting and stopping

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return self._running.bootstrap

    @property
    def running(self) -> list[int]:
        """The ids of the running brokers."""
        return sorted(self._running.cluster.brokers)

    def port(self, broker_id: int) -> int:
        """The port of a broker; the same whenever it runs."""
        return self._running.cluster.ports[broker_id]

    def kill_broker(self, broker_id: int) -> None:
        """End a broker as `kill -9` would; the other brokers notice at once."""
        self._running.run(self._running.cluster.kill_broker(broker_id))

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker cleanly: it hands its leaderships over first."""
        self._running.run(self._running.cluster.stop_broker(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Start a broker again after `kill_broker` or `stop_broker`; does nothing while it runs."""
        self._running.run(self._running.cluster.start_broker(broker_id))

    def stop(self) -> None:
        """Stop all brokers and remove the directory if the cluster created it.

        A second call does nothing, nor does a call in a process that was forked from the cluster's.
        """
        if not self._owner.is_here:
            return
        self._running.stop()
        self._remove_own_dir()

    def _remove_own_dir(self) -> None:
        if self._own_dir is not None:
            self._own_dir.remove()

    def __repr__(self) -> str:
        return f"<Cluster {self.bootstrap} running {self.running}>"

    # Metadata

    @property
    def image(self) -> ClusterImage:
        """The cluster's metadata, as one of the running brokers has it now."""
        brokers = self._running.cluster.brokers
        if not brokers:
            raise RuntimeError("no broker is running")
        return brokers[min(brokers)].image

    @property
    def controller(self) -> int:
        """The id of the controller; -1 while there is none."""
        return self.image.controller_id

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the partition's leader; -1 while there is none. Raises `KeyError` for an unknown partition."""
        return self._partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The ids of the partition's in-sync replicas. Raises `KeyError` for an unknown partition."""
        return self._partition(topic, partition).isr

    def wait_until(self, condition: Callable[[Cluster], bool], timeout_s: float = 60.0) -> None:
        """Wait until `condition(cluster)` holds; raises `TimeoutError`."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the condition did not hold within {timeout_s} s: {self!r}")
            time.sleep(_POLL_S)

    def wait_in_sync(self, timeout_s: float = 60.0) -> None:
        """Wait until every partition has a leader and all its replicas are in sync; raises `TimeoutError`."""
        self.wait_until(lambda cluster: all(map(_is_whole, _partitions(cluster.image))), timeout_s)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; every running broker knows it when this returns.

        Raises `ApiError` if it cannot be created.
        """
        brokers = self._running.cluster.brokers
        requested = NewTopic(name, partitions, replication_factor, configs=dict(configs or {}))
        planned = self._running.run(brokers[min(brokers)].services.changes.cluster.create_topic(requested))
        self.wait_until(
            lambda _: all(broker.image.topic_by_id(planned.topic_id) for broker in list(brokers.values()))
        )

    def _partition(self, topic: str, partition: int) -> PartitionImage:
        found = self.image.partition(topic, partition)
        if found is None:
            raise KeyError(f"{topic}-{partition}")
        return found


def _partitions(image: ClusterImage) -> list[PartitionImage]:
    return [partition for topic in image.topics.values() for partition in topic.partitions]


def _is_whole(partition: PartitionImage) -> bool:
    return partition.leader >= 0 and sorted(partition.isr) == sorted(partition.replicas)
