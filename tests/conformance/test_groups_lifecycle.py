"""Correct group requests: rebalances, offsets in every form of the request, lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.group_calls import (
    Member,
    commit,
    committed,
    fetch_group,
    fetch_single,
    find_coordinator,
    stable_member,
)
from conformance.targets import Target
from conformance.topics import create_topic, metadata_of
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.delete_topics import DeleteTopicsRequest
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from waiting import wait_until

Connect = Callable[[], Wire]


@pytest.fixture
def group(wire: Wire) -> str:
    name = unique_name("group")
    find_coordinator(wire, name)
    return name


@pytest.fixture(scope="module")
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("offsets-of"), 2)


def listed(wire: Wire, version: int = 5, **filters: Any) -> dict[str, Any]:
    return {row.group_id: row for row in wire.ask(ListGroupsRequest(**filters), version).groups}


def describe(wire: Wire, group: str, version: int = 6) -> Any:
    return wire.ask(DescribeGroupsRequest(groups=[group]), version).groups[0]


# Coordinators


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_names_this_broker(wire: Wire, broker: Target, group: str, version: int) -> None:
    asked = (
        FindCoordinatorRequest(coordinator_keys=[group, "other"])
        if version >= 4
        else FindCoordinatorRequest(key=group)
    )
    answer = wire.ask(asked, version)
    rows = answer.coordinators if version >= 4 else [answer]
    assert len(rows) == (2 if version >= 4 else 1)
    for row in rows:
        assert f"{row.host}:{row.port}" == broker.bootstrap


def test_find_coordinator_creates_the_internal_topic() -> None:
    """74: the first answers are COORDINATOR_NOT_AVAILABLE, at most."""
    with Target() as fresh, fresh.wire() as wire:
        first = wire.ask(FindCoordinatorRequest(key="g"), 3)
        assert first.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        find_coordinator(wire, "g")
        assert metadata_of(wire, "__consumer_offsets").is_internal


# Rebalances


@pytest.mark.parametrize("version", range(10))
def test_two_members_share_a_generation(wire: Wire, connect: Connect, group: str, version: int) -> None:
    """The leader gets all members with their metadata, a follower gets none."""
    leader = Member(wire, group, protocol_type="own", protocols=(("range", b"of the leader"),))
    assert leader.join(version).leader == leader.member_id
    leader.sync({leader.member_id: b"all"})
    follower = Member(connect(), group, protocol_type="own", protocols=(("range", b"of the follower"),))
    if version >= 4:
        follower.send_join(version)
        assert follower.receive_join(version).error_code == ErrorCode.MEMBER_ID_REQUIRED
    follower.send_join(version)
    wait_until(lambda: leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    joined = leader.join(version)
    answer = follower.receive_join(version)
    assert joined.generation_id == answer.generation_id == 2
    assert joined.leader == answer.leader == leader.member_id
    assert {m.member_id: bytes(m.metadata) for m in joined.members} == {
        leader.member_id: b"of the leader",
        follower.member_id: b"of the follower",
    }
    assert answer.members == []
    # The follower's SyncGroup waits for the leader's.
    follower.wire.send(follower.sync_request(), 5)
    assert follower.wire.is_silent_for(0.1)
    synced = leader.sync({leader.member_id: b"half", follower.member_id: b"other half"})
    assert bytes(synced.assignment) == b"half"
    assert bytes(follower.wire.receive(follower.sync_request(), 5).assignment) == b"other half"
    assert (synced.protocol_type, synced.protocol_name) == ("own", "range")


def test_members_that_the_leader_forgets_get_an_empty_assignment(wire: Wire, group: str) -> None:
    member = Member(wire, group)
    member.join()
    assert bytes(member.sync({"ghost": b"x"}).assignment) == b""


def test_leaving_ends_the_join_phase_at_once(wire: Wire, connect: Connect, group: str) -> None:
    """63: the member that the group waits for leaves."""
    member = stable_member(wire, group)
    newcomer = Member(connect(), group)
    newcomer.send_join(3)
    wait_until(lambda: member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    member.leave()
    assert newcomer.receive_join(3).leader == newcomer.member_id


def test_a_lost_connection_removes_no_member(wire: Wire, connect: Connect, group: str) -> None:
    """64: only the session timeout or LeaveGroup removes a member."""
    other = connect()
    member = stable_member(other, group)
    other.close()
    member.wire = wire
    assert member.heartbeat() == ErrorCode.NONE


def test_a_silent_member_is_removed_when_its_session_ends(wire: Wire, group: str) -> None:
    member = Member(wire, group, session_timeout_ms=6000)
    assert member.join(3).error_code == ErrorCode.NONE
    # On a machine under heavy load the session may end before this request.
    assert member.sync({member.member_id: b"all"}).error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    wait_until(lambda: describe(wire, group).group_state == "Empty")


def test_any_protocol_type_is_carried_untouched(wire: Wire, group: str) -> None:
    """67: the coordinator does not look inside."""
    metadata = bytes(range(256))
    member = stable_member(
        wire, group, protocol_type="sr", protocols=(("v0", metadata),), assignment=metadata
    )
    described = describe(wire, group)
    assert (described.protocol_type, described.protocol_data) == ("sr", "v0")
    assert bytes(described.members[0].member_metadata) == metadata
    assert bytes(member.sync().assignment) == metadata


# Static members


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_follower_comes_back_without_a_rebalance(
    wire: Wire, connect: Connect, group: str, version: int
) -> None:
    """65: KIP-345."""
    leader = stable_member(wire, group, instance_id="a")
    follower = Member(connect(), group, instance_id="b")
    follower.send_join()
    wait_until(lambda: leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    leader.join()
    follower.receive_join()
    leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
    again = Member(wire, group, instance_id="b")
    joined = again.join(version)
    assert joined.generation_id == leader.generation
    assert joined.member_id != follower.member_id
    assert joined.leader == leader.member_id
    assert bytes(again.sync().assignment) == b"2"
    assert leader.heartbeat() == ErrorCode.NONE
    assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_comes_back_and_does_not_assign(wire: Wire, group: str, version: int) -> None:
    """KIP-814: in version 9 the response tells the leader to skip its assignment; in earlier versions it names the old
    leader id.
    """
    old = stable_member(wire, group, instance_id="a", assignment=b"mine")
    new = Member(wire, group, instance_id="a")
    joined = new.join(version)
    assert joined.generation_id == old.generation
    if version >= 9:
        assert (joined.leader, joined.skip_assignment) == (new.member_id, True)
        assert [member.member_id for member in joined.members] == [new.member_id]
    else:
        assert (joined.leader, joined.members) == (old.member_id, [])
    assert bytes(new.sync().assignment) == b"mine"


# Offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_in_every_version(wire: Wire, group: str, topic: str, version: int) -> None:
    assert commit(wire, topic, 40 + version, version, group_id=group, metadata="note") == ErrorCode.NONE
    row = fetch_group(wire, group, {topic: [0]}).topics[0].partitions[0]
    assert (row.committed_offset, row.metadata) == (40 + version, "note")


@pytest.mark.parametrize("version", range(1, 10))
def test_fetch_in_every_version(wire: Wire, group: str, topic: str, version: int) -> None:
    """70: the leader epoch is stored, and returned in every version that has the field."""
    assert commit(wire, topic, 7, group_id=group, leader_epoch=3, metadata="note") == ErrorCode.NONE
    if version < 8:
        answer = fetch_single(wire, group, {topic: [0, 1]}, version)
        assert answer.error_code == ErrorCode.NONE
    else:
        answer = fetch_group(wire, group, {topic: [0, 1]}, version)
    first, second = answer.topics[0].partitions
    assert (first.committed_offset, first.metadata, first.error_code) == (7, "note", ErrorCode.NONE)
    assert first.committed_leader_epoch == (3 if version >= 5 else -1)
    assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", ErrorCode.NONE)


@pytest.mark.parametrize("version", range(2, 10))
def test_null_topics_are_all_that_is_committed(wire: Wire, group: str, topic: str, version: int) -> None:
    """68: an empty list returns nothing."""
    commit(wire, topic, 7, group_id=group)
    ask = fetch_single if version < 8 else fetch_group
    everything = ask(wire, group, None, version).topics
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in everything] == [(topic, [0])]
    assert ask(wire, group, {}, version).topics == []


def test_topics_by_id(wire: Wire, group: str, topic: str) -> None:
    """From version 10 of both; an unknown id is an error of each partition."""
    topic_id = metadata_of(wire, topic).topic_id
    unknown_id = topic_id.__class__(int=topic_id.int ^ 1)
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(topic_id=i, partitions=rows) for i in (topic_id, unknown_id)]
    answer = wire.ask(OffsetCommitRequest(group_id=group, topics=topics), 10)
    codes = {row.topic_id: row.partitions[0].error_code for row in answer.topics}
    assert codes == {topic_id: ErrorCode.NONE, unknown_id: ErrorCode.UNKNOWN_TOPIC_ID}
    asked = [OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0]) for i in (topic_id, unknown_id)]
    for wanted in (asked, None):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
        found = {t.topic_id: t.partitions[0] for t in wire.ask(request, 10).groups[0].topics}
        assert found[topic_id].committed_offset == 9
        if wanted:
            assert found[unknown_id].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_in_one_fetch(wire: Wire, topic: str, version: int) -> None:
    names = [unique_name("group") for _ in range(3)]
    for number, name in enumerate(names):
        find_coordinator(wire, name)
        commit(wire, topic, number, group_id=name)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    answer = wire.ask(OffsetFetchRequest(groups=groups, require_stable=True), version)
    assert {row.group_id: row.topics[0].partitions[0].committed_offset for row in answer.groups} == {
        name: number for number, name in enumerate(names)
    }


def test_a_group_without_commits_is_no_error(wire: Wire, group: str) -> None:
    """69: also for a topic that does not exist."""
    missing = unique_name("no-topic")
    row = fetch_group(wire, group, {missing: [0]}).topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.error_code) == (-1, -1, ErrorCode.NONE)


def test_a_commit_without_members_makes_a_simple_group(wire: Wire, group: str, topic: str) -> None:
    """71: listed with no protocol type."""
    assert commit(wire, topic, 1, group_id=group) == ErrorCode.NONE
    row = listed(wire)[group]
    assert (row.protocol_type, row.group_state) == ("", "Empty")


def test_a_deleted_topic_takes_its_offsets_along(wire: Wire, broker: Target, group: str) -> None:
    """86."""
    topic = create_topic(broker, unique_name("deleted"))
    commit(wire, topic, 5, group_id=group)
    wire.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000), 5)
    wait_until(lambda: committed(wire, group, topic) == -1)


# Administration


def test_list_filters_by_state_and_type(wire: Wire, group: str) -> None:
    """75: states from version 4, types from version 5."""
    stable_member(wire, group)
    for version in range(6):
        assert listed(wire, version)[group].protocol_type == "consumer"
    assert group in listed(wire, 4, states_filter=["Stable"])
    assert group not in listed(wire, 4, states_filter=["Empty"])
    assert group in listed(wire, 5, types_filter=["classic"], states_filter=["stable"])
    assert group not in listed(wire, 5, types_filter=["share"])
    assert (listed(wire)[group].group_state, listed(wire)[group].group_type.lower()) == ("Stable", "classic")


@pytest.mark.parametrize("version", range(7))
def test_describe_shows_members_of_a_stable_group(wire: Wire, group: str, version: int) -> None:
    member = stable_member(wire, group, instance_id="i1", assignment=b"mine")
    described = describe(wire, group, version)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    row = described.members[0]
    assert (row.member_id, row.client_id, row.client_host) == (member.member_id, "wire", "/127.0.0.1")
    assert (bytes(row.member_metadata), bytes(row.member_assignment)) == (b"meta", b"mine")
    assert row.group_instance_id == ("i1" if version >= 4 else None)
    assert described.authorized_operations == -2147483648


def test_describe_returns_permitted_operations_on_request(wire: Wire, group: str) -> None:
    stable_member(wire, group)
    asked = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    operations = wire.ask(asked, 6).groups[0].authorized_operations
    assert all(operations >> bit & 1 for bit in (3, 6, 8))


def test_between_generations_members_have_no_metadata(wire: Wire, group: str) -> None:
    member = Member(wire, group)
    member.join()
    described = describe(wire, group)
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert bytes(described.members[0].member_metadata) == b""


def test_an_empty_group_can_be_deleted(wire: Wire, group: str, topic: str) -> None:
    member = stable_member(wire, group)
    member.commit(topic, 5)
    member.leave()
    assert describe(wire, group).group_state == "Empty"
    for version in range(3):
        answer = wire.ask(DeleteGroupsRequest(groups_names=[group]), version).results[0]
        assert answer.error_code == (ErrorCode.NONE if version == 0 else ErrorCode.GROUP_ID_NOT_FOUND)
    assert group not in listed(wire)
    assert committed(wire, group, topic) == -1


# Restarts


def test_members_survive_a_restart_of_their_coordinator() -> None:
    """The generation, the assignment and the sessions are the same after the restart."""
    with Target() as own:
        topic = create_topic(own, unique_name("t"))
        with own.wire() as wire:
            member = stable_member(wire, "kept", b"mine", instance_id="i1", session_timeout_ms=120_000)
            assert member.commit(topic, 9) == ErrorCode.NONE
        own.restart()
        with own.wire() as wire:
            find_coordinator(wire, "kept")
            member.wire = wire
            assert member.heartbeat() == ErrorCode.NONE
            assert bytes(member.sync().assignment) == b"mine"
            assert committed(wire, "kept", topic) == 9
            assert member.commit(topic, 10) == ErrorCode.NONE
