"""SyncGroup: the leader sends the assignment, every member receives its part.

Keeps true:  an assignment is in the log before any member receives it, so the next coordinator knows the same one.
             A member without a part in the leader's assignment gets an empty one.
"""

from __future__ import annotations

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.rebalance import (
    answer_sync,
    prepare_or_complete,
    propagate_error,
    start_session,
    storing_error,
    synced_response,
)
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.records import Record
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import NEVER_MS, Instant, Outcome
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(
    group: ClassicGroup, request: SyncGroupRequest, caller: Caller[SyncGroupResponse], turn: Turn
) -> None:
    """Answers a SyncGroup, or parks it until the leader's assignment is in the log."""
    error = _check(group, request)
    if error != ErrorCode.NONE:
        turn.outcome.reply(caller.waiter, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    group.pending_syncs.pop(request.member_id, None)
    if not group.pending_syncs:
        group.sync_deadline_ms = NEVER_MS
    if group.state is GroupState.STABLE:
        start_session(group, member, turn)
        turn.outcome.reply(caller.waiter, synced_response(group, member))
        return
    displaced, member.syncing = member.syncing, caller.waiter
    if displaced is not None:
        response = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        turn.outcome.reply(displaced, response)
    if request.member_id == group.leader_id:
        _store_assignment(group, request, turn)


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = group.check_generation(request.member_id, request.group_instance_id, request.generation_id)
    if error != ErrorCode.NONE:
        return error
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(named: str | None, known: str | None) -> bool:
    """Whether the two differ; a client before version 5 sends None, which never differs."""
    return named is not None and known is not None and named != known


def _store_assignment(group: ClassicGroup, request: SyncGroupRequest, turn: Turn) -> None:
    brought = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
    assignments = {member_id: brought.get(member_id, b"") for member_id in group.members}
    turn.outcome.records.append(group.record(assignments))
    turn.outcome.after_write.append(AssignmentStored(turn.settings, group, group.generation, assignments))


@dataclass(frozen=True, slots=True)
class AssignmentStored:
    """Continues when the leader's assignment is committed (the group is Stable) or refused (it rebalances)."""

    settings: GroupSettings
    group: ClassicGroup
    generation: int
    assignments: dict[str, bytes]

    def on_committed(self, now: Instant) -> Outcome[Record]:
        """Every member gets its part of the assignment; the group is stable."""
        turn = Turn(self.settings, now)
        if self._still_awaited():
            for member in self.group.members.values():
                member.assignment = self.assignments.get(member.member_id, b"")
                answer_sync(self.group, member, ErrorCode.NONE, turn)
            self.group.transition(GroupState.STABLE, now)
        return turn.outcome

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Record]:
        """Every waiting SyncGroup gets the error, and the group rebalances again."""
        turn = Turn(self.settings, now)
        if self._still_awaited():
            propagate_error(self.group, storing_error(error), turn)
            prepare_or_complete(self.group, turn)
        return turn.outcome

    def _still_awaited(self) -> bool:
        """False if a member joined or left while the record was being written."""
        return (
            self.group.state is GroupState.COMPLETING_REBALANCE and self.group.generation == self.generation
        )
