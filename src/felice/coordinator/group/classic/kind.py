"""Groups of the classic protocol, as a shard sees them. Implements `kinds.Kind`."""

from __future__ import annotations

from felice.coordinator.group.classic import commit_checks, listing, rebalance
from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.kinds import CommitCheck
from felice.coordinator.group.records import GroupRecord, Record
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import Sendable
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_groups import DescribedGroup
from felice.protocol.messages.list_groups import ListedGroup
from felice.protocol.messages.offset_commit import OffsetCommitRequest
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


class ClassicKind:
    """The rules of classic groups."""

    def on_loaded(self, group: ClassicGroup, turn: Turn) -> None:
        """Restarts all sessions."""
        rebalance.on_loaded(group, turn)

    def on_unloaded(self, group: ClassicGroup, error: ErrorCode) -> list[Sendable]:
        """Answers every waiting JoinGroup and SyncGroup."""
        return rebalance.on_unloaded(group, error)

    def on_time(self, group: ClassicGroup, turn: Turn) -> None:
        """Ends the sessions, join phases and sync phases whose time limit has passed."""
        rebalance.on_time(group, turn)

    def is_idle(self, group: ClassicGroup) -> bool:
        """Whether the group is Empty, and no member id waits for its JoinGroup."""
        return group.state is GroupState.EMPTY and not group.pending_joins

    def describe(self, group: ClassicGroup, version: int) -> DescribedGroup:
        """The same in all versions."""
        return listing.describe(group)

    def listed(self, group: ClassicGroup) -> ListedGroup:
        """The row of the group."""
        return listing.listed(group)

    def check_delete(self, group: ClassicGroup) -> ErrorCode:
        """NON_EMPTY_GROUP if the group has members."""
        return listing.check_delete(group)

    def tombstones(self, group: ClassicGroup) -> list[Record]:
        """A classic group has one record."""
        return [GroupRecord(group.group_id, None)]

    def check_commit(self, group: ClassicGroup, request: OffsetCommitRequest, version: int) -> CommitCheck:
        """Decided for the whole request (G1)."""
        return commit_checks.check_commit(group, request)

    def check_transactional_commit(self, group: ClassicGroup, request: TxnOffsetCommitRequest) -> CommitCheck:
        """Decided for the whole request (KIP-447)."""
        return commit_checks.check_transactional_commit(group, request)

    def check_fetch(self, group: ClassicGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """NONE: the member id and epoch of an OffsetFetch have a meaning only in consumer groups (KIP-848)."""
        return ErrorCode.NONE

    def on_commit(self, group: ClassicGroup, member_id: str, turn: Turn) -> None:
        """Prolongs the member's session."""
        rebalance.prolong_session(group, member_id, turn)

    def check_offset_delete(self, group: ClassicGroup) -> ErrorCode:
        """NONE if the group is Empty, or its members are consumers, whose subscriptions the broker can read."""
        return listing.check_offset_delete(group)

    def is_in_use(self, group: ClassicGroup, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return group.state is not GroupState.EMPTY and group.is_subscribed_to(topic)


CLASSIC = ClassicKind()
