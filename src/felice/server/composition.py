"""Creates the components of one broker, each after its dependencies.

Keeps true: nothing runs yet when `compose` returns. `broker` starts the components, and stops them.
            The dependencies between components are arguments of their constructors, or functions that are called later.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from felice.config import BrokerConfig
from felice.controller.acl_changes import AclChanges
from felice.controller.cluster_admin import ClusterAdmin
from felice.controller.controller import Controller
from felice.controller.leaderships import Leaderships
from felice.controller.producer_id_blocks import ProducerIdBlocks
from felice.controller.token_changes import TokenChanges
from felice.controller.topic_plans import new_topic_id
from felice.dataclass import dataclass
from felice.env import Environment
from felice.log.throttle import RateLimit
from felice.metadata.store import MetadataStore
from felice.metadata.watcher import Watcher
from felice.protocol.frame_memory import FrameMemory
from felice.replication.partitions import Partitions
from felice.server.configs.settings import Settings
from felice.server.disks.cleaning import Cleaner
from felice.server.disks.log_directories import LogDirectories
from felice.server.disks.replica_moves import ReplicaMoves
from felice.server.fetching.fetch_sessions import FetchSessions
from felice.server.flow.closings import Closings
from felice.server.flow.connection_limits import ConnectionLimits
from felice.server.flow.pace import LargeRequests, Wakeups
from felice.server.flow.request_log import RequestLog
from felice.server.flow.request_memory import RequestMemory
from felice.server.flow.turns import Turns
from felice.server.groups.coordinators import Coordinators
from felice.server.handlers.table import OFFERED, Handle
from felice.server.lifecycle import Lifecycle
from felice.server.maintenance import Maintenance
from felice.server.membership.membership import Membership
from felice.server.membership.store_sources import StoreSource
from felice.server.metrics.mbeans import Metrics
from felice.server.net.listener import Listener
from felice.server.net.session import Session
from felice.server.quotas.client_quotas import ClientQuotas
from felice.server.replicas.image_follower import ImageFollower
from felice.server.replicas.offline_logs import OfflineLogs
from felice.server.replicas.replication_parts import ReplicationParts, make_replication
from felice.server.security.access_control import AccessControl
from felice.server.security.delegation_tokens import DelegationTokens
from felice.server.security.inter_broker import InterBrokerSecurity
from felice.server.security.logins import Logins
from felice.server.security.tls import TlsListeners
from felice.server.services import Changes, Disks, Fetching, Flow, Security, Services, Topics
from felice.server.telemetry.clients import ClientTelemetry
from felice.server.topics.auto_topics import AutoTopics
from felice.server.topics.topic_rows import TopicRows
from felice.server.writes.batch_validation import BatchValidation
from felice.server.writes.producer_ids import ProducerIds

# Memory of large requests that is kept for reuse: eight produced batches of the usual maximum size of 1 MiB.
_FRAME_POOL_BYTES = 8 * 1024 * 1024
_MAPPED_FRAME_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Basis:
    """The parts of a broker that exist before its components. `listeners` is empty; `compose` fills it."""

    env: Environment
    settings: Settings
    lifecycle: Lifecycle
    directories: LogDirectories
    tls: TlsListeners
    peer_security: InterBrokerSecurity
    store_source: StoreSource
    handlers: Mapping[int, Handle]
    listeners: list[Listener]

    def config(self) -> BrokerConfig:
        """The configuration in force at this moment."""
        return self.settings.config

    def sessions(self) -> list[Session]:
        """The open connections of all listeners."""
        return [session for listener in self.listeners for session in listener.sessions]


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that run tasks. They exist from the end of log recovery until the broker ends."""

    replication: ReplicationParts
    controller: Controller
    membership: Membership
    cleaner: Cleaner
    maintenance: Maintenance
    services: Services


