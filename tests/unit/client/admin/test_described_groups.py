"""Describing a group: every field of the coordinator's response has its place in the result."""

from __future__ import annotations

from felice.client import ConsumerGroupState, KafkaException, TopicPartition
from felice.client.admin import AdminClient
from felice.protocol.codec import encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from unit.client.fake_broker import FakeBroker

OWNED = encode_data(
    ConsumerProtocolAssignment(assigned_partitions=[AssignedTopic(topic="t", partitions=[0, 2])]), 0
)
MEMBERS = [
    DescribedGroupMember(
        member_id="app-1",
        group_instance_id="i",
        client_id="app",
        client_host="/10.0.0.1",
        member_metadata=b"",
        member_assignment=OWNED,
    ),
    DescribedGroupMember(
        member_id="sink-2",
        client_id="sink",
        client_host="/10.0.0.2",
        member_metadata=b"",
        member_assignment=b"\xff",
    ),
]


def described(**row: object) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", **row)])  # type: ignore[arg-type]


def test_members_are_told_with_their_partitions_and_foreign_assignments_are_empty() -> None:
    answer = described(group_state="Stable", protocol_type="consumer", protocol_data="range", members=MEMBERS)
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(DescribeGroupsRequest, answer)
        group = admin.describe_consumer_groups(["g"])["g"].result(60)
    assert (group.group_id, group.state, group.partition_assignor) == (
        "g",
        ConsumerGroupState.STABLE,
        "range",
    )
    assert (group.coordinator.id, group.coordinator.port) == (1, broker.port)
    first, second = group.members
    assert (first.member_id, first.client_id, first.host) == ("app-1", "app", "/10.0.0.1")
    assert first.group_instance_id == "i"
    assert first.assignment.topic_partitions == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert (second.member_id, second.group_instance_id) == ("sink-2", None)
    assert second.assignment.topic_partitions == []


def test_a_group_that_does_not_exist_is_dead_and_a_refusal_is_an_error() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(
            DescribeGroupsRequest,
            described(error_code=ErrorCode.GROUP_ID_NOT_FOUND),
            described(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
        )
        assert admin.describe_consumer_groups(["g"])["g"].result(60).state is ConsumerGroupState.DEAD
        refused = admin.describe_consumer_groups(["g"])["g"].exception(60)
    assert isinstance(refused, KafkaException)
    assert refused.args[0].code() == ErrorCode.GROUP_AUTHORIZATION_FAILED
