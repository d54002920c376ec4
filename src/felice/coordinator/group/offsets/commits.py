"""OffsetCommit, OffsetFetch, OffsetDelete and expiry: the records of commits, and how long they are kept.

Keeps true:  an offset expires only while no member reads its topic, and never during an open transaction.
Leaves:      which commits each kind of group allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from felice.coordinator.group.offsets.store import OffsetStore
from felice.coordinator.group.records import CommittedOffset, OffsetRecord
from felice.coordinator.group.turn import Turn
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponsePartition,
)
from felice.protocol.messages.offset_fetch import OffsetFetchResponsePartitions
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponsePartition,
)
from felice.protocol.primitives import ZERO_UUID

NO_OFFSET = -1
_DEFAULT_RETENTION = -1
# The largest value of the record's field: a client may ask for any number of milliseconds.
_LATEST_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Commit:
    """One offset of a request whose topic and partition exist, and its row in the response."""

    topic: str
    asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
    row: OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition
    topic_id: UUID = ZERO_UUID


# Committing


def expiry_ms(request: OffsetCommitRequest, turn: Turn) -> int:
    """The wall time at which the request's offsets expire; -1 if `offsets.retention.minutes` decides."""
    if request.retention_time_ms == _DEFAULT_RETENTION:
        return -1
    return min(max(0, turn.now.wall_ms + request.retention_time_ms), _LATEST_MS)


def write(group_id: str, commits: list[Commit], turn: Turn, expire_ms: int = -1) -> None:
    """Adds a record for each valid commit to the turn's outcome, and an error to the row of each invalid commit.

    `expire_ms` is a result of `expiry_ms`.
    """
    wall_ms = turn.now.wall_ms
    for wanted in commits:
        metadata = wanted.asked.committed_metadata or ""
        if len(metadata) > turn.settings.offset_metadata_max_size:
            wanted.row.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        committed = CommittedOffset(
            offset=wanted.asked.committed_offset,
            leader_epoch=wanted.asked.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp_ms=wall_ms,
            expire_timestamp_ms=expire_ms,
            topic_id=wanted.topic_id,
        )
        turn.outcome.records.append(
            OffsetRecord(group_id, wanted.topic, wanted.asked.partition_index, committed)
        )


# Fetching


def fetch(
    offsets: OffsetStore,
    group_id: str,
    topic: str,
    partitions: Iterable[int],
    require_stable: bool,
    topic_id: UUID = ZERO_UUID,
) -> list[OffsetFetchResponsePartitions]:
    """Rows for these partitions; without a commit the offset is -1, without an error.

    A commit for a topic of the same name and another id does not count: that topic was deleted, and the broker
    stopped before it removed the topic's offsets.
    """
    return [
        _fetch_one(offsets, group_id, topic, partition, require_stable, topic_id) for partition in partitions
    ]


def _fetch_one(
    offsets: OffsetStore, group_id: str, topic: str, partition: int, require_stable: bool, topic_id: UUID
) -> OffsetFetchResponsePartitions:
    if require_stable and offsets.is_pending(group_id, topic, partition):
        return no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.get(group_id, topic, partition)
    if committed is None or not committed.is_of(topic_id):
        return no_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def no_offset(partition: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    """The row of a partition without a committed offset, or with an error."""
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=error
    )


# Removing


def removals(offsets: OffsetStore, group_id: str) -> list[OffsetRecord]:
    """The records that remove all commits of the group, also those of open transactions."""
    return [OffsetRecord(group_id, topic, partition, None) for topic, partition in offsets.all_of(group_id)]


def topic_removals(offsets: OffsetStore, topics: Iterable[str]) -> list[OffsetRecord]:
    """The records that delete all offsets of the topics, in every group."""
    return [
        OffsetRecord(group_id, topic, partition, None)
        for topic in topics
        for group_id, partition in offsets.of_topic(topic)
    ]


class Group(Protocol):
    """The properties that the expiry of offsets needs of a group of any kind."""

    group_id: str

    def may_read(self, topic: str) -> bool:
        """Whether members of the group read, or may read, the topic. The topic's offsets are then kept."""

    @property
    def empty_since_ms(self) -> int | None:
        """The wall time at which the group lost its last member; None if the group has members, or never had any."""


def expired(group: Group, offsets: OffsetStore, turn: Turn) -> list[OffsetRecord]:
    """The records that remove the group's expired offsets (`offsets.retention.minutes`, or the commit's own time)."""
    empty_since_ms = group.empty_since_ms
    return [
        OffsetRecord(group.group_id, topic, partition, None)
        for topic, partitions in offsets.topics(group.group_id).items()
        if not group.may_read(topic)
        for partition, committed in partitions.items()
        if _is_over(committed, empty_since_ms, turn)
        and not offsets.is_pending(group.group_id, topic, partition)
    ]


def _is_over(committed: CommittedOffset, empty_since_ms: int | None, turn: Turn) -> bool:
    if committed.expire_timestamp_ms != -1:
        return turn.now.wall_ms >= committed.expire_timestamp_ms
    # KIP-211: a group's offsets age together, from the moment when it lost its last member.
    since_ms = committed.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
    return turn.now.wall_ms - since_ms >= turn.settings.offsets_retention_ms
