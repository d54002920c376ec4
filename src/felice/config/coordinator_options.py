"""Options of the group coordinator and the transaction coordinator. Defaults are those of Kafka 4.3."""

from __future__ import annotations

from felice.config.option import INT_MAX, Kind, Scope, option
from felice.dataclass import dataclass


@dataclass(frozen=True, slots=False)
class CoordinatorOptions:
    """Options of consumer groups, committed offsets, transactions and producer ids."""

    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "How long an idle producer's sequences are remembered.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
    )
    producer_id_expiration_check_interval_ms: int = option(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        600_000,
        "How often expired idle producers are removed.",
        minimum=1,
    )
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
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "How long an idle transactional id is remembered.",
        minimum=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "How often the coordinator checks for transactions that timed out, and aborts them.",
        minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often the coordinator checks for expired transactional ids, and removes them.",
        minimum=1,
    )
    transaction_partition_verification_enable: bool = option(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        "Whether a partition leader asks the coordinator before a transaction's first write to it.",
        scope=Scope.CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = option(
        "add.partitions.to.txn.retry.backoff.ms",
        Kind.INT,
        20,
        "Pause between retries of a transaction V2 write while the previous transaction is still ending.",
        minimum=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = option(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Kind.INT,
        100,
        "How long a transaction V2 write waits at most while the previous transaction is still ending.",
        minimum=0,
    )
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "The broker removes a member of a consumer group after this time without a heartbeat.",
        minimum=1,
    )
    group_consumer_min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        45_000,
        "The shortest session timeout that a consumer group may be given.",
        minimum=1,
    )
    group_consumer_max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        60_000,
        "The longest session timeout that a consumer group may be given.",
        minimum=1,
    )
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        "How often members of a consumer group send heartbeats.",
        minimum=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        "The shortest heartbeat interval that a consumer group may be given.",
        minimum=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        15_000,
        "The longest heartbeat interval that a consumer group may be given.",
        minimum=1,
    )
    group_consumer_assignment_interval_ms: int = option(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        1_000,
        "The shortest time between two computations of a consumer group's assignment.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
    )
    group_consumer_min_assignment_interval_ms: int = option(
        "group.consumer.min.assignment.interval.ms",
        Kind.INT,
        0,
        "The shortest assignment interval that a consumer group may be given.",
        minimum=0,
    )
    group_consumer_max_assignment_interval_ms: int = option(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        15_000,
        "The longest assignment interval that a consumer group may be given.",
        minimum=0,
    )
    group_consumer_max_size: int = option(
        "group.consumer.max.size",
        Kind.INT,
        INT_MAX,
        "The maximum number of members of a consumer group.",
        minimum=1,
    )
    group_consumer_regex_refresh_interval_ms: int = option(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        600_000,
        "How often the broker matches the regular expressions of a consumer group even if the topics did not change.",
        minimum=10_000,
    )
    group_consumer_assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        "The assignors that consumer groups may use; the first one is the default.",
        choices=("uniform", "range"),
        may_be_empty=False,
    )
    group_consumer_migration_policy: str = option(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Which conversions of groups with members are allowed: to the consumer protocol (upgrade), back (downgrade).",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
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
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "How long the offsets of a group without members are kept.",
        minimum=1,
    )
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often the coordinator checks for expired offsets.",
        minimum=1,
    )
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes", Kind.INT, 4096, "The longest metadata text of a committed offset."
    )
    offsets_commit_timeout_ms: int = option(
        "offsets.commit.timeout.ms",
        Kind.INT,
        5_000,
        "How long an offset commit may wait for replication.",
        minimum=1,
    )
