"""Arguments and results of administrative calls: new topics, configs, group descriptions. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import total_ordering

from felice.client.admin.enumerations import (
    AclOperation,
    AlterConfigOpType,
    ConfigSource,
    ConsumerGroupState,
    ConsumerGroupType,
    ResourceType,
)
from felice.client.arguments import check_fields, expect, takes_lists
from felice.client.error import KafkaError
from felice.client.model import BrokerMetadata, TopicPartition, Uuid
from felice.dataclass import dataclass


@total_ordering
@dataclass(slots=True)
class NewTopic:
    """A topic to create; -1 lets the broker choose a number.

    `replica_assignment` lists the brokers of each partition, the preferred leader first, in place of both numbers.
    """

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: Sequence[Sequence[int]] = field(default_factory=list)
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)

    def __hash__(self) -> int:
        return hash(self.topic)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, NewTopic):
            return NotImplemented
        return (self.topic, self.num_partitions) < (other.topic, other.num_partitions)

    def __repr__(self) -> str:
        return f"NewTopic(topic={self.topic},num_partitions={self.num_partitions})"


@total_ordering
@dataclass(slots=True)
class NewPartitions:
    """A topic that gets `new_total_count` partitions. `replica_assignment` lists the brokers of each new partition."""

    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_fields(self)

    def __hash__(self) -> int:
        return hash(self.topic)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, NewPartitions):
            return NotImplemented
        return (self.topic, self.new_total_count) < (other.topic, other.new_total_count)

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


@dataclass(slots=True)
class ConfigEntry:
    """A config as a broker describes it, or one change to make."""

    name: str
    value: str | None
    source: ConfigSource | int = ConfigSource.UNKNOWN_CONFIG
    is_read_only: bool = False
    is_default: bool = False
    is_sensitive: bool = False
    is_synonym: bool = False
    synonyms: dict[str, ConfigEntry] = field(default_factory=dict)
    incremental_operation: AlterConfigOpType | None = None
    all_synonyms: tuple[ConfigEntry, ...] = ()
    """In order of precedence. `synonyms` has one for each name only, as in confluent-kafka."""

    def __hash__(self) -> int:
        return hash((self.name, self.value))

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'

    def __repr__(self) -> str:
        return f"ConfigEntry({self})"


@total_ordering
@takes_lists
class ConfigResource:
    """A topic, broker or group with configs. Equality compares type and name."""

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: KafkaError | None = None,
        incremental_configs: Sequence[ConfigEntry] | None = None,
    ) -> None:
        self.restype = ResourceType.chosen(restype)
        # An empty broker name means the defaults of all brokers.
        if not name and self.restype is not ResourceType.BROKER:
            raise ValueError("a config resource needs a name")
        self.name = str(name)
        self.set_config_dict = dict(set_config or {})
        self.configs = described_configs
        self.error = error
        self.incremental_configs = list(incremental_configs or [])

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Set a value for `alter_configs`; without `overwrite`, an earlier value stays."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change for `incremental_alter_configs`: an entry with an `incremental_operation`."""
        self.incremental_configs.append(config_entry)

    @property
    def key(self) -> tuple[ResourceType, str]:
        """Type and name, which identify the resource."""
        return self.restype, self.name

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, ConfigResource) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.key < other.key if isinstance(other, ConfigResource) else NotImplemented

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def __repr__(self) -> str:
        error = "" if self.error is None else f",{self.error!r}"
        return f"ConfigResource({self.restype},{self.name}{error})"


class OffsetSpec:
    """Selects an offset: `earliest()`, `latest()`, `max_timestamp()` or `for_timestamp(ms)`."""

    __slots__ = ("_value",)

    def __init__(self, index: int) -> None:
        expect("index", index, int)
        self._value = index

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, OffsetSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The log start offset."""
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The end of the log: the offset after the last record."""
        return cls(-1)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """The offset of the record with the largest timestamp."""
        return cls(-3)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """The offset of the first record with this timestamp (in milliseconds) or a later one."""
        return cls(timestamp)


@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """An offset (-1 if there is none), its record's timestamp in ms (-1 if not requested), and its leader epoch (None
    if there is no record or the broker does not say)."""

    offset: int
    timestamp: int
    leader_epoch: int | None

    def __post_init__(self) -> None:
        if self.leader_epoch is not None and self.leader_epoch < 0:
            object.__setattr__(self, "leader_epoch", None)


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The log start offset of the partition after the deletion."""

    low_watermark: int


class UpgradeType(Enum):
    """How a feature's level may change: up; down without loss; down even with loss of metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A new finalized level of a feature; 0 disables the feature."""

    feature: str
    level: int
    kind: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """By feature, the lowest and highest level that all brokers support, and the finalized levels of the cluster.

    The epoch counts changes; -1 means that no level was ever finalized.
    """

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, int]
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """The reassignment of one partition: all replicas, those being added, and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicaInLogDir:
    """A replica in a log directory. `is_future`: the replica is being moved to this directory (KIP-113)."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker; -1 means an unknown number of bytes."""

    path: str
    error: KafkaError | None
    replicas: Sequence[ReplicaInLogDir]
    total_bytes: int
    usable_bytes: int
    stray_logs: Sequence[str] = ()
    """Directories set aside in it that hold records. Felice's brokers report them, Kafka's do not."""


