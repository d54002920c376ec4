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
from felice.server.access.control import AccessControl
from felice.server.auto_topics import AutoTopics
from felice.server.batch_validation import BatchValidation
from felice.server.closings import Closings
from felice.server.config_entries import BrokerLayers
from felice.server.connection_limits import ConnectionLimits
from felice.server.coordinators import Coordinators
from felice.server.delegation_tokens import DelegationTokens
from felice.server.fetch_sessions import FetchSessions
from felice.server.group_lookups import GroupLookups
from felice.server.image_follower import ImageFollower
from felice.server.lifecycle import Lifecycle
from felice.server.log_directories import LogDirectories
from felice.server.logins import Logins
from felice.server.metrics.mbeans import Metrics
from felice.server.offline_logs import OfflineLogs
from felice.server.pace import LargeRequests, Wakeups
from felice.server.producer_ids import ProducerIds
from felice.server.quotas.client_quotas import ClientQuotas
from felice.server.replica_moves import ReplicaMoves
from felice.server.request_log import RequestLog
from felice.server.request_memory import RequestMemory
from felice.server.settings import Settings
from felice.server.telemetry.clients import ClientTelemetry
from felice.server.tls import TlsListeners
from felice.server.topic_rows import TopicRows
from felice.server.turns import Turns


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a broker that handlers and sessions use."""

    broker_id: int
    env: Environment
    settings: Settings
    lifecycle: Lifecycle
    watcher: Watcher
    apis: Mapping[int, Api]
    access: AccessControl
    connections: ConnectionLimits
    turns: Turns
    wakeups: Wakeups
    large_requests: LargeRequests
    request_memory: RequestMemory
    closings: Closings
    batch_validation: BatchValidation
    frame_memory: FrameMemory
    directories: LogDirectories
    partitions: Partitions
    replication_throttle: RateLimit
    cluster_admin: ClusterAdmin
    acl_changes: AclChanges
    leaderships: Leaderships
    coordinators: Coordinators
    group_lookups: GroupLookups
    auto_topics: AutoTopics
    producer_ids: ProducerIds
    quotas: ClientQuotas
    request_log: RequestLog
    fetch_sessions: FetchSessions
    replica_moves: ReplicaMoves
    image_follower: ImageFollower
    offline_logs: OfflineLogs
    metrics: Metrics
    topic_rows: TopicRows
    tls: TlsListeners
    logins: Logins
    tokens: DelegationTokens
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
