"""Every wrong group request has its error: the rows of Kafka's error table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.group_calls import Member, commit, fetch_group, find_coordinator, stable_member
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from felice.protocol.messages.sync_group import SyncGroupRequest

Connect = Callable[[], Wire]


@pytest.fixture
def group(wire: Wire) -> str:
    name = unique_name("group")
    find_coordinator(wire, name)
    return name


@pytest.fixture(scope="module")
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("offsets-of"), 2)


def delete_offset(wire: Wire, group: str, topic: str, partition: int = 0) -> Any:
    rows = [OffsetDeleteRequestPartition(partition_index=partition)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=rows)]
    return wire.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)


# The empty group id


def test_an_empty_group_id_is_invalid(wire: Wire, group: str) -> None:
    nobody = Member(wire, "", member_id="m", generation=1)
    assert nobody.join().error_code == ErrorCode.INVALID_GROUP_ID
    assert nobody.sync().error_code == ErrorCode.INVALID_GROUP_ID
    assert nobody.heartbeat() == ErrorCode.INVALID_GROUP_ID
    assert nobody.leave().error_code == ErrorCode.INVALID_GROUP_ID
    assert delete_offset(wire, "", "t").error_code in (
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.NONE,  # nothing is left to delete when the topic is not there
    )


def test_old_consumers_commit_under_an_empty_group_id(wire: Wire, group: str, topic: str) -> None:
    find_coordinator(wire, "")
    assert commit(wire, topic, 5, 2, group_id="") == ErrorCode.NONE
    assert fetch_group(wire, "", {topic: [0]}).topics[0].partitions[0].committed_offset == 5


# JoinGroup


@pytest.mark.parametrize("session_timeout_ms", [5999, 1_800_001])
def test_a_session_timeout_out_of_bounds(wire: Wire, group: str, session_timeout_ms: int) -> None:
    member = Member(wire, group, session_timeout_ms=session_timeout_ms)
    assert member.join().error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_member_id_in_an_unknown_group_is_unknown(wire: Wire, group: str) -> None:
    answer = Member(wire, group, member_id="ghost").join()
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")


def test_an_unknown_member_id(wire: Wire, group: str) -> None:
    stable_member(wire, group)
    assert Member(wire, group, member_id="ghost").join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": ()}])
def test_no_protocol_at_all_is_inconsistent(wire: Wire, group: str, fields: dict[str, Any]) -> None:
    """66: also for an empty type or an empty list of protocols."""
    assert Member(wire, group, **fields).join(3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}])
def test_another_protocol_than_the_groups_is_inconsistent(
    wire: Wire, group: str, fields: dict[str, Any]
) -> None:
    stable_member(wire, group)
    assert Member(wire, group, **fields).join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(10))
def test_the_member_id_is_required_from_version_4(wire: Wire, group: str, version: int) -> None:
    """61: only with an empty id and without an instance id."""
    member = Member(wire, group)
    answer = wire.ask(member.join_request(), version)
    assert answer.member_id
    expected = ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE
    assert answer.error_code == expected
    if version >= 4:
        assert (answer.protocol_name, answer.generation_id) == (None if version >= 7 else "", -1)


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_need_no_member_id(wire: Wire, group: str, version: int) -> None:
    answer = wire.ask(Member(wire, group, instance_id="static").join_request(), version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id.startswith("static-")


# SyncGroup, Heartbeat


def test_requests_to_an_unknown_group_are_refused(wire: Wire, group: str) -> None:
    nobody = Member(wire, group, member_id="ghost", generation=1)
    assert nobody.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert nobody.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    left = nobody.leave()
    assert left.error_code == ErrorCode.NONE
    assert left.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "ghost", "generation_id": 7}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_are_checked_before_generations(
    wire: Wire, group: str, changes: dict[str, Any], expected: int
) -> None:
    member = stable_member(wire, group)
    assert member.heartbeat(**changes) == expected
    assert member.sync(**changes).error_code == expected


@pytest.mark.parametrize("changes", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_sync_with_another_protocol_is_inconsistent(wire: Wire, group: str, changes: dict[str, Any]) -> None:
    member = stable_member(wire, group)
    assert member.sync(**changes).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    before_version_5 = {"protocol_type": None, "protocol_name": None}
    assert member.sync(version=4, **before_version_5).error_code == ErrorCode.NONE


def test_a_member_must_rejoin_while_the_group_rebalances(wire: Wire, connect: Connect, group: str) -> None:
    member = stable_member(wire, group)
    newcomer = Member(connect(), group)
    newcomer.send_join(3)
    while member.heartbeat() == ErrorCode.NONE:
        pass
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.heartbeat(generation_id=0) == ErrorCode.ILLEGAL_GENERATION


def test_heartbeats_of_an_empty_group(wire: Wire, group: str) -> None:
    member = stable_member(wire, group)
    member.leave()
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# Static members


def test_another_member_id_for_a_known_instance_is_fenced(wire: Wire, group: str, topic: str) -> None:
    member = stable_member(wire, group, instance_id="i1")
    other = Member(wire, group, member_id="other", instance_id="i1", generation=member.generation)
    assert other.join().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert other.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert other.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert other.commit(topic, 1) == ErrorCode.FENCED_INSTANCE_ID
    assert other.leave().members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_unknown_instance_is_an_unknown_member(wire: Wire, group: str, topic: str) -> None:
    member = stable_member(wire, group)
    member.instance_id = "nobody"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(topic, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# LeaveGroup


@pytest.mark.parametrize("version", range(3))
def test_before_version_3_the_leavers_error_is_the_responses(wire: Wire, group: str, version: int) -> None:
    member = stable_member(wire, group)
    ghost = LeaveGroupRequest(group_id=group, member_id="ghost")
    assert wire.ask(ghost, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave(version).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3, 6))
def test_each_leaver_has_its_own_error(wire: Wire, group: str, version: int) -> None:
    member = stable_member(wire, group, instance_id="i1")
    leavers = [
        MemberIdentity(member_id="ghost"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id="", group_instance_id="i1"),
    ]
    answer = wire.ask(LeaveGroupRequest(group_id=group, members=leavers), version)
    codes = [row.error_code for row in answer.members]
    assert answer.error_code == ErrorCode.NONE
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# OffsetCommit


def test_commits_for_unknown_partitions_are_refused(wire: Wire, group: str, topic: str) -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, unique_name("no-topic"), 1, group_id=group) == missing
    assert commit(wire, topic, 1, partition=9, group_id=group) == missing


def test_commit_metadata_has_at_most_4096_characters(wire: Wire, group: str, topic: str) -> None:
    assert commit(wire, topic, 1, group_id=group, metadata="m" * 4096) == ErrorCode.NONE
    too_large = commit(wire, topic, 1, group_id=group, metadata="m" * 4097)
    assert too_large == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize(
    ("version", "expected"), [(2, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_an_unknown_group_is_refused(
    wire: Wire, group: str, topic: str, version: int, expected: int
) -> None:
    fields = {"group_id": group, "generation_id_or_member_epoch": 1, "member_id": "m"}
    assert commit(wire, topic, 1, version, **fields) == expected


def test_only_members_of_the_generation_commit(wire: Wire, group: str, topic: str) -> None:
    member = stable_member(wire, group)
    assert member.commit(topic, 1) == ErrorCode.NONE
    assert commit(wire, topic, 1, group_id=group) == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(topic, 1, member_id="ghost") == ErrorCode.UNKNOWN_MEMBER_ID
    stale = member.commit(topic, 1, generation_id_or_member_epoch=member.generation - 1)
    assert stale == ErrorCode.ILLEGAL_GENERATION


def test_commits_wait_while_the_assignment_is_awaited(wire: Wire, group: str, topic: str) -> None:
    member = Member(wire, group)
    member.join()
    assert member.commit(topic, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_commits_are_accepted_while_members_are_awaited(
    wire: Wire, connect: Connect, group: str, topic: str
) -> None:
    """72: a consumer commits before it gives its partitions up."""
    member = stable_member(wire, group)
    Member(connect(), group).send_join(3)
    while member.heartbeat() == ErrorCode.NONE:
        pass
    assert member.commit(topic, 1) == ErrorCode.NONE


# Administration


def test_groups_with_members_are_not_deleted(wire: Wire, group: str) -> None:
    stable_member(wire, group)
    names = [group, unique_name("missing")]
    results = {
        row.group_id: row.error_code for row in wire.ask(DeleteGroupsRequest(groups_names=names)).results
    }
    assert results == {names[0]: ErrorCode.NON_EMPTY_GROUP, names[1]: ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_described_as_dead(wire: Wire, group: str, version: int) -> None:
    described = wire.ask(DescribeGroupsRequest(groups=[group]), version).groups[0]
    assert (described.group_id, described.group_state) == (group, "Dead")
    assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


def test_offset_delete(wire: Wire, group: str, topic: str) -> None:
    assert delete_offset(wire, group, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = stable_member(wire, group, protocol_type="connect")
    assert delete_offset(wire, group, topic).error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    for place in ((unique_name("no-topic"), 0), (topic, 99)):
        unknown = delete_offset(wire, group, *place).topics[0].partitions[0]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offset(wire, group, topic).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_offsets_of_a_topic_that_is_read_stay(wire: Wire, group: str, topic: str) -> None:
    reads_topic = b"\0\0\0\0\0\1" + len(topic).to_bytes(2) + topic.encode() + b"\xff\xff\xff\xff"
    member = stable_member(wire, group, protocols=(("range", reads_topic),))
    assert member.commit(topic, 3) == ErrorCode.NONE
    answer = delete_offset(wire, group, topic)
    assert answer.error_code == ErrorCode.NONE
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("version", range(1, 7))
def test_there_is_no_coordinator_of_an_unknown_type(wire: Wire, group: str, version: int) -> None:
    asked = FindCoordinatorRequest(key_type=99)
    if version >= 4:
        asked.coordinator_keys = [group]
    else:
        asked.key = group
    answer = wire.ask(asked, version)
    row = answer.coordinators[0] if version >= 4 else answer
    assert row.error_code == ErrorCode.INVALID_REQUEST


def test_requests_decode_in_every_version(wire: Wire, group: str) -> None:
    """8: all group APIs are offered, from the first version to which clients limit themselves."""
    for version in range(5):
        asked = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        assert wire.ask(asked, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for version in range(6):
        request = SyncGroupRequest(group_id=group, generation_id=1, member_id="m")
        # KIP-559: version 5 must name the protocol.
        expected = ErrorCode.UNKNOWN_MEMBER_ID if version < 5 else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert wire.ask(request, version).error_code == expected
