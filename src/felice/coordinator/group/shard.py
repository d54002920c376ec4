"""One partition of `__consumer_offsets`: its groups and their offsets, as a pure state machine.

Keeps true:  everything that a restart needs is in the log: each stable generation with its members, each commit.
             A group exists from its first join or commit until its tombstone.
Finds the group, and applies the rules that are those of all groups. The rules of a protocol are in its package
(`classic`, `consumer`), behind its `kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from felice.coordinator.group.alarms import Alarms
from felice.coordinator.group.classic import listing, membership, rebalance
from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.join import join, supported_protocols
from felice.coordinator.group.classic.kind import CLASSIC
from felice.coordinator.group.classic.rebalance import drop_member, join_error
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.classic.sync import sync
from felice.coordinator.group.consumer.group import JOIN_EPOCH, ConsumerGroup
from felice.coordinator.group.consumer.values import ClassicProtocols, ConsumerRecord, EpochRecord
from felice.coordinator.group.kinds import CommitCheck, Kind
from felice.coordinator.group.modern.topics import NO_TOPICS, Topics
from felice.coordinator.group.offsets import commits as offset_rules
from felice.coordinator.group.offsets.commits import Commit
from felice.coordinator.group.offsets.store import OffsetStore
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
    undo_nothing,
)
from felice.dataclass import dataclass
from felice.protocol.errors import ApiError, ErrorCode
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

if TYPE_CHECKING:
    from felice.coordinator.group.consumer.expressions import May
    from felice.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerDescribedGroup
    from felice.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )

_GROUP_ID_NOT_FOUND_SINCE = 9  # of OffsetCommit


@dataclass(slots=True)
class GroupCounts:
    """What the shards of a broker count, for metrics."""

    consumer_rebalances: int = 0
    """How often the epoch of a consumer group was raised, which requires a new target assignment."""


AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup


def kind_of(group: AnyGroup) -> Kind[Any]:
    """The rules of the group's protocol."""
    if not isinstance(group, ConsumerGroup):
        return CLASSIC
    from felice.coordinator.group.consumer.kind import CONSUMER

    return CONSUMER