def compose(basis: Basis, broker_id: int, cluster_id: str, store: MetadataStore, watcher: Watcher) -> Parts:
    """Creates the components. `store` is open, and `watcher` has its first image."""
    env, settings, config = basis.env, basis.settings, basis.settings.config
    lifecycle, directories = basis.lifecycle, basis.directories
    replication = make_replication(broker_id, env, settings, store, watcher, directories, basis.peer_security)
    partitions, peers = replication.partitions, replication.peers
    admin = ClusterAdmin(store, watcher, env.random, basis.config)
    controller = Controller(
        store, watcher, env.clock, broker_id, basis.config, partial(new_topic_id, env.random)
    )
    stands_alone = basis.store_source.stands_alone
    auto_topics = AutoTopics(settings, lifecycle, watcher, admin, stands_alone=stands_alone)
    producer_ids = ProducerIds(ProducerIdBlocks(store, broker_id).allocate)
    coordinators = Coordinators(
        broker_id,
        env,
        settings,
        watcher,
        partitions,
        peers,
        auto_topics,
        producer_ids,
        lambda: image_follower.check_session(),  # created below
    )
    quotas = ClientQuotas(env.clock, basis.config)
    quotas.follow(watcher.image)
    metrics = Metrics(
        broker_id, OFFERED, store, watcher, directories, partitions, replication.isr_writer, controller
    )
    image_follower = ImageFollower(
        broker_id, settings, lifecycle, store, watcher, replication, coordinators, controller, metrics
    )
    cleaner, replica_moves = _directory_work(basis, partitions)
    services = Services(
        broker_id=broker_id,
        env=env,
        apis=OFFERED,
        settings=settings,
        lifecycle=lifecycle,
        watcher=watcher,
        changes=Changes(admin, AclChanges(store, watcher), Leaderships(store, watcher)),
        image_follower=image_follower,
        partitions=partitions,
        disks=Disks(
            directories,
            replica_moves,
            OfflineLogs(directories, partitions, cleaner, lifecycle, watcher, image_follower),
        ),
        topics=Topics(auto_topics, TopicRows()),
        batch_validation=BatchValidation(basis.config),
        fetching=Fetching(
            FetchSessions(config.max_incremental_fetch_session_cache_slots, env.random),
            RateLimit(lambda: settings.config.leader_replication_throttled_rate),
        ),
        coordinators=coordinators,
        security=_security(basis, watcher, TokenChanges(store, watcher)),
        quotas=quotas,
        flow=_flow(basis),
        metrics=metrics,
        telemetry=ClientTelemetry(env.clock, env.random, lambda: watcher.image, config.telemetry_max_bytes),
    )
    settings.on_change += [
        basis.tls.follow,
        directories.reconfigure,
        cleaner.reconfigure,
        lambda _: services.flow.connections.close_excess(),
    ]
    return _shells(basis, cluster_id, store, replication, controller, cleaner, services)


def _security(basis: Basis, watcher: Watcher, changes: TokenChanges) -> Security:
    env, settings = basis.env, basis.settings
    tokens = DelegationTokens(settings.static, env, lambda: watcher.image, changes)
    return Security(
        AccessControl(settings.static, lambda: watcher.image.acls),
        basis.tls,
        Logins(settings, lambda: watcher.image, tokens, env.random),
        tokens,
    )


def _flow(basis: Basis) -> Flow:
    clock, config = basis.env.clock, basis.settings.config
    return Flow(
        connections=ConnectionLimits(basis.config, basis.listeners),
        turns=Turns(clock, basis.config, basis.sessions),
        wakeups=Wakeups(clock),
        large_requests=LargeRequests(clock),
        request_memory=RequestMemory(config.queued_max_request_bytes),
        frame_memory=FrameMemory(pool_bytes=_FRAME_POOL_BYTES, map_from_bytes=_MAPPED_FRAME_BYTES),
        closings=Closings(clock.monotonic),
        request_log=RequestLog(config, clock.monotonic),
    )


def _directory_work(basis: Basis, partitions: Partitions) -> tuple[Cleaner, ReplicaMoves]:
    """Creates the cleaner and the replica moves. Each of them skips the logs on which the other works."""
    env, settings, directories = basis.env, basis.settings, basis.directories
    cleaner = Cleaner(
        env, settings, directories, partitions, lambda topic, number: moves.is_moving(topic, number)
    )
    moves = ReplicaMoves(env.clock, settings, directories, partitions, cleaner.is_cleaning)
    return cleaner, moves


def _shells(
    basis: Basis,
    cluster_id: str,
    store: MetadataStore,
    replication: ReplicationParts,
    controller: Controller,
    cleaner: Cleaner,
    services: Services,
) -> Parts:
    """Creates the components that run on their own: listeners, membership and periodic tasks."""
    addresses = basis.settings.config.parsed_listeners
    basis.listeners.extend(Listener(services, basis.handlers, address) for address in addresses)
    session_timeout_ms = basis.store_source.session_timeout_ms
    membership = Membership(
        services, cluster_id, store, session_timeout_ms, basis.listeners, basis.peer_security
    )
    maintenance = Maintenance(services, basis.listeners, store, membership.report_offline_replicas)
    return Parts(replication, controller, membership, cleaner, maintenance, services)
