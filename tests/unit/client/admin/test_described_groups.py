"""Describing a group: every field of the coordinator's response has its place in the result."""

from __future__ import annotations

import pytest

from felice.client import ConsumerGroupState, KafkaException, TopicPartition
from felice.client.admin import (
    AclOperation,
    AdminClient,
    ConsumerGroupType,
    MemberAssignment,
    MemberDescription,
)
from felice.protocol.api import API
from felice.protocol.codec import encode_data
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_describe import (
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    MEMBER_TYPE_UNKNOWN,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from felice.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from felice.protocol.messages.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from unit.client.admin.exchange import broker_ranges
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


def consumer_group(**row: object) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(group_id="g", **row)])  # type: ignore[arg-type]


@pytest.mark.parametrize("found", [{"error_code": ErrorCode.GROUP_ID_NOT_FOUND}, {"group_state": "Dead"}])
@pytest.mark.parametrize("error", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
def test_a_group_of_no_protocol_is_dead(found: dict[str, object], error: ErrorCode) -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(DescribeGroupsRequest, described(**found))
        broker.script(ConsumerGroupDescribeRequest, consumer_group(error_code=error))
        group = admin.describe_consumer_groups(["g"])["g"].result(60)
    assert (group.state, group.type) == (ConsumerGroupState.DEAD, ConsumerGroupType.CLASSIC)


def test_a_broker_without_the_consumer_protocol_is_not_asked_for_it() -> None:
    ranges = broker_ranges({})
    del ranges[API.CONSUMER_GROUP_DESCRIBE.key]
    with FakeBroker({}, ranges) as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(DescribeGroupsRequest, described(group_state="Dead"))
        assert admin.describe_consumer_groups(["g"])["g"].result(60).state is ConsumerGroupState.DEAD


def test_a_refusal_is_an_error() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        missing, refusal = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED
        broker.script(DescribeGroupsRequest, described(error_code=refusal), described(error_code=missing))
        broker.script(ConsumerGroupDescribeRequest, consumer_group(error_code=refusal))
        for _ in range(2):
            refused = admin.describe_consumer_groups(["g"])["g"].exception(60)
            assert isinstance(refused, KafkaException)
            assert refused.args[0].code() == refusal


def test_a_group_of_the_consumer_protocol_has_epochs_and_targets() -> None:
    assigned, target = (
        Assignment(topic_partitions=[TopicPartitions(topic_name="t", partitions=numbers)])
        for numbers in ([0], [0, 2])
    )
    members = [
        Member(
            member_id="m",
            instance_id="i",
            member_epoch=4,
            client_id="app",
            client_host="/10.0.0.1",
            assignment=assigned,
            target_assignment=target,
            member_type=kind,
        )
        for kind in (MEMBER_TYPE_CONSUMER, MEMBER_TYPE_CLASSIC, MEMBER_TYPE_UNKNOWN)
    ]
    answer = consumer_group(
        group_state="Reconciling",
        group_epoch=6,
        assignment_epoch=5,
        assignor_name="range",
        members=members,
        authorized_operations=1 << AclOperation.READ.value,
    )
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        missing = described(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        broker.script(DescribeGroupsRequest, missing, missing)
        moved = consumer_group(error_code=ErrorCode.NOT_COORDINATOR)
        broker.script(ConsumerGroupDescribeRequest, moved, answer)
        asked = admin.describe_consumer_groups(["g"], include_authorized_operations=True)
        group = asked["g"].result(60)
        requests = broker.asked(ConsumerGroupDescribeRequest)
    assert [request.include_authorized_operations for request in requests] == [True, True]
    assert (group.state, group.type) == (ConsumerGroupState.RECONCILING, ConsumerGroupType.CONSUMER)
    assert (group.group_epoch, group.target_assignment_epoch) == (6, 5)
    assert (group.partition_assignor, group.is_simple_consumer_group) == ("range", False)
    assert group.authorized_operations == [AclOperation.READ]
    assert group.members[0] == MemberDescription(
        "m",
        "app",
        "/10.0.0.1",
        MemberAssignment([TopicPartition("t", 0)]),
        "i",
        MemberAssignment([TopicPartition("t", 0), TopicPartition("t", 2)]),
        4,
        True,
    )
    assert [member.is_upgraded for member in group.members] == [True, False, None]
