"""Options of a topic, and the broker options that set their defaults.

The value of a topic option comes from the first of these sources that has one: the topic; a dynamic broker option that
is a synonym; the same option in the broker's file; the default of Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from felice.config.option import (
    LONG_MAX,
    ConfigError,
    Items,
    Kind,
    Option,
    OptionValue,
    Scope,
    construct,
    option,
    options_of,
    parse_all,
)
from felice.dataclass import dataclass

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def _replica_list_fault(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(re.fullmatch(r"\d+:\d+", replica) for replica in replicas):
        return None
    return "expected partition:broker, separated by commas, or *"


class TopicDefaults(Protocol):
    """A broker configuration as the source of topic defaults."""

    def topic_defaults(self) -> Mapping[str, OptionValue]:
        """Typed values by the attribute of `TopicConfig`."""
        ...


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective configuration of one topic."""

    cleanup_policy: tuple[str, ...] = option(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "What happens to old segments: delete removes them by age or size, compact keeps the last record of "
        "each key, both does both, and an empty list keeps everything.",
        scope=Scope.TOPIC,
        choices=("delete", "compact"),
        items=Items.REPEATED,
        synonyms=(("log.cleanup.policy", 1),),
    )
    compression_type: str = option(
        "compression.type",
        Kind.STRING,
        "producer",
        "The codec that batches are stored with; 'producer' keeps what the producer chose.",
        scope=Scope.TOPIC,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(("compression.type", 1),),
    )
    compression_gzip_level: int = option(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Level of gzip where compression.type is gzip: 1 to 9, -1 its default.",
        scope=Scope.TOPIC,
        minimum=-1,
        maximum=9,
        synonyms=(("compression.gzip.level", 1),),
        internal_check=lambda level: "Level must be -1 or between 1 and 9" if level == 0 else None,
    )
    compression_lz4_level: int = option(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Level of lz4 where compression.type is lz4: 1 to 17.",
        scope=Scope.TOPIC,
        minimum=1,
        maximum=17,
        synonyms=(("compression.lz4.level", 1),),
    )
    compression_zstd_level: int = option(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Level of zstd where compression.type is zstd.",
        scope=Scope.TOPIC,
        minimum=-131072,
        maximum=22,
        synonyms=(("compression.zstd.level", 1),),
    )
    delete_retention_ms: int = option(
        "delete.retention.ms",
        Kind.LONG,
        86_400_000,
        "How long tombstones and transaction markers stay after the first cleaning that found nothing they still hide.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.cleaner.delete.retention.ms", 1),),
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms",
        Kind.LONG,
        60_000,
        "How long a deleted segment's file stays on disk.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.segment.delete.delay.ms", 1),),
    )
    flush_messages: int = option(
        "flush.messages",
        Kind.LONG,
        LONG_MAX,
        "An acknowledgement waits for the disk once this many records were appended since the last sync: 1 syncs "
        "before every acknowledgement (grouped); the default leaves it to the operating system.",
        scope=Scope.TOPIC,
        minimum=1,
        synonyms=(("log.flush.interval.messages", 1),),
    )
    flush_ms: int = option(
        "flush.ms",
        Kind.LONG,
        LONG_MAX,
        "The longest time that a record waits in memory before it is synced to disk.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.flush.interval.ms", 1),),
    )
    index_interval_bytes: int = option(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "Bytes of log between two entries of an index.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.index.interval.bytes", 1),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = option(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Replicas whose sending to followers is throttled: partition:broker,... or *.",
        scope=Scope.TOPIC,
        items=Items.LOOSE,
        internal_check=_replica_list_fault,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = option(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Replicas whose fetching from leaders is throttled: partition:broker,... or *.",
        scope=Scope.TOPIC,
        items=Items.LOOSE,
        internal_check=_replica_list_fault,
    )
    max_compaction_lag_ms: int = option(
        "max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        "The longest time until a record is cleaned, even if little of the log is dirty.",
        scope=Scope.TOPIC,
        minimum=1,
        synonyms=(("log.cleaner.max.compaction.lag.ms", 1),),
    )
    max_message_bytes: int = option(
        "max.message.bytes",
        Kind.INT,
        1_048_588,
        "The largest batch that a producer may send, as compressed.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("message.max.bytes", 1),),
    )
    message_timestamp_after_max_ms: int = option(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        3_600_000,
        "How far a record's timestamp may be ahead of the broker's clock.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.message.timestamp.after.max.ms", 1),),
    )
    message_timestamp_before_max_ms: int = option(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        "How far a record's timestamp may be behind the broker's clock.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.message.timestamp.before.max.ms", 1),),
    )
    message_timestamp_type: str = option(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whether the producer (CreateTime) or the broker (LogAppendTime) sets the timestamps of records.",
        scope=Scope.TOPIC,
        choices=("CreateTime", "LogAppendTime"),
        synonyms=(("log.message.timestamp.type", 1),),
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "The share of a log that must be dirty before it is cleaned.",
        scope=Scope.TOPIC,
        minimum=0,
        maximum=1,
        synonyms=(("log.cleaner.min.cleanable.ratio", 1),),
    )
    min_compaction_lag_ms: int = option(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "The shortest time until a record may be cleaned.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.cleaner.min.compaction.lag.ms", 1),),
    )
    min_insync_replicas: int = option(
        "min.insync.replicas",
        Kind.INT,
        1,
        "In-sync replicas that a partition needs to accept and acknowledge writes with acks=all.",
        scope=Scope.TOPIC,
        minimum=1,
        synonyms=(("min.insync.replicas", 1),),
    )
    preallocate: bool = option(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Whether a new segment's file is allocated in full. Only false is supported.",
        scope=Scope.TOPIC,
        synonyms=(("log.preallocate", 1),),
        internal_check=lambda wanted: (
            "preallocation is not supported; only false is possible" if wanted else None
        ),
    )
    remote_storage_enable: bool = option(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        "Whether old segments move to a remote store. Only false is supported.",
        scope=Scope.TOPIC,
        internal_check=lambda wanted: (
            "tiered storage is not supported; only false is possible" if wanted else None
        ),
    )
    remote_log_copy_disable: bool = option(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        False,
        "Whether copying to remote storage stops. Has an effect only if remote.storage.enable is true.",
        scope=Scope.TOPIC,
    )
    remote_log_delete_on_disable: bool = option(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        False,
        "Whether remote data is deleted when remote storage is disabled for the topic. Felice has no remote data.",
        scope=Scope.TOPIC,
    )
    local_retention_bytes: int = option(
        "local.retention.bytes",
        Kind.LONG,
        -2,
        "How much of retention.bytes stays on local disk; -2 all. Has an effect only if remote.storage.enable is true.",
        scope=Scope.TOPIC,
        minimum=-2,
        synonyms=(("log.local.retention.bytes", 1),),
    )
    local_retention_ms: int = option(
        "local.retention.ms",
        Kind.LONG,
        -2,
        "How much of retention.ms stays on local disk; -2 all. Has an effect only if remote.storage.enable is true.",
        scope=Scope.TOPIC,
        minimum=-2,
        synonyms=(("log.local.retention.ms", 1),),
    )
    retention_bytes: int = option(
        "retention.bytes",
        Kind.LONG,
        -1,
        "Bytes that a partition may hold before old segments are deleted; -1 no limit.",
        scope=Scope.TOPIC,
        synonyms=(("log.retention.bytes", 1),),
    )
    retention_ms: int = option(
        "retention.ms",
        Kind.LONG,
        604_800_000,
        "How long a segment is kept after its newest record; -1 for ever. 0 is for topics only.",
        scope=Scope.TOPIC,
        minimum=-1,
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ),
    )
    segment_bytes: int = option(
        "segment.bytes",
        Kind.INT,
        1_073_741_824,
        "The size at which a new segment begins.",
        scope=Scope.TOPIC,
        minimum=1024 * 1024,
        synonyms=(("log.segment.bytes", 1),),
    )
    segment_index_bytes: int = option(
        "segment.index.bytes",
        Kind.INT,
        10_485_760,
        "The size of an offset index at which a new segment begins.",
        scope=Scope.TOPIC,
        minimum=4,
        synonyms=(("log.index.size.max.bytes", 1),),
    )
    segment_jitter_ms: int = option(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "The most by which segment.ms is shortened at random, so that logs do not all roll at once.",
        scope=Scope.TOPIC,
        minimum=0,
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    )
    segment_ms: int = option(
        "segment.ms",
        Kind.LONG,
        604_800_000,
        "The age at which a new segment begins.",
        scope=Scope.TOPIC,
        minimum=1,
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    )

    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether a replica that may lack committed records can become leader if no in-sync replica is left.",
        scope=Scope.TOPIC,
        synonyms=(("unclean.leader.election.enable", 1),),
    )

    @property
    def is_compacted(self) -> bool:
        """Whether cleanup.policy contains compact."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        """Whether cleanup.policy contains delete."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a new segment begins. A compacted log also rolls at max.compaction.lag.ms, because the
        cleaner does not clean the active segment (KIP-354).
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def parse(cls, properties: Mapping[str, str], broker: TopicDefaults | None = None) -> TopicConfig:
        """Returns the effective configuration of a topic with these overrides on this broker. Raises `ConfigError`."""
        for name in properties:
            if name not in TOPIC_OPTIONS:
                raise ConfigError(name, properties[name], "Unknown topic config name")
        values = dict(broker.topic_defaults()) if broker else {}
        values.update(parse_all(TOPIC_OPTIONS, properties))
        return construct(cls, values)


TOPIC_OPTIONS: dict[str, Option] = options_of(TopicConfig)
