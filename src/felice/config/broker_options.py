"""Options of a broker: identity, listeners, topics, logs, cleaning and replication. Defaults are those of Kafka 4.3.

Leaves: parsing, and checks that compare several options, to `broker`.
"""

from __future__ import annotations

import sys

from felice.config.authorizer_options import AuthorizerOptions
from felice.config.coordinator_options import CoordinatorOptions
from felice.config.limits import LimitOptions
from felice.config.listener_limits import MAX_CONNECTIONS
from felice.config.monitoring import MonitoringOptions
from felice.config.option import LONG_MAX, Items, Kind, Scope, field_of, option
from felice.config.quotas import QuotaOptions
from felice.config.security import PROTOCOLS, SecurityOptions
from felice.config.token_options import TokenOptions
from felice.config.zookeeper import ZooKeeperOptions
from felice.dataclass import dataclass

PROVIDERS = "config.providers"
PROVIDER_PREFIX = f"{PROVIDERS}."
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class BrokerOptions(
    CoordinatorOptions,
    MonitoringOptions,
    QuotaOptions,
    LimitOptions,
    ZooKeeperOptions,
    TokenOptions,
    AuthorizerOptions,
    SecurityOptions,
):
    """Every option of a broker that has a field of its own: those of the last base class first, its own last."""

    node_id: int = option(
        "node.id",
        Kind.INT,
        0,
        "The broker's id in its cluster. -1: an id above reserved.broker.max.id is generated and stored in log.dirs.",
        minimum=-1,
        synonyms=(("broker.id", 1),),
    )
    config_providers: tuple[str, ...] = option(
        PROVIDERS,
        Kind.LIST,
        (),
        "Names of providers, to whose values ${NAME:key} and ${NAME:path:key} refer in this file. "
        "config.providers.NAME.class is EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider of "
        "org.apache.kafka.common.config.provider; config.providers.NAME.param.allowed.paths and (of variables) "
        "param.allowlist.pattern limit what they read.",
    )
    broker_id_generation_enable: bool = option(
        "broker.id.generation.enable",
        Kind.BOOLEAN,
        True,
        "Whether node.id=-1 makes the metadata store generate an id.",
    )
    reserved_broker_max_id: int = option(
        "reserved.broker.max.id", Kind.INT, 1000, "Generated ids are above this one.", minimum=0
    )
    controlled_shutdown_enable: bool = option(
        "controlled.shutdown.enable",
        Kind.BOOLEAN,
        True,
        "Whether a broker that stops first hands its leaderships over to other brokers.",
    )
    controlled_shutdown_max_retries: int = option(
        "controlled.shutdown.max.retries",
        Kind.INT,
        3,
        "How often a broker that stops retries to hand over leaderships that no other replica could take.",
        minimum=0,
    )
    controlled_shutdown_retry_backoff_ms: int = option(
        "controlled.shutdown.retry.backoff.ms",
        Kind.LONG,
        5_000,
        "How long a broker that stops waits before it retries to hand over leaderships.",
        minimum=0,
    )
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable",
        Kind.BOOLEAN,
        True,
        "Whether the controller periodically returns leadership to the preferred replicas.",
    )
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds",
        Kind.LONG,
        300,
        "How often the controller checks for leaderships to return; the first check is after 5 seconds.",
        minimum=1,
    )
    leader_imbalance_per_broker_percentage: int = option(
        "leader.imbalance.per.broker.percentage",
        Kind.INT,
        10,
        "The share of partitions preferring a broker that other brokers may lead before leadership is returned.",
        minimum=0,
    )
    broker_rack: str | None = option("broker.rack", Kind.STRING, None, "The rack of the broker.")
    listeners: tuple[str, ...] = option(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://:9092",),
        "The addresses on which the broker listens: NAME://host:port, separated by commas.",
        may_be_empty=False,
    )
    advertised_listeners: tuple[str, ...] | None = option(
        "advertised.listeners",
        Kind.LIST,
        None,
        "The addresses that the broker gives to clients; those of listeners if not set.",
        may_be_empty=False,
    )
    listener_security_protocol_map: tuple[str, ...] = option(
        "listener.security.protocol.map",
        Kind.LIST,
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "The security protocol of each listener name: NAME:PROTOCOL, separated by commas.",
        items=Items.TEXT,
    )
    controller_listener_names: tuple[str, ...] = option(
        "controller.listener.names",
        Kind.LIST,
        (),
        "Listeners of a KRaft controller, as in a file written for Kafka. Felice has none and ignores these listeners.",
    )
    inter_broker_listener_name: str | None = option(
        "inter.broker.listener.name",
        Kind.STRING,
        None,
        "The listener that other brokers use. If not set: the one that security.inter.broker.protocol names, or the "
        "first listener if that option is not set and none is named PLAINTEXT.",
    )
    security_inter_broker_protocol: str | None = option(
        "security.inter.broker.protocol",
        Kind.STRING,
        None,
        "The security protocol between brokers, which selects the listener of this name. Not together with "
        "inter.broker.listener.name.",
        choices=PROTOCOLS,
    )
    sasl_mechanism_inter_broker_protocol: str = option(
        "sasl.mechanism.inter.broker.protocol",
        Kind.STRING,
        "GSSAPI",
        "The SASL mechanism with which this broker logs in at other brokers. Felice does not have GSSAPI, so it must "
        "be set if brokers use SASL.",
    )
    connection_failed_authentication_delay_ms: int = option(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        100,
        "How long the broker waits before it answers a failed login and closes the connection.",
        minimum=0,
    )
    felice_tls_handshake_timeout_ms: int = option(
        "felice.tls.handshake.timeout.ms",
        Kind.INT,
        10_000,
        "How long a client may take for a TLS handshake.",
        minimum=1000,
    )
    log_dirs: tuple[str, ...] = option(
        "log.dirs",
        Kind.LIST,
        ("felice-data",),
        "The directories that hold partitions, separated by commas.",
        may_be_empty=False,
        synonyms=(("log.dir", 1),),
    )
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes",
        Kind.INT,
        104_857_600,
        "The largest request; a larger one closes its connection.",
        # Kafka's least value is 1, at which no request of any client is read.
        minimum=1024,
    )
    socket_send_buffer_bytes: int = option(
        "socket.send.buffer.bytes",
        Kind.INT,
        102_400,
        "The send buffer of a connection's socket; -1: the operating system decides.",
        minimum=-1,
    )
    # Kafka's default is 50, because a thread of its own accepts there. The event loop accepts between requests, and the
    # system lets a client that finds the queue full try again only a second later.
    socket_listen_backlog_size: int = option(
        "socket.listen.backlog.size",
        Kind.INT,
        1024,
        "Connections that may wait to be accepted. Linux uses `net.core.somaxconn` if that is less.",
        minimum=1,
    )
    queued_max_requests: int = option(
        "queued.max.requests",
        Kind.INT,
        500,
        "Requests of one connection that may wait for responses before the broker stops reading from it.",
        minimum=1,
    )
    queued_max_request_bytes: int = option(
        "queued.max.request.bytes",
        Kind.LONG,
        64 * 1024 * 1024,
        "Memory of requests of 64 KiB and more, of all connections together, until they are answered. Above it large "
        "requests are received one after another, and clients that do not send the rest of theirs within two seconds "
        "may lose their connections. -1: no limit, as is Kafka's default.",
        minimum=-1,
    )
    max_connections: int = field_of(MAX_CONNECTIONS)
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms", Kind.LONG, 600_000, "A connection with no request for this long is closed."
    )
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether a Metadata request for a topic that does not exist may create it.",
    )
    num_partitions: int = option(
        "num.partitions",
        Kind.INT,
        1,
        "Partitions of a new topic whose creation request gives no number.",
        minimum=1,
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        Kind.INT,
        1,
        "Replicas of a new topic whose creation request gives no number.",
        minimum=1,
    )
    delete_topic_enable: bool = option(
        "delete.topic.enable", Kind.BOOLEAN, True, "Whether topics can be deleted."
    )
    max_request_partition_size_limit: int = option(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "The most partitions in one DescribeTopicPartitions response.",
        minimum=1,
    )
    log_retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often the broker checks for segments to delete.",
        minimum=1,
    )
    log_cleaner_enable: bool = option(
        "log.cleaner.enable", Kind.BOOLEAN, True, "Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = option(
        "log.cleaner.threads",
        Kind.INT,
        1,
        "Partitions that are compacted at the same time.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
    )
    log_cleaner_dedupe_buffer_size: int = option(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        134_217_728,
        "The memory limit of the offset maps of all cleaner threads together; a key takes 24 bytes.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
    )
    log_cleaner_io_buffer_size: int = option(
        "log.cleaner.io.buffer.size",
        Kind.INT,
        524_288,
        "Bytes that a cleaner thread reads or writes at once; more for a batch that is larger.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
    )
    log_cleaner_io_buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        Kind.DOUBLE,
        0.9,
        "How full an offset map may become. A fuller map cleans more keys in one pass, but lookups take longer.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0.01,
        maximum=1,
    )
    log_cleaner_io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        sys.float_info.max,
        "The most bytes per second that all cleaner threads together read and write.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    log_cleaner_backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "How long a cleaner thread sleeps when no partition needs cleaning.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: float = option(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Kind.DOUBLE,
        sys.float_info.max,
        "The most bytes per second read to move replicas between log directories.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    log_flush_scheduler_interval_ms: int = option(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        2**63 - 1,
        "How often the broker checks for logs to flush because of flush.ms.",
        minimum=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = option(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often recovery points are written.",
        minimum=0,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often log start offsets are written.",
        minimum=0,
    )
    replica_lag_time_max_ms: int = option(
        "replica.lag.time.max.ms",
        Kind.LONG,
        30_000,
        "A follower that has not caught up with its leader for this long leaves the ISR.",
        minimum=1,
    )
    num_replica_fetchers: int = option(
        "num.replica.fetchers",
        Kind.INT,
        1,
        "Fetch requests that may be in flight to each leader broker.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
        maximum=64,
    )
    replica_fetch_max_bytes: int = option(
        "replica.fetch.max.bytes",
        Kind.INT,
        1_048_576,
        "The most bytes that a follower requests of one partition per fetch.",
        minimum=0,
    )
    replica_fetch_response_max_bytes: int = option(
        "replica.fetch.response.max.bytes",
        Kind.INT,
        10_485_760,
        "The most bytes that a follower requests per fetch.",
        minimum=0,
    )
    replica_fetch_min_bytes: int = option(
        "replica.fetch.min.bytes",
        Kind.INT,
        1,
        "The bytes that a leader collects before it responds to a follower.",
        minimum=0,
    )
    replica_fetch_wait_max_ms: int = option(
        "replica.fetch.wait.max.ms",
        Kind.INT,
        500,
        "How long a leader may wait for replica.fetch.min.bytes before it responds.",
        minimum=1,
    )
    replica_fetch_backoff_ms: int = option(
        "replica.fetch.backoff.ms",
        Kind.INT,
        1000,
        "How long a follower waits after a failed fetch.",
        minimum=1,
    )
    replica_socket_timeout_ms: int = option(
        "replica.socket.timeout.ms",
        Kind.INT,
        30_000,
        "How long a broker waits for the response of another broker.",
        minimum=1,
    )
    replica_selector_class: str | None = option(
        "replica.selector.class",
        Kind.STRING,
        None,
        "The replica from which a consumer reads: with RackAwareReplicaSelector one in its rack, otherwise the leader.",
        choices=(RACK_AWARE_SELECTOR,),
    )
    leader_replication_throttled_rate: int = option(
        "leader.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        "Bytes per second sent to followers that are throttled and not in sync.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    follower_replication_throttled_rate: int = option(
        "follower.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        "Bytes per second fetched for replicas that are throttled and not in sync.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    replica_high_watermark_checkpoint_interval_ms: int = option(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5_000,
        "How often high watermarks are written.",
    )
    num_recovery_threads_per_data_dir: int = option(
        "num.recovery.threads.per.data.dir",
        Kind.INT,
        2,
        "Threads that open a directory's partitions at start and close them at stop.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        Kind.INT,
        57_671_680,
        "The most bytes of records in one Fetch response.",
        minimum=1024,
    )
    max_incremental_fetch_session_cache_slots: int = option(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000, "Fetch sessions kept at once.", minimum=0
    )
