"""OffsetCommit, OffsetFetch, OffsetDelete and expiry: which commits are allowed, and how long they are kept.

Keeps true:  G1: with a generation, only a member of the current one commits. Without a generation, only while the
             group has no members: such commits come from an administrator, or from a consumer that assigns its
             partitions itself.
             An offset expires only while no member reads its topic, and never during an open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from felice.coordinator.group.classic_group import NO_STATE_TIMESTAMP, ClassicGroup
from felice.coordinator.group.offsets import OffsetStore
from felice.coordinator.group.rebalance import start_session
from felice.coordinator.group.records import CommittedOffset, OffsetRecord
from felice.coordinator.group.states import GroupState
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
    TxnOffsetCommitRequest,
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


def check_commit(group: ClassicGroup, request: OffsetCommitRequest) -> ErrorCode:
    """NONE if the group's state and the sender allow the commit (G1), otherwise the error for every partition."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_generation(member_id, request.group_instance_id, generation)
    if error != ErrorCode.NONE:
        return error
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_transactional_commit(group: ClassicGroup, request: TxnOffsetCommitRequest) -> ErrorCode:
    """KIP-447: with a generation or a member id, checked as any commit; but a rebalance under way is allowed.

    Producers older than KIP-447 send neither, and nothing is checked.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    generation, member_id = request.generation_id, request.member_id
    if generation < 0 and (group.state is GroupState.EMPTY or _names_nobody(request)):
        return ErrorCode.NONE
    error = group.check_member(member_id, request.group_instance_id)
    if error != ErrorCode.NONE:
        return error
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def _names_nobody(request: TxnOffsetCommitRequest) -> bool:
    return not request.member_id and request.group_instance_id is None


def commit(group: ClassicGroup, request: OffsetCommitRequest, commits: list[Commit], turn: Turn) -> None:
    """Fills the rows of a request that was checked, and writes the valid ones."""
    member = group.members.get(request.member_id)
    if member is not None:
        start_session(group, member, turn)
    expire_ms = -1
    if request.retention_time_ms != _DEFAULT_RETENTION:
        expire_ms = min(max(0, turn.now.wall_ms + request.retention_time_ms), _LATEST_MS)
    write(group, commits, turn, expire_ms)


def write(group: ClassicGroup, commits: list[Commit], turn: Turn, expire_ms: int = -1) -> None:
    """Adds a record for each valid commit to the turn's outcome, and an error to the row of each other one.

    `expire_ms` is the wall time at which the offsets expire; -1 leaves that to `offsets.retention.minutes`.
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
            OffsetRecord(group.group_id, wanted.topic, wanted.asked.partition_index, committed)
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


def expired(group: ClassicGroup, offsets: OffsetStore, turn: Turn) -> list[OffsetRecord]:
    """The records that remove the group's expired offsets (`offsets.retention.minutes`, or the commit's own time)."""
    if not _may_expire(group):
        return []
    return [
        OffsetRecord(group.group_id, topic, partition, None)
        for topic, partitions in offsets.topics(group.group_id).items()
        if group.state is GroupState.EMPTY or not group.is_subscribed_to(topic)
        for partition, committed in partitions.items()
        if _is_over(group, committed, turn) and not offsets.is_pending(group.group_id, topic, partition)
    ]


def _may_expire(group: ClassicGroup) -> bool:
    if group.state is GroupState.EMPTY:
        return True
    return group.is_consumer_type and group.state is GroupState.STABLE and group.subscribed_topics is not None


def _is_over(group: ClassicGroup, committed: CommittedOffset, turn: Turn) -> bool:
    if committed.expire_timestamp_ms != -1:
        return turn.now.wall_ms >= committed.expire_timestamp_ms
    since_ms = committed.commit_timestamp_ms
    if (
        group.protocol_type is not None
        and group.state is GroupState.EMPTY
        and group.state_timestamp_ms != NO_STATE_TIMESTAMP
    ):
        # KIP-211: a group's offsets age together, from the moment when it lost its last member.
        since_ms = group.state_timestamp_ms
    return turn.now.wall_ms - since_ms >= turn.settings.offsets_retention_ms
