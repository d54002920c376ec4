"""The values of a consumer group: its records in `__consumer_offsets` as domain values, immutable.

Records of types 3, 5, 6, 7, 8 and 16 (KIP-848). A record without a value removes what its key names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TypeAlias
from weakref import WeakValueDictionary

from felice.coordinator.group.modern.reconciliation import Current, Partitions
from felice.dataclass import dataclass

_SHARED: WeakValueDictionary[frozenset[str], frozenset[str]] = WeakValueDictionary()


def shared_topics(names: Iterable[str]) -> frozenset[str]:
    """The names as a set. Members with the same topics share one set, because a group may have 1,000 members, each with
    10,000 names.
    """
    topics = frozenset(names)
    return _SHARED.setdefault(topics, topics)


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """The session timeout and the protocols, as (name, metadata), of the JoinGroup of a classic member."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member without its partitions. `classic` is set if the member uses the classic protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    expression: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocols | None = None


@dataclass(frozen=True, slots=True)
class Epoch:
    """The group epoch, and the metadata hash of the group's topics."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The epoch of the target assignment, and the wall time when the assignor finished."""

    epoch: int
    assigned_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """The topics that a regular expression matched, with the version of the topics and the wall time of the match."""

    topics: frozenset[str] = field(default_factory=frozenset)
    version: int = 0
    resolved_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """Type 3. Without a value it deletes the group."""

    group_id: str
    value: Epoch | None


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """Type 4, which Kafka brokers before 4.1 wrote. Felice writes only its tombstone."""

    group_id: str
    value: None = None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Type 5."""

    group_id: str
    member_id: str
    value: Subscription | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """Type 6."""

    group_id: str
    value: TargetEpoch | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """Type 7."""

    group_id: str
    member_id: str
    value: Partitions | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """Type 8."""

    group_id: str
    member_id: str
    value: Current | None


@dataclass(frozen=True, slots=True)
class ExpressionRecord:
    """Type 16."""

    group_id: str
    expression: str
    value: ResolvedExpression | None


ConsumerRecord: TypeAlias = (
    EpochRecord
    | MetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | ExpressionRecord
)
CONSUMER_RECORDS = (
    EpochRecord,
    MetadataRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
    CurrentRecord,
    ExpressionRecord,
)
CONSUMER_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
"""The types of their keys."""
