"""Consumer groups, as a shard sees them. Implements `kinds.Kind`."""

from __future__ import annotations

from felice.coordinator.group.consumer import commit_checks
from felice.coordinator.group.consumer.group import ConsumerGroup, Revocation
from felice.coordinator.group.kinds import CommitCheck
from felice.coordinator.group.modern.reconciliation import MemberState
from felice.coordinator.group.records import Record
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import Sendable
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import PROTOCOL_TYPE
from felice.protocol.messages.describe_groups import DescribedGroup
from felice.protocol.messages.list_groups import ListedGroup
from felice.protocol.messages.offset_commit import OffsetCommitRequest
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

CONSUMER_TYPE = "consumer"
_NOT_FOUND_SINCE = 6  # of DescribeGroups


class ConsumerKind:
    """The rules of consumer groups."""

    def on_loaded(self, group: ConsumerGroup, turn: Turn) -> None:
        """Restarts all sessions, and the time that members have to give up partitions."""
        now_ms, times = turn.now.steady_ms, turn.settings.times_of(group.group_id)
        for member_id, subscription in group.members.items():
            classic = subscription.classic
            timeout_ms = times.session_timeout_ms if classic is None else classic.session_timeout_ms
            group.start_session(member_id, now_ms + timeout_ms)
            current = group.current(member_id)
            if current.state is MemberState.UNREVOKED_PARTITIONS:
                deadline_ms = now_ms + subscription.rebalance_timeout_ms
                group.revocations[member_id] = Revocation(current.epoch, deadline_ms)
                group.wake_at(deadline_ms)

    def on_unloaded(self, group: ConsumerGroup, error: ErrorCode) -> list[Sendable]:
        """No request waits in a consumer group."""
        group.is_live = False
        return []

    def on_time(self, group: ConsumerGroup, turn: Turn) -> None:
        """Removes members whose session or time limit has ended."""
        from felice.coordinator.group.consumer import removal

        removal.on_time(group, turn)

    def is_idle(self, group: ConsumerGroup) -> bool:
        """Whether the group has no members."""
        return not group.members

    def describe(self, group: ConsumerGroup, version: int) -> DescribedGroup:
        """GROUP_ID_NOT_FOUND: DescribeGroups is for classic groups, ConsumerGroupDescribe for consumer groups."""
        described = DescribedGroup(group_id=group.group_id, group_state="Dead")
        if version >= _NOT_FOUND_SINCE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group.group_id} is not a classic group."
        return described

    def listed(self, group: ConsumerGroup) -> ListedGroup:
        """The row of the group."""
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=PROTOCOL_TYPE,
            group_state=group.state.value,
            group_type=CONSUMER_TYPE,
        )

    def check_delete(self, group: ConsumerGroup) -> ErrorCode:
        """NON_EMPTY_GROUP if the group has members."""
        return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE

    def tombstones(self, group: ConsumerGroup) -> list[Record]:
        """The tombstones of the group and of all its members."""
        from felice.coordinator.group.consumer.tombstones import tombstones

        return list(tombstones(group))

    def check_commit(self, group: ConsumerGroup, request: OffsetCommitRequest, version: int) -> CommitCheck:
        """Decided for each partition if the member's epoch is not the current one."""
        return commit_checks.check_commit(group, request, version)

    def check_transactional_commit(
        self, group: ConsumerGroup, request: TxnOffsetCommitRequest
    ) -> CommitCheck:
        """As `check_commit`."""
        return commit_checks.check_transactional_commit(group, request)

    def check_fetch(self, group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """The member's epoch must be the current one."""
        return commit_checks.check_fetch(group, member_id, epoch)

    def on_commit(self, group: ConsumerGroup, member_id: str, turn: Turn) -> None:
        """A commit does not count as a heartbeat."""

    def check_offset_delete(self, group: ConsumerGroup) -> ErrorCode:
        """NONE: `is_in_use` checks each topic."""
        return ErrorCode.NONE

    def is_in_use(self, group: ConsumerGroup, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return group.is_subscribed_to(topic)


CONSUMER = ConsumerKind()
