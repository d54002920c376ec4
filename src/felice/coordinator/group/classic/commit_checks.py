"""Which offset commits a group of the classic protocol allows.

Keeps true:  G1: a commit with a generation is accepted only from a member, in the current generation. A commit without
             a generation is accepted only while the group has no members: it comes from an administrator, or from a
             consumer that assigns its partitions itself.
"""

from __future__ import annotations

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.states import GroupState
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_commit import OffsetCommitRequest
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


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
