"""The options of the source and the sink, by the names of Spark's own Kafka source.

Keeps true: every option has an effect or is refused by its name; none is accepted and ignored. An option that does not
            fit the kind of query (an end for a stream, `latest` as the start of a batch) is refused, too.
Leaves:     asking the cluster for the offsets that an option names to `reader`.
Pure.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import replace

from felice.client.blocking import BlockingConfig
from felice.client.consume.isolation import READ_UNCOMMITTED
from felice.client.options import ClientSettings
from felice.dataclass import dataclass
from felice.pipelines.spark.kafka_options import SINK_KEYS, SOURCE_KEYS, kafka_settings
from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    OffsetsError,
    Partition,
    parse_offsets,
    parse_partitions,
)
from felice.protocol.patterns import PatternError, own_pattern
from felice.records.compression import Codec


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topic partitions a query reads. Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()

    @property
    def option(self) -> str:
        """The option that the user wrote."""
        if self.pattern is not None:
            return "subscribePattern"
        return "assign" if self.partitions else "subscribe"

    def matches(self, topic: str) -> bool:
        """Whether the query reads this topic: by name, by assigned partitions, or by a pattern anywhere in its name."""
        if self.pattern is not None:
            return own_pattern(self.pattern).search(topic) is not None
        return topic in self.topics or any(topic == assigned for assigned, _ in self.partitions)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset of the log."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the log at the time of the request."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; -1 is the end of its log, -2 the beginning."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """A timestamp for each partition: the first record that is not older."""

    timestamps_ms: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """One timestamp for all partitions: the first record of each that is not older."""

    timestamp_ms: int


Position = Earliest | Latest | AtOffsets | AtTimestamps | AtTimestamp


GROUP_PREFIX = "felice-spark"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a reader. `for_batch` and `for_stream` return start and end for the kind of query."""

    subscription: Subscription
    client: BlockingConfig
    topics_good_for_s: float
    group_id: str | None = None
    """The group that shows the progress of a stream; None: its name is `group_prefix` and the query's id."""
    group_prefix: str = GROUP_PREFIX
    starting: Position | None = None
    ending: Position | None = None
    late_timestamp_is_latest: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    offset_retries: int = 3
    offset_retry_interval_ms: int = 1000

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Checks the options of a reader. Raises `OptionError` with the first that is wrong."""
        options = _Options(given, SOURCE_OPTIONS)
        ceiling = options.count("maxOffsetsPerTrigger")
        floor = options.count("minOffsetsPerTrigger")
        if ceiling is not None and floor is not None and floor > ceiling:
            raise OptionError("minOffsetsPerTrigger", f"{floor} is more than maxOffsetsPerTrigger, {ceiling}")
        delay_ms = options.duration_ms("maxTriggerDelay")
        if delay_ms is not None and floor is None:
            raise OptionError("maxTriggerDelay", "has no effect without minOffsetsPerTrigger")
        client, topics_good_for_s = _reader(options)
        return cls(
            subscription=_subscription(options),
            client=client,
            topics_good_for_s=topics_good_for_s,
            group_id=options.text("groupId") or options.text("kafka.group.id"),
            group_prefix=options.text("groupIdPrefix") or GROUP_PREFIX,
            starting=_position(options, "starting"),
            ending=_position(options, "ending"),
            late_timestamp_is_latest=options.choice(
                "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
            )
            == "latest",
            max_offsets_per_trigger=ceiling,
            min_offsets_per_trigger=floor,
            max_trigger_delay_ms=delay_ms,
            min_partitions=options.count("minPartitions"),
            max_records_per_partition=options.count("maxRecordsPerPartition"),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            include_headers=options.flag("includeHeaders", False),
            offset_retries=options.count_or("fetchOffset.numRetries", 3, minimum=0),
            offset_retry_interval_ms=options.count_or("fetchOffset.retryIntervalMs", 1000, minimum=0),
        )

    def for_batch(self) -> tuple[Position, Position]:
        """Returns where a batch query starts and ends. Refuses options that would read nothing or never end."""
        starting, ending = self.starting or Earliest(), self.ending or Latest()
        if isinstance(starting, Latest) or _names(starting, LATEST):
            raise OptionError("startingOffsets", "a batch query cannot start at the latest offset (-1)")
        if isinstance(ending, Earliest) or _names(ending, EARLIEST):
            raise OptionError("endingOffsets", "a batch query cannot end at the earliest offset (-2)")
        for name, value in STREAM_ONLY.items():
            if getattr(self, value) is not None:
                raise OptionError(name, "limits the batches of a stream; this is a batch query")
        return starting, ending

    def for_stream(self) -> Position:
        """Returns where a new streaming query starts. Refuses an end, because a stream has none."""
        if self.ending is not None:
            raise OptionError("endingOffsets", "a streaming query has no end; use trigger(availableNow=True)")
        return self.starting or Latest()


# As long as Kafka's brokers allow by default: a driver must commit a batch within it, also after a restart.
TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a writer."""

    topic: str | None
    client: BlockingConfig
    acks: int
    codec: Codec
    compression_level: int | None
    batch_bytes: int
    guarantee: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    identified: tuple[str, int] | None = None
    """For a batch write: the values of `txnAppId` and `txnVersion`."""
    missing_topic_s: float = math.inf
    """How long a task waits for a topic that does not exist, as brokers say. No wait is longer than
    `delivery.timeout.ms`.
    """

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Checks the options of a writer. Raises `OptionError` with the first that is wrong."""
        options = _Options(given, SINK_OPTIONS)
        of_kafka = options.of_kafka()
        # The client's own check of this key expects its transactional id beside it.
        of_kafka.pop(_TRANSACTION_TIMEOUT, None)
        settings = kafka_settings(of_kafka, SINK_KEYS)
        return cls(
            guarantee=options.one_of("deliveryGuarantee", (EXACTLY_ONCE, AT_LEAST_ONCE)),
            transaction_timeout_ms=options.count_or(f"kafka.{_TRANSACTION_TIMEOUT}", TRANSACTION_TIMEOUT_MS),
            identified=_identified(options),
            topic=options.text("topic"),
            client=_config(settings, settings.delivery_timeout_ms),
            acks=settings.acks,
            codec=Codec(settings.compression_type),
            compression_level=settings.level,
            batch_bytes=settings.batch_size,
        )

    def for_stream(self) -> bool:
        """Whether each batch is written exactly once."""
        if self.identified is not None:
            raise OptionError("txnAppId", "is for batch writes; a stream's batches have a name already")
        return self._checked(self.guarantee != AT_LEAST_ONCE)

    def for_batch(self) -> bool:
        """Whether a repeated write with the same application and version is done once."""
        if self.guarantee == EXACTLY_ONCE and self.identified is None:
            raise OptionError(
                "deliveryGuarantee",
                "a batch write is exactly once only under a name: give txnAppId and txnVersion, by which a write "
                "that is repeated is recognised",
            )
        return self._checked(self.identified is not None)

    def _checked(self, exactly_once: bool) -> bool:
        if exactly_once and self.acks != ALL_REPLICAS:
            raise OptionError(
                "kafka.acks", "exactly once needs acks=all; for less, set deliveryGuarantee=at_least_once"
            )
        return exactly_once


# A new topic or partition is noticed after this at the latest, unless kafka.metadata.max.age.ms says otherwise.
TOPICS_GOOD_FOR_S = 5.0

SOURCE_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupId",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
SINK_OPTIONS = ("topic", "deliveryGuarantee", "txnAppId", "txnVersion")
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
STREAM_ONLY = {
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "minOffsetsPerTrigger": "min_offsets_per_trigger",
    "maxTriggerDelay": "max_trigger_delay_ms",
}

# Spark passes its own options of a streaming query to the sink, too. Spark itself applies them.
SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)

# Spark gives every table these properties.
_OF_TABLES = frozenset({"provider", "owner"})
_NO_OPTIONS = (
    "is required: host:port of one or more brokers. Spark keeps the options of CREATE TABLE from Python sources: write "
    "CREATE TEMPORARY VIEW name USING felice OPTIONS (...) to read a topic, INSERT INTO name WITH (...) to write one"
)

_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_MS = {
    None: 1.0,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class _Options:
    """Options as Spark passes them: names in any case, values as text."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        self._values = {name.lower(): value for name, value in given.items()}
        if not self._values:
            raise OptionError("kafka.bootstrap.servers", _NO_OPTIONS)
        if self._values.keys() >= _OF_TABLES:
            self._values = _of_table(self._values, names)
        for name in self._values:
            if name not in names and name not in SPARKS_OWN and not name.startswith("kafka."):
                raise OptionError(name, _unknown(name, names))

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is not None and not value.strip():
            raise OptionError(name, "is empty")
        return value

    def count(self, name: str, minimum: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        number = _integer(name, value)
        if number < minimum:
            raise OptionError(name, f"expected a whole number of at least {minimum}, got {number}")
        return number

    def count_or(self, name: str, default: int, minimum: int = 1) -> int:
        number = self.count(name, minimum)
        return default if number is None else number

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        return self.one_of(name, choices) or default

    def one_of(self, name: str, choices: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and (value := value.strip().lower()) not in choices:
            raise OptionError(name, f"expected one of {', '.join(choices)}, got {value!r}")
        return value

    def duration_ms(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        value = value.strip().lower()
        match = _DURATION.fullmatch(value)
        if match is None:
            raise OptionError(name, f"expected a duration such as 15m, 30s or 500ms, got {value!r}")
        return int(int(match[1]) * _UNIT_MS[match[2]])

    def of_kafka(self) -> dict[str, str]:
        prefix = "kafka."
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix)}


def _of_table(given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The options among what Spark passes for CREATE TABLE: the table's properties, and its OPTIONS as `option.NAME`.

    Properties that are no options, such as a comment, are the table's own.
    """
    if "location" in given:
        raise OptionError("location", _unknown("path", names))
    own = {name: value for name, value in given.items() if name in names or name.startswith("kafka.")}
    prefix = "option."
    return own | {
        name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)
    }


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name == "path":
        return "topics have no path; name them with subscribe (to read) or topic (to write)"
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"unknown; did you mean {names[near[0]]}?"
    return f"unknown; known are {', '.join(names.values())} and kafka.*"


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise OptionError(name, f"expected a whole number, got {value!r}") from None


def _subscription(options: _Options) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name) is not None]
    if len(given) != 1:
        came = " and ".join(given) or "none"
        raise OptionError(
            "subscribe", f"give exactly one of subscribe, subscribePattern and assign; got {came}"
        )
    text = options.text(given[0]) or ""
    if given[0] == "subscribe":
        return Subscription(topics=_topics(text))
    if given[0] == "subscribePattern":
        return Subscription(pattern=_pattern(text))
    return Subscription(partitions=_assigned(text))


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError("subscribe", f"expected topics separated by commas, got {text!r}")
    return topics


def _pattern(text: str) -> str:
    try:
        own_pattern(text)
    except PatternError as error:
        raise OptionError("subscribePattern", f"not a regular expression: {error}") from error
    return text.strip()


def _position(options: _Options, end: str) -> Position | None:
    """`end` is "starting" or "ending".

    As in Spark, one timestamp for all partitions takes precedence over timestamps for each, and these over offsets.
    """
    if (text := options.text(f"{end}Timestamp")) is not None:
        return AtTimestamp(_integer(f"{end}Timestamp", text))
    if (text := options.text(f"{end}OffsetsByTimestamp")) is not None:
        return AtTimestamps(_offsets(f"{end}OffsetsByTimestamp", text))
    if (text := options.text(f"{end}Offsets")) is None:
        return None
    if text.strip().lower() in ("earliest", "latest"):
        return Earliest() if text.strip().lower() == "earliest" else Latest()
    return AtOffsets(_offsets(f"{end}Offsets", text))


def _offsets(name: str, text: str) -> Offsets:
    try:
        return parse_offsets(text)
    except OffsetsError as error:
        raise OptionError(name, str(error)) from error


def _assigned(text: str) -> tuple[Partition, ...]:
    try:
        return parse_partitions(text)
    except OffsetsError as error:
        raise OptionError("assign", str(error)) from error


def _identified(options: _Options) -> tuple[str, int] | None:
    """The names are Delta Lake's: with both options, a batch write of one version is done once."""
    application, version = options.text("txnAppId"), options.count("txnVersion", minimum=0)
    if (application is None) != (version is None):
        raise OptionError("txnAppId", "goes together with txnVersion")
    if application is None or version is None:
        return None
    if options.one_of("deliveryGuarantee", (EXACTLY_ONCE, AT_LEAST_ONCE)) == AT_LEAST_ONCE:
        raise OptionError("txnAppId", "asks for exactly once; leave out deliveryGuarantee=at_least_once")
    return application, version


def _names(position: Position, offset: int) -> bool:
    return isinstance(position, AtOffsets) and offset in position.offsets.values()


def _config(settings: ClientSettings, retry_timeout_ms: int) -> BlockingConfig:
    return BlockingConfig(
        bootstrap_servers=settings.bootstrap_servers,
        client_id=settings.client_id,
        connect_timeout_ms=settings.socket_connection_setup_timeout_ms,
        request_timeout_ms=settings.request_timeout_ms,
        retry_timeout_ms=retry_timeout_ms,
        security=settings.tls_and_sasl,
    )


def _reader(options: _Options) -> tuple[BlockingConfig, float]:
    """Returns how readers connect, and for how many seconds a list of topics is valid."""
    settings = kafka_settings(options.of_kafka(), SOURCE_KEYS)
    given = settings.explicit
    named = [name for name in ("groupId", "groupIdPrefix", "kafka.group.id") if options.text(name)]
    if len(named) > 1:
        raise OptionError(named[0], f"{named[1]} names the group already; give one of the two")
    # A reader joins no group, so its group's name becomes the client id that brokers see and log.
    group = options.text("groupId") or options.text("kafka.group.id")
    default = group or f"{options.text('groupIdPrefix') or GROUP_PREFIX}-source"
    config = _config(settings, options.count_or("kafkaConsumer.pollTimeoutMs", 120_000))
    config = replace(
        config,
        client_id=(settings.client_id if "client.id" in given else "") or default,
        client_rack=settings.client_rack,
        fetch_max_wait_ms=settings.fetch_wait_max_ms,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        fetch_max_bytes=settings.fetch_max_bytes if "fetch.max.bytes" in given else config.fetch_max_bytes,
        partition_max_bytes=(
            settings.max_partition_fetch_bytes
            if "max.partition.fetch.bytes" in given
            else config.partition_max_bytes
        ),
        # The default is that of Java's clients, and so of Spark's own source.
        isolation_level=settings.isolation_level if "isolation.level" in given else READ_UNCOMMITTED,
    )
    age_s = config.metadata_max_age_ms / 1000 if "metadata.max.age.ms" in given else TOPICS_GOOD_FOR_S
    return config, age_s
