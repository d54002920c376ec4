import pytest

from felice.client.group.consumer_member import ConsumerMember
from felice.client.group.member import GroupSettings, MemberAction, next_step
from felice.protocol.codec import decode_data, encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember


def member(*assignors: str, instance_id: str | None = None) -> ConsumerMember:
    settings = GroupSettings("g", PROTOCOL_TYPE, instance_id, 6000, 60000)
    return ConsumerMember(settings, assignors or ("range",))


def joined(member_id: str = "me", leader: str = "me", generation: int = 3) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation, protocol_name="range", leader=leader, member_id=member_id
    )


def assignment(*numbers: int) -> bytes:
    rows = [AssignedTopic(topic="t", partitions=list(numbers))] if numbers else []
    return encode_data(ConsumerProtocolAssignment(assigned_partitions=rows), 0)


@pytest.mark.parametrize(
    ("code", "step"),
    [
        (ErrorCode.NONE, MemberAction.GO_ON),
        (ErrorCode.REBALANCE_IN_PROGRESS, MemberAction.REJOIN),
        (ErrorCode.NOT_COORDINATOR, MemberAction.FIND),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MemberAction.RETRY),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberAction.FORGET),
        (ErrorCode.ILLEGAL_GENERATION, MemberAction.FORGET),
        (ErrorCode.FENCED_INSTANCE_ID, MemberAction.STOP),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, MemberAction.STOP),
        (9999, MemberAction.STOP),
    ],
)
def test_error_code_decides_the_next_action_of_the_member(code: int, step: MemberAction) -> None:
    assert next_step(code) is step


def test_member_id_given_by_the_coordinator_is_used_from_then_on() -> None:
    one = member()
    assert one.join_request(["t"], "why").member_id == ""
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert one.on_join(answer) is MemberAction.REJOIN
    assert one.join_request(["t"], "why").member_id == "me"
    assert not one.joined


def test_commits_and_heartbeats_carry_the_generation_of_the_join() -> None:
    one = member(instance_id="static")
    one.on_join(joined())
    assert one.heartbeat_request().generation_id == one.committer.generation == 3
    assert one.committer.instance_id == one.heartbeat_request().group_instance_id == "static"


def test_unknown_member_drops_its_member_id() -> None:
    one = member()
    one.on_join(joined())
    assert one.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID) is MemberAction.FORGET
    assert (one.member_id, one.generation) == ("", -1)
    assert one.committer.generation == -1


def test_eager_member_owns_nothing_when_it_joins_and_cooperative_says_what_it_keeps() -> None:
    for one, owned in ((member("range"), []), (member("cooperative-sticky"), [("t", [0, 1])])):
        one.own([("t", 0), ("t", 1)])
        metadata = one.join_request(["t"], "why").protocols[0].metadata
        said = decode_data(ConsumerProtocolSubscription, metadata)
        assert [(row.topic, row.partitions) for row in said.owned_partitions] == owned


def test_change_is_the_difference_to_what_is_owned() -> None:
    one = member("cooperative-sticky")
    one.on_join(joined())
    one.own([("t", 0), ("t", 1)])
    change = one.on_assignment(assignment(1, 2))
    assert (change.added, change.revoked, change.assigned) == ((("t", 2),), (("t", 0),), (("t", 1), ("t", 2)))


def test_empty_assignment_has_no_partitions() -> None:
    one = member()
    assert one.on_assignment(b"").assigned == one.on_assignment(assignment()).assigned == ()


def test_leader_assigns_every_partition_once() -> None:
    leader, follower = member(), member()
    rows = [
        JoinGroupResponseMember(member_id=name, metadata=one.join_request(["t"], "").protocols[0].metadata)
        for name, one in (("a", leader), ("b", follower))
    ]
    response = joined("a", "a")
    response.members = rows
    leader.on_join(response)
    assert leader.is_leader
    given = leader.assignments(leader.subscriptions(response), {"t": 3})
    parts = {name: follower.on_assignment(data).assigned for name, data in given.items()}
    assert sorted(parts["a"] + parts["b"]) == [("t", 0), ("t", 1), ("t", 2)]


def test_leave_names_the_member_in_either_version() -> None:
    one = member()
    one.on_join(joined())
    request = one.leave_request("bye")
    assert request.build(1).member_id == "me"
    assert request.build(5).members[0].member_id == "me"
    assert request.build(5).members[0].reason == "bye"
