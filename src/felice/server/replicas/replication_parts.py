"""Creates and stops the components that replicate partitions between this broker and others."""

from __future__ import annotations

from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Environment
from felice.metadata.store import MetadataStore
from felice.metadata.watcher import Watcher
from felice.replication.dependencies import PartitionDependencies
from felice.replication.fetcher import Fetchers
from felice.replication.isr import IsrWriter
from felice.replication.partitions import Partitions
from felice.replication.peers import Destination, Peers, PeerSecurity
from felice.server.configs.settings import Settings
from felice.server.disks.log_directories import LogDirectories


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """The components that replicate partitions, in the order in which they depend on each other."""

    isr_writer: IsrWriter
    partitions: Partitions
    peers: Peers
    fetchers: Fetchers

    async def stop(self) -> None:
        """Stops fetching, closes connections to brokers, and waits for the last ISR change in progress."""
        await self.fetchers.stop()
        await self.peers.close()
        self.isr_writer.stop()
        await self.isr_writer.finish()


def make_replication(
    broker_id: int,
    env: Environment,
    settings: Settings,
    store: MetadataStore,
    watcher: Watcher,
    directories: LogDirectories,
    security: PeerSecurity,
) -> ReplicationParts:
    """Builds the components, and connects them with the settings and the watcher's image. It starts nothing."""

    def epoch_of(other: int) -> int | None:
        known = watcher.image.brokers.get(other)
        return known.epoch if known is not None else None

    def destination_of(other: int) -> Destination | None:
        known = watcher.image.brokers.get(other)
        endpoint = known.endpoints.get(settings.config.inter_broker_listener) if known else None
        return Destination(endpoint.host, endpoint.port, known.epoch) if known and endpoint else None

    def resign(topic: str, topic_id: UUID, partition: int, replicas: tuple[int, ...]) -> None:
        """Resigns from a replica that this broker cannot serve.

        If no other in-sync replica is left and the topic allows unclean elections, any live replica may lead.
        """
        image = watcher.image
        fallbacks: tuple[int, ...] = ()
        if settings.topic_config(image, topic).unclean_leader_election_enable:
            others = [replica for replica in replicas if replica != broker_id]
            fallbacks = tuple(replica for replica in others if replica in image.brokers)

        def is_needed() -> bool:
            found = partitions.get(topic, partition)
            return found is None or not found.is_open

        isr_writer.resign(topic, topic_id, partition, broker_id, replicas, fallbacks, is_needed)

    isr_writer = IsrWriter(store)
    dependencies = PartitionDependencies(
        env.clock, lambda: settings.config.replica_lag_time_max_ms, epoch_of, isr_writer.propose
    )
    partitions = Partitions(broker_id, directories, settings.topic_config, dependencies)
    partitions.on_unservable = resign
    peers = Peers(env.network, env.clock, broker_id, destination_of, security)
    fetchers = Fetchers(
        broker_id, peers, env.clock, lambda: settings.config, lambda: epoch_of(broker_id) or -1
    )
    return ReplicationParts(isr_writer, partitions, peers, fetchers)
