"""TxnOffsetCommit: which producers may commit, and the effect on the group (KIP-447)."""

from __future__ import annotations

import pytest

from felice.coordinator.group.classic.group import ClassicGroup
from felice.coordinator.group.classic.member import Member
from felice.coordinator.group.classic.states import GroupState
from felice.coordinator.group.offsets.commits import Commit
from felice.coordinator.group.records import CommittedOffset, OffsetRecord
from felice.coordinator.group.settings import GroupSettings
from felice.coordinator.group.shard import GroupShard
from felice.coordinator.group.turn import Caller
from felice.coordinator.shard import Instant
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponsePartition,
)

NOW = Instant(1_000_000, 0)


class NobodyWaits:
    def answer(self, response: object) -> None:
        raise AssertionError(f"answered before the write: {response}")


def shard_with(state: GroupState) -> GroupShard:
    shard = GroupShard(GroupSettings(offset_metadata_max_size=5))
    group = ClassicGroup("g", state=state, generation=4, protocol_type="consumer")
    if state is not GroupState.EMPTY:
        member = Member("m", "i", "client", "/host", 1000, 1000, (("range", b""),))
        group.add(member, "consumer")
    shard.groups["g"] = group
    return shard


def commit(shard: GroupShard, metadata: str = "", **who: object) -> tuple[ErrorCode, int, int]:
    """The error, the error of the row, and the number of records."""
    row = TxnOffsetCommitResponsePartition()
    asked = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(**{"group_id": "g", "producer_id": 7, **who})
    error, records = shard.commit_transactional(request, [Commit("t", asked, row)], NOW)
    for record in records:
        shard.replay(record, 7)
    return error, row.error_code, len(records)


OK = ErrorCode.NONE
STABLE, PREPARING, COMPLETING = (
    GroupState.STABLE,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
)


@pytest.mark.parametrize(
    ("state", "who", "error"),
    [
        (GroupState.EMPTY, {}, OK),
        (GroupState.EMPTY, {"generation_id": 4, "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        # Producers before version 3 name no member, and are accepted.
        (STABLE, {}, OK),
        (STABLE, {"member_id": "m", "generation_id": 4}, OK),
        # Unlike for a plain commit, a rebalance does not matter.
        (PREPARING, {"member_id": "m", "generation_id": 4}, OK),
        (COMPLETING, {"member_id": "m", "generation_id": 4}, OK),
        (STABLE, {"member_id": "m", "generation_id": 3}, ErrorCode.ILLEGAL_GENERATION),
        (STABLE, {"member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        (STABLE, {"member_id": "n", "generation_id": 4}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            STABLE,
            {"member_id": "n", "group_instance_id": "i", "generation_id": 4},
            ErrorCode.FENCED_INSTANCE_ID,
        ),
        (GroupState.DEAD, {}, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_only_current_members_may_commit(state: GroupState, who: dict[str, object], error: ErrorCode) -> None:
    assert commit(shard_with(state), **who) == (error, OK, 1 if error == OK else 0)


def test_a_missing_group_has_no_generation() -> None:
    shard = GroupShard(GroupSettings())
    assert commit(shard, generation_id=0, member_id="m")[0] == ErrorCode.ILLEGAL_GENERATION
    assert commit(shard)[0] == OK


@pytest.mark.parametrize("committed", [False, True])
def test_a_group_exists_from_its_first_commit_in_a_transaction_on(committed: bool) -> None:
    shard = GroupShard(GroupSettings())
    commit(shard)
    assert shard.describe("g", 6).group_state == "Empty"
    assert [group.group_id for group in shard.list([], [])] == ["g"]
    assert commit(shard, generation_id=4)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    shard.replay_marker(7, committed)
    assert list(shard.groups) == ["g"]
    assert (shard.offsets.get("g", "t", 0) is not None) is committed
    assert not shard.offsets.is_pending("g", "t", 0)


def test_undoing_its_only_commit_removes_the_group() -> None:
    shard = GroupShard(GroupSettings())
    shard.replay(OffsetRecord("g", "t", 0, CommittedOffset(9)), 7)()
    assert shard.groups == {}
    assert not shard.offsets.has_pending("g")


def test_deleting_a_group_deletes_pending_commits_of_its_transactions() -> None:
    shard = GroupShard(GroupSettings())
    commit(shard)
    outcome = shard.delete("g", Caller(NobodyWaits(), 2))
    undo = [shard.replay(record) for record in outcome.records]
    assert shard.groups == {}
    assert not shard.offsets.has_pending("g")
    for undo_one in reversed(undo):
        undo_one()
    assert shard.offsets.is_pending("g", "t", 0)
    for record in outcome.records:
        shard.replay(record)
    shard.replay_marker(7, True)
    assert shard.offsets.topics("g") == {}


def test_metadata_that_is_too_long_is_refused_by_itself() -> None:
    assert commit(shard_with(STABLE), "123456") == (OK, ErrorCode.OFFSET_METADATA_TOO_LARGE, 0)
