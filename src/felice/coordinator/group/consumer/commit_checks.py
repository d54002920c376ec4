"""Which offset commits and reads a consumer group allows (KIP-848, KIP-1251).

Keeps true:  G1: a commit with an epoch is accepted only from a member. With its current epoch, a member may commit for
             any partition; with an older epoch, only for partitions that it has had since that epoch. A commit without
             an epoch is accepted only while the group has no members.
"""

from __future__ import annotations

from uuid import UUID

from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.kinds import CommitCheck
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_commit import OffsetCommitRequest
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_EPOCHS_SINCE = 9  # of OffsetCommit


def check_commit(group: ConsumerGroup, request: OffsetCommitRequest, version: int) -> CommitCheck:
    """The check of an OffsetCommit. After STALE_MEMBER_EPOCH a member repeats the request with its current epoch."""
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    return _check(group, member_id, request.group_instance_id, epoch, version, ErrorCode.STALE_MEMBER_EPOCH)


def check_transactional_commit(group: ConsumerGroup, request: TxnOffsetCommitRequest) -> CommitCheck:
    """The check of a TxnOffsetCommit. A wrong epoch gets ILLEGAL_GENERATION.

    A request without member id and epoch is accepted, as in Kafka.
    """
    epoch, member_id = request.generation_id, request.member_id
    if epoch < 0 and (not group.members or not member_id):
        return ErrorCode.NONE
    return _check(
        group, member_id, request.group_instance_id, epoch, _EPOCHS_SINCE, ErrorCode.ILLEGAL_GENERATION
    )


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """The check of an OffsetFetch from version 9 on: if the request has a member id, its epoch must be current."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = None if member_id is None else group.members.get(member_id)
    if member_id is None or member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == group.current(member_id).epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _check(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    stale: ErrorCode,
) -> CommitCheck:
    subscription = group.members.get(member_id)
    if subscription is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance_id is not None and group.static_members.get(instance_id) != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    is_classic = subscription.classic is not None
    if version < _EPOCHS_SINCE and not is_classic:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.current(member_id)
    wrong = ErrorCode.ILLEGAL_GENERATION if is_classic else stale
    if epoch > current.epoch:
        return wrong
    if epoch == current.epoch:
        return ErrorCode.NONE

    def check_partition(topic_id: UUID, partition: int) -> ErrorCode:
        received = current.assignment_epoch(topic_id, partition)
        return ErrorCode.NONE if received is not None and received <= epoch else wrong

    return check_partition
