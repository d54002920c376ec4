"""One partition of `__consumer_offsets`: its groups and their offsets, as a pure state machine.

Keeps true:  everything that a restart needs is in the log: each stable generation with its members, each commit.
             A group exists from its first join or commit until its tombstone.
Finds the group and applies the rules that concern no single group; the rest is in `join`, `sync`, `membership`,
`rebalance`, `commits` and `listing`.
"""

from __future__ import annotations

from collections.abc import Iterable

from felice.coordinator.group.alarms import Alarms
from felice.coordinator.group.classic import commit_checks, listing, membership, rebalance
from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.join import join
from felice.coordinator.group.classic.rebalance import drop_member, join_error
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.classic.sync import sync
from felice.coordinator.group.offsets import commits as offset_rules
from felice.coordinator.group.offsets.commits import Commit
from felice.coordinator.group.offsets.store import OffsetStore, undo_nothing
from felice.coordinator.group.records import GroupRecord, OffsetRecord, Record
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.turn import Caller, Turn
from felice.coordinator.shard import (
    NEVER_MS,
    NO_PRODUCER_ID,
    Instant,
    Outcome,
    Reply,
    ReplyAfterWrite,
    Sendable,
    Undo,
)
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import DeletableGroupResult
from felice.protocol.messages.describe_groups import DescribedGroup
from felice.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from felice.protocol.messages.list_groups import ListedGroup
from felice.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
)
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_GROUP_ID_NOT_FOUND_SINCE = 9  # of OffsetCommit