@dataclass(slots=True)
class ConsumerGroupTopicPartitions:
    """A group and partitions; None means all partitions with committed offsets."""

    group_id: str
    topic_partitions: list[TopicPartition] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __hash__(self) -> int:
        return hash(self.group_id)


@dataclass(slots=True)
class ConsumerGroupListing:
    """A group in a list of groups. `is_simple_consumer_group`: it has committed offsets but no members."""

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState | None = None
    type: ConsumerGroupType | None = None
    protocol_type: str = ""


@dataclass(slots=True)
class ListConsumerGroupsResult:
    """The groups found, and an exception for each broker that could not be asked."""

    valid: list[ConsumerGroupListing] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address; `rack` is None if it has no rack."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def id_string(self) -> str:
        """The id as a string."""
        return str(self.id)

    def __str__(self) -> str:
        rack = f" (Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port}{rack}"


@dataclass(slots=True)
class MemberAssignment:
    """The partitions assigned to a member of a group."""

    topic_partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class MemberDescription:
    """A member of a group.

    `target_assignment`, `member_epoch` and `is_upgraded` belong to groups of KIP-848; they are None for classic groups.
    `is_upgraded` is False for a member that uses the classic protocol. confluent_kafka lacks it and the epochs.
    """

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None
    member_epoch: int | None = None
    is_upgraded: bool | None = None


@dataclass(slots=True)
class ConsumerGroupDescription:
    """A group with its members. `authorized_operations` is None unless requested.

    The epochs are those of groups of KIP-848, None for classic groups. confluent_kafka does not have them.
    """

    group_id: str
    is_simple_consumer_group: bool
    members: list[MemberDescription]
    partition_assignor: str
    state: ConsumerGroupState
    coordinator: Node
    authorized_operations: list[AclOperation] | None = None
    type: ConsumerGroupType = ConsumerGroupType.UNKNOWN
    protocol_type: str = ""
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None


@dataclass(slots=True)
class GroupMember:
    """A member of a group from `AdminClient.list_groups`: metadata and assignment are undecoded bytes."""

    id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    metadata: bytes | None = None
    assignment: bytes | None = None


@dataclass(slots=True)
class GroupMetadata:
    """A group from `AdminClient.list_groups`. `state` is the protocol's name of the state."""

    broker: BrokerMetadata | None = None
    id: str | None = None
    error: KafkaError | None = None
    state: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    members: list[GroupMember] = field(default_factory=list)

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"GroupMetadata({self.id}{error})"

    def __str__(self) -> str:
        return str(self.id)


class TransactionState(Enum):
    """The state of a transaction, by its name in the protocol."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, name: str) -> TransactionState:
        """Return the state with this protocol name."""
        return next((state for state in cls if state.value == name), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id with its producer id and the state of its transaction."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction as its coordinator reports it. Between transactions, `start_time_ms` is None and there are no
    partitions."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    topic_partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as one partition knows it. The coordinator epoch is that of the last marker, None before the first.
    `current_transaction_start_offset` is None if the producer has no open transaction in the partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """A producer's transaction in one partition, to be aborted."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The new producer id and epoch of a fenced id. No producer uses them; older epochs are refused."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ApiVersionRange:
    """A broker's versions of one API. For an API that this client does not know, `name` and `usable` are None.

    `usable` is the version that this client would use, or None without a common version.
    """

    key: int
    name: str | None
    min_version: int
    max_version: int
    usable: int | None


@takes_lists
class TopicCollection:
    """Topic names, for `describe_topics`."""

    def __init__(self, topic_names: Sequence[str]) -> None:
        self.topic_names = list(topic_names)


@dataclass(slots=True)
class TopicPartitionInfo:
    """A partition with its leader (None if there is none), its replicas and its in-sync replicas."""

    id: int
    leader: Node | None
    replicas: list[Node]
    isr: list[Node]


@dataclass(slots=True)
class TopicDescription:
    """A topic with its partitions. `authorized_operations` is None unless requested."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    authorized_operations: list[AclOperation] | None = None


@dataclass(slots=True)
class DescribeClusterResult:
    """The brokers of a cluster and its controller. `authorized_operations` is None unless requested."""

    controller: Node | None
    nodes: list[Node]
    cluster_id: str | None = None
    authorized_operations: list[AclOperation] | None = None