class GroupShard:
    """The state machine of one partition of `__consumer_offsets`. Implements `coordinator.shard.Shard`."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Callable[[], Topics] = lambda: NO_TOPICS,
        counts: GroupCounts | None = None,
    ) -> None:
        """`topics` returns the current topics of the cluster; each event reads them once."""
        self.settings = settings
        self._counts = counts or GroupCounts()
        self._topics = topics
        self.groups: dict[str, AnyGroup] = {}
        self.offsets = OffsetStore()
        self._alarms = Alarms()
        self._loaded = False
        self._next_expiry_ms = NEVER_MS
        # Groups that the current event makes. Each is added to `groups` when its first record is replayed.
        self._made: dict[str, AnyGroup] = {}

    def turn(self, now: Instant) -> Turn:
        """The context of one event."""
        self._made = {}
        return Turn(self.settings, now, topics=self._topics(), made=self._made)

    # The log

    def replay(self, record: Record, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Applies a record. A group's record restores the group while the log is loaded; later it changes nothing."""
        if isinstance(record, OffsetRecord):
            undo = self.offsets.apply(record, producer_id)
            if record.committed is None or record.group_id in self.groups:
                return undo
            return self._create_simple(record.group_id, undo)
        if not isinstance(record, GroupRecord):
            return self._replay_consumer(record)
        if record.value is None:
            return self._remove(record.group_id, ClassicGroup)
        if not self._loaded:
            self.groups[record.group_id] = ClassicGroup.restore(record.group_id, record.value, self._alarms)
            return undo_nothing
        made = self._made.get(record.group_id)
        if isinstance(made, ClassicGroup) and self.groups.get(record.group_id) is not made:
            return self._put(made)
        # After loading, the record of a live group only repeats its current state.
        return undo_nothing

    def _replay_consumer(self, record: ConsumerRecord) -> Undo:
        """A consumer group exists from its first record with a value on, in the place of an empty classic group."""
        group = self.groups.get(record.group_id)
        if isinstance(record, EpochRecord) and record.value is None:
            return self._remove(record.group_id, ConsumerGroup)
        if self._loaded and isinstance(record, EpochRecord):
            self._counts.consumer_rebalances += 1
        if isinstance(group, ConsumerGroup):
            return group.replay(record)
        if record.value is None:
            return undo_nothing
        made = self._made.get(record.group_id)
        if not isinstance(made, ConsumerGroup):
            made = ConsumerGroup(record.group_id, alarms=self._alarms)
        undo_put = self._put(made)
        undo_record = made.replay(record)

        def undo() -> None:
            undo_record()
            undo_put()

        return undo

    def _put(self, group: AnyGroup) -> Undo:
        """The group takes the place of another one, or a new place."""
        before = self.groups.get(group.group_id)
        if isinstance(before, ConsumerGroup):
            before.is_live = False
        if isinstance(group, ConsumerGroup):
            group.is_live = True
        self.groups[group.group_id] = group

        def undo() -> None:
            self.forget(group)
            if before is not None:
                self.groups[group.group_id] = before
                if isinstance(before, ConsumerGroup):
                    before.is_live = True

        return undo

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A transaction ended: its commits count from now on, or are dropped."""
        for record in self.offsets.end_transaction(producer_id, committed):
            if record.group_id not in self.groups:
                self._create_simple(record.group_id, undo_nothing)

    def on_loaded(self, now: Instant) -> Outcome[Record]:
        """Restarts all sessions: members could not reach a coordinator while the log was read."""
        self._loaded = True
        self._next_expiry_ms = now.steady_ms + self.settings.offsets_retention_check_interval_ms
        turn = self.turn(now)
        for group in self.groups.values():
            kind_of(group).on_loaded(group, turn)
        return turn.outcome

    def on_unloaded(self, error: ErrorCode) -> list[Sendable]:
        """Every group ends here: returns `error` for every waiting JoinGroup and SyncGroup."""
        return [reply for group in self.groups.values() for reply in kind_of(group).on_unloaded(group, error)]

    # Time

    def next_deadline_ms(self) -> int:
        """The earliest alarm of a group, or the next expiry of offsets."""
        return min(self._alarms.next_ms(), self._next_expiry_ms)

    def on_time(self, now: Instant) -> Outcome[Record]:
        """Ends sessions, join and sync phases that are due, and expires offsets."""
        turn = self.turn(now)
        for group_id in self._alarms.take_due(now.steady_ms):
            group = self.groups.get(group_id)
            if group is not None:
                kind_of(group).on_time(group, turn)
        if self._next_expiry_ms <= now.steady_ms:
            self._next_expiry_ms = now.steady_ms + self.settings.offsets_retention_check_interval_ms
            self._expire(turn)
        return self._done(turn)

    def _expire(self, turn: Turn) -> None:
        for group in self.groups.values():
            gone = offset_rules.expired(group, self.offsets, turn)
            turn.outcome.records += gone
            kept = sum(map(len, self.offsets.topics(group.group_id).values())) - len(gone)
            if kept == 0 and self._is_idle(group):
                turn.outcome.records += kind_of(group).tombstones(group)

    def _is_idle(self, group: AnyGroup) -> bool:
        return kind_of(group).is_idle(group) and not self.offsets.has_pending(group.group_id)

    # Membership

    def join(
        self, request: JoinGroupRequest, caller: Caller[JoinGroupResponse], now: Instant
    ) -> Outcome[Record]:
        """JoinGroup: checks the session timeout; a JoinGroup without a member id may create the group."""
        turn = self.turn(now)
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
        if isinstance(group, ConsumerGroup) and group.members:
            return self._join_consumer_group(group, request, caller, turn)
        if isinstance(group, ClassicGroup):
            join(group, request, caller, turn)
        else:
            self._join_first(group, request, caller, turn)
        return self._done(turn)

    def _join_first(
        self,
        empty: ConsumerGroup | None,
        request: JoinGroupRequest,
        caller: Caller[JoinGroupResponse],
        turn: Turn,
    ) -> None:
        """Writes a new, empty group at once, so that it survives a restart. It may replace an empty consumer group."""
        group = ClassicGroup(request.group_id, state_timestamp_ms=turn.now.wall_ms, alarms=self._alarms)
        record = group.record()
        join(group, request, caller, turn)
        if group.members or group.pending_joins:
            self._made[group.group_id] = group
            removed = () if empty is None else kind_of(empty).tombstones(empty)
            turn.outcome.records[:0] = [*removed, record]

    def _join_consumer_group(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        caller: Caller[JoinGroupResponse],
        turn: Turn,
    ) -> Outcome[Record]:
        """A member of the classic protocol joins a consumer group, or makes it a classic group again.

        The group becomes classic if the last member of the consumer protocol is static, and rejoins with the classic
        protocol.
        """
        from felice.coordinator.group.consumer import events

        holder = group.static_members.get(request.group_instance_id or "")
        try:
            if (
                holder is not None
                and not request.member_id
                and events.is_last_of_protocol(group, holder, turn)
            ):
                events.classic_members.check_protocols(group, request)
                classic = ClassicProtocols(request.session_timeout_ms, supported_protocols(request))
                made = self._made[group.group_id] = events.downgraded(group, (), {holder: classic}, turn)
                turn.outcome.records += [*kind_of(group).tombstones(group), made.record()]
                join(made, request, caller, turn)
            else:
                events.classic_members.join(group, request, caller, turn)
        except ApiError as error:
            return Outcome([Reply(caller.waiter, join_error(error.code, request.member_id))])
        return self._done(turn)

    def sync(
        self, request: SyncGroupRequest, caller: Caller[SyncGroupResponse], now: Instant
    ) -> Outcome[Record]:
        """SyncGroup; UNKNOWN_MEMBER_ID if there is no such group."""
        turn = self.turn(now)
        group = self.groups.get(request.group_id)
        if group is None:
            response = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            turn.outcome.reply(caller.waiter, response)
        elif isinstance(group, ConsumerGroup):
            from felice.coordinator.group.consumer import events

            try:
                events.classic_members.sync(group, request, caller, turn)
            except ApiError as error:
                turn.outcome.reply(caller.waiter, events.classic_members.sync_error(error.code))
        else:
            sync(group, request, caller, turn)
        return turn.outcome

    def heartbeat(self, request: HeartbeatRequest, now: Instant) -> HeartbeatResponse:
        """Heartbeat: starts the member's session again, or reports that a rebalance began."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        turn = self.turn(now)
        if isinstance(group, ConsumerGroup):
            from felice.coordinator.group.consumer import events

            return HeartbeatResponse(error_code=events.classic_members.heartbeat(group, request, turn))
        return HeartbeatResponse(error_code=membership.heartbeat(group, request, turn))

    def leave(
        self, group_id: str, leavers: list[MemberIdentity], caller: Caller[LeaveGroupResponse], now: Instant
    ) -> Outcome[Record]:
        """LeaveGroup: each member leaves or gets an error of its own."""
        turn = self.turn(now)
        group = self.groups.get(group_id)
        if group is None:
            response = membership.leave_unknown(leavers)
        elif isinstance(group, ConsumerGroup):
            from felice.coordinator.group.consumer import events

            response = events.classic_members.leave(group, leavers, turn)
            turn.outcome.after_write.append(ReplyAfterWrite(caller.waiter, response, _leave_error))
            return turn.outcome
        else:
            response = membership.leave(group, leavers, turn)
        turn.outcome.reply(caller.waiter, response)
        return turn.outcome

    # Consumer groups (KIP-848)

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller[ConsumerGroupHeartbeatResponse],
        may_describe: May | None,
        now: Instant,
    ) -> Outcome[Record]:
        """ConsumerGroupHeartbeat: the first one of a group creates it, in the place of an empty classic group."""
        from felice.coordinator.group.consumer import events

        turn = self.turn(now)
        try:
            group = self._consumer_group(request, turn)
            events.heartbeat(group, request, caller, may_describe, turn)
        except ApiError as error:
            return Outcome([Reply(caller.waiter, events.error_response(error.code, error.message))])
        return self._done(turn)

    def _done(self, turn: Turn) -> Outcome[Record]:
        """The outcome of an event. If a new classic group's record is refused, its waiting requests are answered."""
        for made in turn.made.values():
            if isinstance(made, ClassicGroup):
                turn.outcome.after_write.append(GroupCreated(self, made))
        return turn.outcome

    def _consumer_group(self, request: ConsumerGroupHeartbeatRequest, turn: Turn) -> ConsumerGroup:
        """The group, or a new group for a member that joins. It replaces a classic group that can be converted."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOIN_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        made = ConsumerGroup(request.group_id, alarms=self._alarms)
        if group is not None:
            turn.outcome.records += CLASSIC.tombstones(group)
            if not CLASSIC.is_idle(group):
                from felice.coordinator.group.consumer import events

                upgrade = events.upgraded(group, turn)
                if upgrade is None:
                    message = f"Group {request.group_id} is not a consumer group."
                    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
                made, records = upgrade
                turn.outcome.records += records
                turn.outcome.after_write.append(events.Upgraded(group))
        self._made[request.group_id] = made
        return made

    # Offsets

    def commit(
        self,
        request: OffsetCommitRequest,
        commits: list[Commit],
        caller: Caller[OffsetCommitResponse],
        now: Instant,
    ) -> tuple[ErrorCode, list[Record]]:
        """Returns an error for the whole request, or the records for the valid rows."""
        turn = self.turn(now)
        group = self.groups.get(request.group_id)
        if group is None and request.generation_id_or_member_epoch >= 0:
            known = caller.version >= _GROUP_ID_NOT_FOUND_SINCE
            return (ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION), []
        if group is None:
            # Not stored here: replaying its first commit creates the group.
            group = ClassicGroup(request.group_id, alarms=self._alarms)
        kind = kind_of(group)
        check = kind.check_commit(group, request, caller.version)
        if isinstance(check, ErrorCode) and check != ErrorCode.NONE:
            return check, []
        kind.on_commit(group, request.member_id, turn)
        allowed = _allowed(commits, check)
        offset_rules.write(group.group_id, allowed, turn, offset_rules.expiry_ms(request, turn))
        return ErrorCode.NONE, turn.outcome.records

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, commits: list[Commit], now: Instant
    ) -> tuple[ErrorCode, list[Record]]:
        """As `commit`; the records wait for the transaction's marker. It does not prolong a member's session."""
        turn = self.turn(now)
        group = self.groups.get(request.group_id)
        if group is None and request.generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION, []
        if group is None:
            group = ClassicGroup(request.group_id, alarms=self._alarms)
        check = kind_of(group).check_transactional_commit(group, request)
        if isinstance(check, ErrorCode) and check != ErrorCode.NONE:
            return check, []
        offset_rules.write(group.group_id, _allowed(commits, check), turn)
        return ErrorCode.NONE, turn.outcome.records

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member with this epoch may read the group's offsets. None and -1: the request names no member."""
        group = self.groups.get(group_id)
        return ErrorCode.NONE if group is None else kind_of(group).check_fetch(group, member_id, epoch)

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        response: OffsetDeleteResponse,
        caller: Caller[OffsetDeleteResponse],
    ) -> Outcome[Record]:
        """`response` has rows for the partitions that do not exist; the other rows are added."""
        outcome: Outcome[Record] = Outcome()
        group = self.groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else kind_of(group).check_offset_delete(group)
        if error != ErrorCode.NONE or group is None:
            outcome.reply(caller.waiter, OffsetDeleteResponse(error_code=error))
            return outcome
        for topic, row in zip(request.topics, response.topics, strict=True):
            subscribed = kind_of(group).is_in_use(group, topic.name)
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
        return kind_of(group).describe(group, version)

    def describe_consumer(self, group_id: str) -> ConsumerDescribedGroup:
        """One group of ConsumerGroupDescribe."""
        group = self.groups.get(group_id)
        found = group if isinstance(group, ConsumerGroup) else None
        from felice.coordinator.group.consumer import events

        return events.describe_consumer(group_id, found, self._topics(), self.settings.consumer_assignors)

    def list(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """The groups in one of the states and of one of the types; an empty list means any."""
        rows = (kind_of(group).listed(group) for group in self.groups.values())
        return [row for row in rows if listing.matches(row, states, types)]

    def delete(self, group_id: str, caller: Caller[DeletableGroupResult]) -> Outcome[Record]:
        """Writes tombstones for the group and its offsets, if it has no members."""
        group = self.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else kind_of(group).check_delete(group)
        result = DeletableGroupResult(group_id=group_id, error_code=error)
        if error != ErrorCode.NONE or group is None:
            return Outcome([Reply(caller.waiter, result)])
        records: list[Record] = [
            *offset_rules.removals(self.offsets, group_id),
            *kind_of(group).tombstones(group),
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

    def forget(self, group: AnyGroup) -> None:
        """Removes a group that was never stored."""
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
        if isinstance(group, ConsumerGroup):
            group.is_live = False
        else:
            group.state = GroupState.DEAD

    def _remove(self, group_id: str, kind: type[AnyGroup]) -> Undo:
        """Replays the tombstone of a group of this kind. A group of another kind is newer, and stays."""
        group = self.groups.get(group_id)
        if not isinstance(group, kind):
            return undo_nothing
        before = group.is_live if isinstance(group, ConsumerGroup) else group.state
        self.forget(group)

        def undo() -> None:
            setattr(group, "is_live" if isinstance(group, ConsumerGroup) else "state", before)
            self.groups[group_id] = group

        return undo


def _allowed(commits: list[Commit], check: CommitCheck) -> list[Commit]:
    """The commits that the check allows. The rows of refused commits get their errors."""
    if isinstance(check, ErrorCode):
        return commits
    allowed = []
    for commit in commits:
        error = check(commit.topic_id, commit.asked.partition_index)
        if error == ErrorCode.NONE:
            allowed.append(commit)
        else:
            commit.row.error_code = error
    return allowed


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
        turn = self.shard.turn(now)
        for member in list(self.group.members.values()):
            rebalance.answer_join(self.group, member, join_error(rebalance.storing_error(error)), turn)
            drop_member(self.group, member, turn)
        self.shard.forget(self.group)
        return turn.outcome


def _offset_delete_error(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


def _leave_error(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)