class GroupShard:
    """The state machine of one partition of `__consumer_offsets`. Implements `coordinator.shard.Shard`."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._alarms = Alarms()
        self._loaded = False
        self._next_expiry_ms = NEVER_MS

    # The log

    def replay(self, record: Record, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Applies a record. A group's record restores the group while the log is loaded; later it changes nothing."""
        if isinstance(record, OffsetRecord):
            undo = self.offsets.apply(record, producer_id)
            if record.committed is None or record.group_id in self.groups:
                return undo
            return self._create_simple(record.group_id, undo)
        if record.value is None:
            return self._remove(record.group_id)
        if not self._loaded:
            self.groups[record.group_id] = ClassicGroup.restore(record.group_id, record.value, self._alarms)
        # After loading, the record of a live group only repeats its current state.
        return undo_nothing

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A transaction ended: its commits count from now on, or are dropped."""
        for record in self.offsets.end_transaction(producer_id, committed):
            if record.group_id not in self.groups:
                self._create_simple(record.group_id, undo_nothing)

    def on_loaded(self, now: Instant) -> Outcome[Record]:
        """Restarts all sessions: members could not reach a coordinator while the log was read."""
        self._loaded = True
        self._next_expiry_ms = now.steady_ms + self.settings.offsets_retention_check_interval_ms
        turn = Turn(self.settings, now)
        for group in self.groups.values():
            rebalance.on_loaded(group, turn)
        return turn.outcome

    def on_unloaded(self, error: ErrorCode) -> list[Sendable]:
        """Every group ends here: returns `error` for every waiting JoinGroup and SyncGroup."""
        return [reply for group in self.groups.values() for reply in rebalance.on_unloaded(group, error)]

    # Time

    def next_deadline_ms(self) -> int:
        """The earliest alarm of a group, or the next expiry of offsets."""
        return min(self._alarms.next_ms(), self._next_expiry_ms)

    def on_time(self, now: Instant) -> Outcome[Record]:
        """Ends sessions, join and sync phases that are due, and expires offsets."""
        turn = Turn(self.settings, now)
        for group_id in self._alarms.take_due(now.steady_ms):
            group = self.groups.get(group_id)
            if group is not None:
                rebalance.on_time(group, turn)
        if self._next_expiry_ms <= now.steady_ms:
            self._next_expiry_ms = now.steady_ms + self.settings.offsets_retention_check_interval_ms
            self._expire(turn)
        return turn.outcome

    def _expire(self, turn: Turn) -> None:
        for group in self.groups.values():
            gone = offset_rules.expired(group, self.offsets, turn)
            turn.outcome.records += gone
            kept = sum(map(len, self.offsets.topics(group.group_id).values())) - len(gone)
            if kept == 0 and self._is_idle(group):
                turn.outcome.records.append(GroupRecord(group.group_id, None))

    def _is_idle(self, group: ClassicGroup) -> bool:
        return (
            group.state is GroupState.EMPTY
            and not group.pending_joins
            and not self.offsets.has_pending(group.group_id)
        )

    # Membership

    def join(
        self, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], now: Instant
    ) -> Outcome[Record]:
        """JoinGroup: checks the session timeout; a JoinGroup without a member id may create the group."""
        turn = Turn(self.settings, now)
        timeout_ms = request.session_timeout_ms
        if not self.settings.min_session_timeout_ms <= timeout_ms <= self.settings.max_session_timeout_ms:
            turn.outcome.reply(
                caller.waiter, join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            )
            return turn.outcome
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            turn.outcome.reply(caller.waiter, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return turn.outcome
        if group is not None:
            join(group, request, caller, turn)
        else:
            self._join_first(request, caller, turn)
        return turn.outcome

    def _join_first(self, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], turn: Turn) -> None:
        """Writes a new group at once, still empty, so that a restart knows of it."""
        group = ClassicGroup(request.group_id, state_timestamp_ms=turn.now.wall_ms, alarms=self._alarms)
        empty = group.record()
        join(group, request, caller, turn)
        if group.members or group.pending_joins:
            self.groups[group.group_id] = group
            turn.outcome.records.insert(0, empty)
            turn.outcome.after_write.append(GroupCreated(self, group))

    def sync(
        self, request: SyncGroupRequest, caller: Caller[SyncGroupResponse], now: Instant
    ) -> Outcome[Record]:
        """SyncGroup; UNKNOWN_MEMBER_ID if there is no such group."""
        turn = Turn(self.settings, now)
        group = self.groups.get(request.group_id)
        if group is None:
            response = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            turn.outcome.reply(caller.waiter, response)
        else:
            sync(group, request, caller, turn)
        return turn.outcome

    def heartbeat(self, request: HeartbeatRequest, now: Instant) -> HeartbeatResponse:
        """Heartbeat: starts the member's session again, or reports that a rebalance began."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return HeartbeatResponse(error_code=membership.heartbeat(group, request, Turn(self.settings, now)))

    def leave(
        self, group_id: str, leavers: list[MemberIdentity], caller: Caller[LeaveGroupResponse], now: Instant
    ) -> Outcome[Record]:
        """LeaveGroup: each member leaves or gets an error of its own."""
        turn = Turn(self.settings, now)
        group = self.groups.get(group_id)
        if group is None:
            response = membership.leave_unknown(leavers)
        else:
            response = membership.leave(group, leavers, turn)
        turn.outcome.reply(caller.waiter, response)
        return turn.outcome

    # Offsets

    def commit(
        self,
        request: OffsetCommitRequest,
        commits: list[Commit],
        caller: Caller[OffsetCommitResponse],
        now: Instant,
    ) -> tuple[ErrorCode, list[Record]]:
        """Returns an error for the whole request, or the records for the valid rows."""
        turn = Turn(self.settings, now)
        group = self.groups.get(request.group_id)
        if group is None and request.generation_id_or_member_epoch >= 0:
            known = caller.version >= _GROUP_ID_NOT_FOUND_SINCE
            return (ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION), []
        if group is None:
            # Not stored here: replaying its first commit creates the group.
            group = ClassicGroup(request.group_id, alarms=self._alarms)
        error = commit_checks.check_commit(group, request)
        if error == ErrorCode.NONE:
            rebalance.prolong_session(group, request.member_id, turn)
            offset_rules.write(group.group_id, commits, turn, offset_rules.expiry_ms(request, turn))
        return error, turn.outcome.records

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, commits: list[Commit], now: Instant
    ) -> tuple[ErrorCode, list[Record]]:
        """As `commit`; the records wait for the transaction's marker. It does not prolong a member's session."""
        turn = Turn(self.settings, now)
        group = self.groups.get(request.group_id)
        if group is None and request.generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION, []
        if group is None:
            group = ClassicGroup(request.group_id, alarms=self._alarms)
        error = commit_checks.check_transactional_commit(group, request)
        if error == ErrorCode.NONE:
            offset_rules.write(group.group_id, commits, turn)
        return error, turn.outcome.records

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        response: OffsetDeleteResponse,
        caller: Caller[OffsetDeleteResponse],
    ) -> Outcome[Record]:
        """`response` has rows for the partitions that do not exist; the other rows are added."""
        outcome: Outcome[Record] = Outcome()
        group = self.groups.get(request.group_id)
        error = listing.check_offset_delete(group)
        if error != ErrorCode.NONE or group is None:
            outcome.reply(caller.waiter, OffsetDeleteResponse(error_code=error))
            return outcome
        for topic, row in zip(request.topics, response.topics, strict=True):
            subscribed = group.state is not GroupState.EMPTY and group.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            row.partitions += [
                OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
            ]
            if not subscribed:
                outcome.records += [
                    OffsetRecord(request.group_id, topic.name, index, None)
                    for index in indexes
                    if self.offsets.exists(request.group_id, topic.name, index)
                ]
        outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, _offset_delete_error))
        return outcome

    def on_topics_deleted(self, topics: Iterable[str]) -> Outcome[Record]:
        """Deletes the offsets of deleted topics in every group."""
        return Outcome(records=list(offset_rules.topic_removals(self.offsets, topics)))

    # Administration

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """DescribeGroups: a group that does not exist counts as dead."""
        group = self.groups.get(group_id)
        if group is None:
            return listing.describe_missing(group_id, version)
        return listing.describe(group)

    def list(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """The groups in one of the states and of one of the types; an empty list means any."""
        return [
            listing.listed(group) for group in self.groups.values() if listing.matches(group, states, types)
        ]

    def delete(self, group_id: str, caller: Caller[DeletableGroupResult]) -> Outcome[Record]:
        """Writes tombstones for the group and its offsets, if it has no members."""
        error = listing.check_delete(self.groups.get(group_id))
        result = DeletableGroupResult(group_id=group_id, error_code=error)
        if error != ErrorCode.NONE:
            return Outcome([Reply(caller.waiter, result)])
        records: list[Record] = [
            *offset_rules.removals(self.offsets, group_id),
            GroupRecord(group_id, None),
        ]

        def failed(error: ErrorCode) -> DeletableGroupResult:
            return DeletableGroupResult(group_id=group_id, error_code=error)

        return Outcome(records=records, after_write=[ReplyAfterWrite(caller.waiter, result, failed)])

    # Creating and removing groups

    def _create_simple(self, group_id: str, undo_commit: Undo) -> Undo:
        """A group that only commits: its first offset creates it, and undoing that offset removes it."""
        group = self.groups[group_id] = ClassicGroup(group_id, alarms=self._alarms)

        def undo() -> None:
            undo_commit()
            if self._is_idle(group):
                self.forget(group)

        return undo

    def forget(self, group: ClassicGroup) -> None:
        """Removes a group that was never stored."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        group.state = GroupState.DEAD

    def _remove(self, group_id: str) -> Undo:
        group = self.groups.get(group_id)
        if group is None:
            return undo_nothing
        before = group.state
        self.forget(group)

        def undo() -> None:
            group.state = before
            self.groups[group_id] = group

        return undo


@dataclass(frozen=True, slots=True)
class GroupCreated:
    """Continues when a group's first record is committed; if it is refused, the group is removed."""

    shard: GroupShard
    group: ClassicGroup

    def on_committed(self, now: Instant) -> Outcome[Record]:
        """Nothing to do: the group's record is in the log."""
        return Outcome()

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[Record]:
        """The group could not be stored: its members get an error, and it is removed."""
        turn = Turn(self.shard.settings, now)
        for member in list(self.group.members.values()):
            rebalance.answer_join(self.group, member, join_error(rebalance.storing_error(error)), turn)
            drop_member(self.group, member, turn)
        self.shard.forget(self.group)
        return turn.outcome


def _offset_delete_error(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)
