"""Options of a broker, as `server.properties` and dynamic changes give them.

`BrokerConfig.parse` answers with the configuration and the names it does not
know, so that the caller can warn of each by name. The options that exist only
to give topics their defaults are derived from the topics' own declarations.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from felice.config.limits import LimitOptions
from felice.config.option import (
    INT_MAX,
    LONG_MAX,
    ConfigError,
    Kind,
    Option,
    Scope,
    option,
    options_of,
    parse_all,
)
from felice.config.topic import TOPIC_OPTIONS

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SECURITY_PROTOCOLS = ("PLAINTEXT",)
_DEDUPE_BUFFER_MIN_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that a broker listens on or tells clients of. An empty host means every interface."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option_name: str) -> Listener:
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
            raise ConfigError(
                option_name, text, "expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092"
            )
        return cls(name.upper(), host.strip("[]"), int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerConfig(LimitOptions):
    """The effective configuration of one broker. Defaults are Kafka 4.3's."""

    node_id: int = option(
        "node.id", Kind.INT, 0,
        "The broker's number in its cluster; -1 has one generated, above reserved.broker.max.id, and kept in log.dirs.",
        minimum=-1, synonyms=(("broker.id", 1),),
    )  # fmt: skip
    broker_id_generation_enable: bool = option(
        "broker.id.generation.enable", Kind.BOOLEAN, True, "Whether node.id=-1 has the store generate an id."
    )
    reserved_broker_max_id: int = option(
        "reserved.broker.max.id", Kind.INT, 1000, "Generated ids are above this one.", minimum=0
    )
    controlled_shutdown_enable: bool = option(
        "controlled.shutdown.enable",
        Kind.BOOLEAN,
        True,
        "Whether a broker that stops gives its leaderships away first.",
    )
    controlled_shutdown_max_retries: int = option(
        "controlled.shutdown.max.retries", Kind.INT, 3,
        "How often a broker that stops tries again to give leaderships away that nobody could take.", minimum=0,
    )  # fmt: skip
    controlled_shutdown_retry_backoff_ms: int = option(
        "controlled.shutdown.retry.backoff.ms", Kind.LONG, 5_000,
        "How long a broker that stops waits before it tries again to give leaderships away.", minimum=0,
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable", Kind.BOOLEAN, True,
        "Whether the controller gives leadership back to the first replicas by the clock.",
    )  # fmt: skip
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds", Kind.LONG, 300,
        "How often the controller looks for leaderships to give back; first after 5 seconds.", minimum=1,
    )  # fmt: skip
    leader_imbalance_per_broker_percentage: int = option(
        "leader.imbalance.per.broker.percentage", Kind.INT, 10,
        "How many of the partitions that are to be led by a broker may be led by others before they are given back.",
        minimum=0,
    )  # fmt: skip
    broker_rack: str | None = option("broker.rack", Kind.STRING, None, "The rack that the broker stands in.")
    listeners: tuple[str, ...] = option(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://:9092",),
        "Where the broker listens: NAME://host:port, separated by commas.",
    )
    advertised_listeners: tuple[str, ...] | None = option(
        "advertised.listeners",
        Kind.LIST,
        None,
        "Where clients are told to find the broker; as listeners if not set.",
    )
    listener_security_protocol_map: tuple[str, ...] = option(
        "listener.security.protocol.map", Kind.LIST, ("PLAINTEXT:PLAINTEXT",),
        "The security protocol of each listener name. Only PLAINTEXT is built.",
    )  # fmt: skip
    controller_listener_names: tuple[str, ...] = option(
        "controller.listener.names", Kind.LIST, (),
        "Listeners of KRaft's controller in a file that was Kafka's; there is none here, so they are left out.",
    )  # fmt: skip
    inter_broker_listener_name: str | None = option(
        "inter.broker.listener.name", Kind.STRING, None,
        "The listener on which brokers reach each other; PLAINTEXT, or else the first, if not set.",
    )  # fmt: skip
    log_dirs: tuple[str, ...] = option(
        "log.dirs",
        Kind.LIST,
        ("felice-data",),
        "The directories that hold partitions.",
        synonyms=(("log.dir", 1),),
    )
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes", Kind.INT, 104_857_600, "The largest request; a larger one closes its connection.",
        minimum=1,
    )  # fmt: skip
    socket_listen_backlog_size: int = option(
        "socket.listen.backlog.size", Kind.INT, 50, "Connections that may wait to be accepted.", minimum=1
    )
    queued_max_requests: int = option(
        "queued.max.requests", Kind.INT, 500,
        "Requests of one connection that may wait for their answers before the broker stops reading from it.",
        minimum=1,
    )  # fmt: skip
    max_connections: int = option(
        "max.connections", Kind.INT, INT_MAX, "Connections that may be open at once; a further one is closed.",
        scope=Scope.CLUSTER_WIDE, minimum=0,
    )  # fmt: skip
    max_connections_per_ip: int = option(
        "max.connections.per.ip", Kind.INT, INT_MAX, "Connections that one address may have open at once.",
        scope=Scope.CLUSTER_WIDE, minimum=0,
    )  # fmt: skip
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms", Kind.LONG, 600_000, "A connection with no request for this long is closed."
    )
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether asking for a topic's metadata may create it.",
    )
    num_partitions: int = option(
        "num.partitions", Kind.INT, 1, "Partitions of a topic that does not say how many.", minimum=1
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        Kind.INT,
        1,
        "Replicas of a topic that does not say how many.",
        minimum=1,
    )
    delete_topic_enable: bool = option(
        "delete.topic.enable", Kind.BOOLEAN, True, "Whether topics can be deleted."
    )
    max_request_partition_size_limit: int = option(
        "max.request.partition.size.limit", Kind.INT, 2000,
        "The most partitions that one answer to DescribeTopicPartitions holds.", minimum=1,
    )  # fmt: skip
    log_retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often old segments are looked for.",
        minimum=1,
    )
    log_cleaner_enable: bool = option(
        "log.cleaner.enable", Kind.BOOLEAN, True, "Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = option(
        "log.cleaner.threads", Kind.INT, 1, "Partitions that are compacted at the same time.",
        scope=Scope.CLUSTER_WIDE, minimum=0,
    )  # fmt: skip
    log_cleaner_dedupe_buffer_size: int = option(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 134_217_728,
        "The most memory that the offset maps of all cleaner threads take together, at 24 bytes a key.",
        scope=Scope.CLUSTER_WIDE, minimum=0,
    )  # fmt: skip
    log_cleaner_io_buffer_size: int = option(
        "log.cleaner.io.buffer.size", Kind.INT, 524_288,
        "Bytes that a cleaner thread reads, and writes, at a time; more where a batch is larger.",
        scope=Scope.CLUSTER_WIDE, minimum=0,
    )  # fmt: skip
    log_cleaner_io_buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9,
        "How full an offset map may become: a fuller one takes more keys at once and longer to look them up.",
        scope=Scope.CLUSTER_WIDE, minimum=0.01, maximum=1,
    )  # fmt: skip
    log_cleaner_io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max,
        "The most that all cleaner threads together read and write.", scope=Scope.CLUSTER_WIDE, minimum=1,
    )  # fmt: skip
    log_cleaner_backoff_ms: int = option(
        "log.cleaner.backoff.ms", Kind.LONG, 15_000, "How long a cleaner thread sleeps when nothing is to be cleaned.",
        scope=Scope.CLUSTER_WIDE, minimum=0,
    )  # fmt: skip
    replica_alter_log_dirs_io_max_bytes_per_second: float = option(
        "replica.alter.log.dirs.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max,
        "The most that moving replicas between log directories reads.", minimum=1,
    )  # fmt: skip
    log_flush_scheduler_interval_ms: int = option(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        2**63 - 1,
        "How often flush.ms is looked after.",
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
        "log.flush.start.offset.checkpoint.interval.ms", Kind.INT, 60_000, "How often log start offsets are written.",
        minimum=0,
    )  # fmt: skip
    replica_lag_time_max_ms: int = option(
        "replica.lag.time.max.ms", Kind.LONG, 30_000,
        "A follower that has not had everything for this long is not in sync any more.", minimum=1,
    )  # fmt: skip
    num_replica_fetchers: int = option(
        "num.replica.fetchers", Kind.INT, 1, "Fetches under way from each broker that is followed.",
        scope=Scope.CLUSTER_WIDE, minimum=1, maximum=64,
    )  # fmt: skip
    replica_fetch_max_bytes: int = option(
        "replica.fetch.max.bytes", Kind.INT, 1_048_576, "The most that a follower asks of one partition at a time.",
        minimum=0,
    )  # fmt: skip
    replica_fetch_response_max_bytes: int = option(
        "replica.fetch.response.max.bytes", Kind.INT, 10_485_760, "The most that a follower asks of a leader at once.",
        minimum=0,
    )  # fmt: skip
    replica_fetch_min_bytes: int = option(
        "replica.fetch.min.bytes", Kind.INT, 1, "How much a leader should have before it answers a follower.", minimum=0
    )  # fmt: skip
    replica_fetch_wait_max_ms: int = option(
        "replica.fetch.wait.max.ms",
        Kind.INT,
        500,
        "How long a leader may wait for replica.fetch.min.bytes.",
        minimum=1,
    )
    replica_fetch_backoff_ms: int = option(
        "replica.fetch.backoff.ms",
        Kind.INT,
        1000,
        "How long a follower waits after a fetch that failed.",
        minimum=1,
    )
    replica_socket_timeout_ms: int = option(
        "replica.socket.timeout.ms",
        Kind.INT,
        30_000,
        "How long a broker waits for another's answer.",
        minimum=1,
    )
    replica_selector_class: str | None = option(
        "replica.selector.class", Kind.STRING, None,
        "Which replica a consumer is sent to: one in its own rack with RackAwareReplicaSelector, else the leader.",
        choices=(RACK_AWARE_SELECTOR,),
    )  # fmt: skip
    leader_replication_throttled_rate: int = option(
        "leader.replication.throttled.rate", Kind.LONG, LONG_MAX,
        "Bytes a second sent to followers that are throttled and not in sync.", scope=Scope.CLUSTER_WIDE, minimum=1,
    )  # fmt: skip
    follower_replication_throttled_rate: int = option(
        "follower.replication.throttled.rate", Kind.LONG, LONG_MAX,
        "Bytes a second fetched for replicas that are throttled and not in sync.", scope=Scope.CLUSTER_WIDE, minimum=1,
    )  # fmt: skip
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
        "Threads that open a directory's partitions at a start and close them at a stop.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    fetch_max_bytes: int = option(
        "fetch.max.bytes", Kind.INT, 57_671_680, "The most that one answer to Fetch holds.", minimum=1024
    )
    max_incremental_fetch_session_cache_slots: int = option(
        "max.incremental.fetch.session.cache.slots", Kind.INT, 1000, "Fetch sessions kept at once.", minimum=0
    )
    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms", Kind.INT, 86_400_000, "How long an idle producer's sequences are remembered.",
        scope=Scope.CLUSTER_WIDE, minimum=1,
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: int = option(
        "producer.id.expiration.check.interval.ms", Kind.INT, 600_000, "How often idle producers are forgotten.",
        minimum=1,
    )  # fmt: skip
    transaction_state_log_num_partitions: int = option(
        "transaction.state.log.num.partitions", Kind.INT, 50, "Partitions of __transaction_state.", minimum=1
    )
    transaction_state_log_replication_factor: int = option(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        3,
        "Replicas of __transaction_state.",
        minimum=1,
    )
    transaction_state_log_min_isr: int = option(
        "transaction.state.log.min.isr", Kind.INT, 2, "min.insync.replicas of __transaction_state.", minimum=1
    )
    transaction_state_log_segment_bytes: int = option(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104_857_600,
        "segment.bytes of __transaction_state.",
        minimum=1024 * 1024,
    )
    transaction_max_timeout_ms: int = option(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        minimum=1,
    )
    transactional_id_expiration_ms: int = option(
        "transactional.id.expiration.ms", Kind.INT, 604_800_000, "How long an idle transactional id is remembered.",
        minimum=1,
    )  # fmt: skip
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "How often transactions that took too long are looked for, to abort them.",
        minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often idle transactional ids are looked for, to forget them.",
        minimum=1,
    )
    transaction_partition_verification_enable: bool = option(
        "transaction.partition.verification.enable", Kind.BOOLEAN, True,
        "Whether a partition asks the coordinator before a transaction's first write to it.",
        scope=Scope.CLUSTER_WIDE,
    )  # fmt: skip
    add_partitions_to_txn_retry_backoff_ms: int = option(
        "add.partitions.to.txn.retry.backoff.ms", Kind.INT, 20,
        "How often a write asks again, in transaction V2, while the transaction before is being ended.",
        minimum=1,
    )  # fmt: skip
    add_partitions_to_txn_retry_backoff_max_ms: int = option(
        "add.partitions.to.txn.retry.backoff.max.ms", Kind.INT, 100,
        "How long a write waits at most, in transaction V2, while the transaction before is being ended.", minimum=0,
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        "How long an empty group waits for more members.",
        minimum=0,
    )
    group_min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        "The shortest session timeout that a member may ask for.",
    )
    group_max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "The longest session timeout that a member may ask for.",
    )
    group_max_size: int = option(
        "group.max.size", Kind.INT, INT_MAX, "The most members of a group.", minimum=1
    )
    offsets_topic_num_partitions: int = option(
        "offsets.topic.num.partitions", Kind.INT, 50, "Partitions of __consumer_offsets.", minimum=1
    )
    offsets_topic_replication_factor: int = option(
        "offsets.topic.replication.factor", Kind.SHORT, 3, "Replicas of __consumer_offsets.", minimum=1
    )
    offsets_topic_segment_bytes: int = option(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "segment.bytes of __consumer_offsets.",
        minimum=1024 * 1024,
    )
    offsets_retention_minutes: int = option(
        "offsets.retention.minutes", Kind.INT, 10_080, "How long the offsets of a group without members are kept.",
        minimum=1,
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often old offsets are looked for.",
        minimum=1,
    )
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes", Kind.INT, 4096, "The longest text that a commit may carry."
    )
    offsets_commit_timeout_ms: int = option(
        "offsets.commit.timeout.ms",
        Kind.INT,
        5_000,
        "How long a commit may wait to be replicated.",
        minimum=1,
    )
    topic_overrides: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of topic options that this broker sets, by the attribute of `TopicConfig`."""
    originals: Mapping[str, str] = field(default_factory=dict)
    """The texts that the configuration was made of, by option name."""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """The texts of names that mean nothing here, for DescribeConfigs."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """The configuration and the names that mean nothing to it; raises `ConfigError`."""
        known = {name: text for name, text in properties.items() if name in BROKER_OPTIONS}
        resolved = _resolve_synonyms(known)
        values = parse_all(_OWN_OPTIONS, resolved)
        other = {name: text for name, text in properties.items() if name not in BROKER_OPTIONS}
        config = cls(**values, topic_overrides=_topic_overrides(known), originals=known, without_effect=other)
        config._check()
        return config, list(other)

    def topic_defaults(self) -> Mapping[str, Any]:
        return self.topic_overrides

    def changed(self, properties: Mapping[str, str]) -> BrokerConfig:
        """This configuration with dynamic changes laid over it; raises `ConfigError`."""
        return BrokerConfig.parse({**self.originals, **properties})[0] if properties else self

    @property
    def parsed_listeners(self) -> list[Listener]:
        return self._without_controllers(self.listeners, "listeners")

    @property
    def parsed_advertised_listeners(self) -> list[Listener]:
        texts = self.listeners if self.advertised_listeners is None else self.advertised_listeners
        return self._without_controllers(texts, "advertised.listeners")

    def _without_controllers(self, texts: Iterable[str], option_name: str) -> list[Listener]:
        controllers = {name.upper() for name in self.controller_listener_names}
        found = [Listener.parse(text, option_name) for text in texts]
        return [listener for listener in found if listener.name not in controllers]

    @property
    def log_directories(self) -> list[Path]:
        return [Path(text) for text in self.log_dirs]

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener on which the other brokers are to find this one."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        names = [listener.name for listener in self.parsed_advertised_listeners]
        return "PLAINTEXT" if "PLAINTEXT" in names else names[0]

    def _check(self) -> None:
        self._check_listeners()
        self._check_replication()
        if self.node_id < 0 and not self.broker_id_generation_enable:
            raise ConfigError(
                "node.id", self.node_id, "broker.id.generation.enable is false, so it must be 0 or more"
            )
        if not self.log_dirs:
            raise ConfigError("log.dirs", "", "at least one directory is needed")
        if len(set(self.log_dirs)) != len(self.log_dirs):
            raise ConfigError("log.dirs", ",".join(self.log_dirs), "a directory is named twice")
        self._check_cleaner()
        self.check_zookeeper()
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms",
                self.group_min_session_timeout_ms,
                f"it is above group.max.session.timeout.ms ({self.group_max_session_timeout_ms})",
            )

    def _check_cleaner(self) -> None:
        per_thread = self.log_cleaner_dedupe_buffer_size // max(self.log_cleaner_threads, 1)
        if self.log_cleaner_enable and per_thread < _DEDUPE_BUFFER_MIN_BYTES:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size", self.log_cleaner_dedupe_buffer_size,
                f"it must be at least 1 MiB for each of the {self.log_cleaner_threads} cleaner threads",
            )  # fmt: skip

    def _check_replication(self) -> None:
        names = [listener.name for listener in self.parsed_advertised_listeners]
        if self.inter_broker_listener not in names:
            raise ConfigError(
                "inter.broker.listener.name", self.inter_broker_listener_name,
                f"no advertised listener has that name; there are {', '.join(names)}",
            )  # fmt: skip
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            # A follower with nothing to fetch would drop out of the ISR again and again.
            raise ConfigError(
                "replica.fetch.wait.max.ms", self.replica_fetch_wait_max_ms,
                f"it must not be above replica.lag.time.max.ms ({self.replica_lag_time_max_ms})",
            )  # fmt: skip
        if self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms:
            raise ConfigError(
                "replica.fetch.wait.max.ms", self.replica_fetch_wait_max_ms,
                f"it must not be above replica.socket.timeout.ms ({self.replica_socket_timeout_ms})",
            )  # fmt: skip

    def _check_listeners(self) -> None:
        listeners = self.parsed_listeners
        if not listeners:
            raise ConfigError("listeners", "", "at least one listener is needed")
        names = [listener.name for listener in listeners]
        if len(set(names)) != len(names):
            raise ConfigError(
                "listeners", ",".join(self.listeners), "each listener must have a name of its own"
            )
        protocols = self._security_protocols()
        for listener in listeners:
            protocol = protocols.get(listener.name, listener.name)
            if protocol not in _SECURITY_PROTOCOLS:
                raise ConfigError(
                    "listeners", listener, f"security protocol {protocol} is not built; use PLAINTEXT"
                )
        for advertised in self.parsed_advertised_listeners:
            if advertised.name not in names:
                raise ConfigError(
                    "advertised.listeners", advertised, f"no listener is named {advertised.name}"
                )
            if advertised.host == "0.0.0.0":
                raise ConfigError(
                    "advertised.listeners",
                    advertised,
                    "clients cannot connect to 0.0.0.0; name a reachable address, as in "
                    f"advertised.listeners={advertised.name}://HOST:{advertised.port or 9092}",
                )

    def _security_protocols(self) -> dict[str, str]:
        protocols = {}
        for entry in self.listener_security_protocol_map:
            name, colon, protocol = entry.partition(":")
            if not colon:
                raise ConfigError("listener.security.protocol.map", entry, "expected NAME:PROTOCOL")
            protocols[name.strip().upper()] = protocol.strip().upper()
        return protocols


# Where it is not set, Kafka takes `log.flush.scheduler.interval.ms` for it.
_WITHOUT_DEFAULT = frozenset(("log.flush.interval.ms",))


def _topic_synonym_options() -> dict[str, Option]:
    """The broker options that exist to give a topic option its default.

    Of those that say one time in several units the finest can be changed, and the coarsest has the default.
    """
    found: dict[str, Option] = {}
    for topic_option in TOPIC_OPTIONS.values():
        for name, factor in topic_option.synonyms:
            best, coarsest = (name == topic_option.synonyms[index][0] for index in (0, -1))
            has_default = coarsest and name not in _WITHOUT_DEFAULT
            in_units = topic_option.default // factor if factor != 1 else topic_option.default
            found[name] = dataclasses.replace(
                topic_option,
                name=name,
                default=in_units if has_default else None,
                scope=Scope.CLUSTER_WIDE if best else Scope.READ_ONLY,
                synonyms=(),
                kind=topic_option.kind if factor == 1 else Kind.INT,
            )
    return found


_OWN_OPTIONS: dict[str, Option] = options_of(BrokerConfig)
_SYNONYM_OPTIONS: dict[str, Option] = {
    name: dataclasses.replace(declared, name=name, synonyms=())
    for declared in _OWN_OPTIONS.values()
    for name, _ in declared.synonyms
}
BROKER_OPTIONS: dict[str, Option] = {**_OWN_OPTIONS, **_SYNONYM_OPTIONS, **_topic_synonym_options()}
"""Every option that a broker understands, by name."""


def _resolve_synonyms(known: Mapping[str, str]) -> dict[str, str]:
    """The texts under the names of the options that they stand for (`broker.id` for `node.id`)."""
    resolved = {name: text for name, text in known.items() if name in _OWN_OPTIONS}
    for declared in _OWN_OPTIONS.values():
        for name, _ in declared.synonyms:
            if name in known and declared.name not in resolved:
                resolved[declared.name] = known[name]
    return resolved


def _topic_overrides(known: Mapping[str, str]) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    for topic_option in TOPIC_OPTIONS.values():
        for name, factor in topic_option.synonyms:
            if name in known:
                value = BROKER_OPTIONS[name].parse(known[name])
                # -1 hours is no length of time but 'for ever', in every unit.
                overrides[topic_option.attribute] = value * factor if factor != 1 and value > 0 else value
                break
    return overrides
