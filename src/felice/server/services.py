"""The dependencies of request handlers and sessions. `composition` creates them once, before a listener opens."""

from __future__ import annotations

from collections.abc import Mapping

from felice.config import BrokerConfig
from felice.controller.acl_changes import AclChanges
from felice.controller.cluster_admin import ClusterAdmin
from felice.controller.leaderships import Leaderships
from felice.dataclass import dataclass
from felice.env import Environment
from felice.log.throttle import RateLimit
from felice.metadata import ClusterImage
from felice.metadata.watcher import Watcher
from felice.protocol.api import Api
from felice.protocol.frame_memory import FrameMemory
from felice.replication.partitions import Partitions
from felice.server.configs.entries import BrokerLayers
from felice.server.configs.settings import Settings
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
from felice.server.lifecycle import Lifecycle
from felice.server.metrics.mbeans import Metrics
from felice.server.quotas.client_quotas import ClientQuotas
from felice.server.replicas.image_follower import ImageFollower
from felice.server.replicas.offline_logs import OfflineLogs
from felice.server.security.access_control import AccessControl
from felice.server.security.delegation_tokens import DelegationTokens
from felice.server.security.logins import Logins
from felice.server.security.tls import TlsListeners
from felice.server.telemetry.clients import ClientTelemetry
from felice.server.topics.auto_topics import AutoTopics
from felice.server.topics.topic_rows import TopicRows
from felice.server.writes.batch_validation import BatchValidation


@dataclass(frozen=True, slots=True)
class Flow:
    """Objects that limit connections and requests, and share the event loop between them."""

    connections: ConnectionLimits
    turns: Turns
    wakeups: Wakeups
    large_requests: LargeRequests
    request_memory: RequestMemory
    frame_memory: FrameMemory
    closings: Closings
    request_log: RequestLog


@dataclass(frozen=True, slots=True)
class Security:
    """Objects for the identity of a client, and for what a client may do."""

    access: AccessControl
    tls: TlsListeners
    logins: Logins
    tokens: DelegationTokens


@dataclass(frozen=True, slots=True)
class Changes:
    """Objects that write the metadata of the cluster to its store."""

    cluster: ClusterAdmin
    acls: AclChanges
    leaderships: Leaderships


@dataclass(frozen=True, slots=True)
class Disks:
    """The log directories, and the work on them."""

    directories: LogDirectories
    replica_moves: ReplicaMoves
    offline_logs: OfflineLogs


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics that are created when a client names them (`auto`), and the rows that describe topics."""

    auto: AutoTopics
    rows: TopicRows


@dataclass(frozen=True, slots=True)
class Fetching:
    """The fetch sessions (KIP-227), and the rate at which this broker sends to throttled followers."""

    sessions: FetchSessions
    throttle: RateLimit


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a broker that handlers and sessions use, in groups."""

    broker_id: int
    env: Environment
    apis: Mapping[int, Api]
    settings: Settings
    lifecycle: Lifecycle
    watcher: Watcher
    changes: Changes
    image_follower: ImageFollower
    partitions: Partitions
    disks: Disks
    topics: Topics
    batch_validation: BatchValidation
    fetching: Fetching
    coordinators: Coordinators
    security: Security
    quotas: ClientQuotas
    flow: Flow
    metrics: Metrics
    telemetry: ClientTelemetry

    @property
    def image(self) -> ClusterImage:
        """The current metadata image."""
        return self.watcher.image

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force at this moment."""
        return self.settings.config

    @property
    def config_layers(self) -> BrokerLayers:
        """The sources of the configuration in force."""
        return self.settings.layers(self.image, self.broker_id)
