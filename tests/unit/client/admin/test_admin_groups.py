"""Consumer groups and their offsets through the admin client."""

from __future__ import annotations

from typing import Any

import pytest

from felice.client import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from felice.client.admin import (
    AclOperation,
    AdminClient,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
    Node,
)
from felice.client.error import error_of, failure
from felice.client.model import OFFSET_INVALID, BrokerMetadata
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from felice.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from felice.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from unit.client.admin.exchange import TIMEOUT_S, Exchange, broker_ranges, plain
from unit.client.fake_broker import FakeBroker

LISTED = [
    ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="Consumer"),
    ListedGroup(group_id="simple", protocol_type="", group_state="emptY"),
]
LISTINGS = [
    ConsumerGroupListing("g", False, ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER, "consumer"),
    ConsumerGroupListing("simple", True, ConsumerGroupState.EMPTY, ConsumerGroupType.CLASSIC, ""),
]
STATES = [ConsumerGroupState.STABLE, ConsumerGroupState.PREPARING_REBALANCING]


def offsets_of(group_id: str, *partitions: TopicPartition) -> ConsumerGroupTopicPartitions:
    return ConsumerGroupTopicPartitions(group_id, list(partitions))


def committed(*rows: OffsetFetchResponsePartitions, error_code: int = 0) -> OffsetFetchResponse:
    topics = [OffsetFetchResponseTopics(name="t", partitions=list(rows))]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error_code)
    return OffsetFetchResponse(groups=[group])


def fetch(topics: list[OffsetFetchRequestTopics] | None, require_stable: bool = False) -> OffsetFetchRequest:
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


GROUPS = [
    Exchange(
        "groups are listed by state and type",
        lambda admin: admin.list_consumer_groups(
            states=STATES, types=[ConsumerGroupType.CLASSIC], request_timeout=TIMEOUT_S
        ),
        [ListGroupsRequest(states_filter=["Stable", "PreparingRebalance"], types_filter=["classic"])],
        [ListGroupsResponse(groups=LISTED)],
        ListConsumerGroupsResult(LISTINGS, []),
    ),
    Exchange(
        "a broker that cannot list groups is among the errors",
        lambda admin: admin.list_consumer_groups(),
        [ListGroupsRequest()],
        [ListGroupsResponse(groups=LISTED[:1], error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)],
        ListConsumerGroupsResult(LISTINGS[:1], [failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "broker 1")]),
    ),
    *(
        Exchange(
            f"version {version} of ListGroups has the filters that it knows",
            lambda admin: admin.list_consumer_groups(states=STATES[:1], types=[ConsumerGroupType.CLASSIC]),
            [ListGroupsRequest(states_filter=states)],
            [ListGroupsResponse()],
            ListConsumerGroupsResult([], []),
            ranges=broker_ranges({16: (0, version)}),
        )
        for version, states in ((3, []), (4, ["Stable"]))
    ),
    Exchange(
        "a group is described with the operations allowed on it",
        lambda admin: admin.describe_consumer_groups(
            ["g"], include_authorized_operations=True, request_timeout=TIMEOUT_S
        )["g"],
        [DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)],
        [
            DescribeGroupsResponse(
                groups=[
                    DescribedGroup(
                        group_id="g",
                        group_state="Stable",
                        protocol_type="connect",
                        protocol_data="sessioned",
                        members=[DescribedGroupMember(member_id="m", client_id="c", client_host="/h")],
                        authorized_operations=1 << AclOperation.READ.value,
                    )
                ]
            )
        ],
        ConsumerGroupDescription(
            "g",
            False,
            [MemberDescription("m", "c", "/h", MemberAssignment([]))],
            "sessioned",
            ConsumerGroupState.STABLE,
            Node(1, "127.0.0.1", 0),
            [AclOperation.READ],
            ConsumerGroupType.CLASSIC,
            "connect",
        ),
    ),
    Exchange(
        "a group without members and protocol is simple",
        lambda admin: admin.describe_consumer_groups(["g"])["g"],
        [DescribeGroupsRequest(groups=["g"])],
        [DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Empty")])],
        ConsumerGroupDescription(
            "g",
            True,
            [],
            "",
            ConsumerGroupState.EMPTY,
            Node(1, "127.0.0.1", 0),
            None,
            ConsumerGroupType.CLASSIC,
            "",
        ),
    ),
    Exchange(
        "a refusal has the broker's reason",
        lambda admin: admin.describe_consumer_groups(["g"])["g"],
        [DescribeGroupsRequest(groups=["g"])],
        [
            DescribeGroupsResponse(
                groups=[DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="why")]
            )
        ],
        failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "why"),
    ),
    Exchange(
        "a refusal without a reason names the group",
        lambda admin: admin.describe_consumer_groups(["g"])["g"],
        [DescribeGroupsRequest(groups=["g"])],
        [DescribeGroupsResponse(groups=[DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)])],
        failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g"),
    ),
    Exchange(
        "brokers before version 3 of DescribeGroups do not report operations",
        lambda admin: admin.describe_consumer_groups(["g"], include_authorized_operations=True)["g"],
        [],
        [],
        failure(KafkaError._UNSUPPORTED_FEATURE, "the broker does not report authorized operations"),
        ranges=broker_ranges({15: (0, 2)}),
    ),
    Exchange(
        "version 3 of DescribeGroups reports operations",
        lambda admin: admin.describe_consumer_groups(["g"], include_authorized_operations=True)["g"],
        [DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)],
        [DescribeGroupsResponse(groups=[DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)])],
        failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g"),
        ranges=broker_ranges({15: (0, 3)}),
    ),
    Exchange(
        "a group is deleted",
        lambda admin: admin.delete_consumer_groups(["g"], request_timeout=TIMEOUT_S),
        [DeleteGroupsRequest(groups_names=["g"])],
        [DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")])],
        {"g": None},
    ),
    Exchange(
        "a group with members is not deleted",
        lambda admin: admin.delete_consumer_groups(["g"]),
        [DeleteGroupsRequest(groups_names=["g"])],
        [
            DeleteGroupsResponse(
                results=[DeletableGroupResult(group_id="g", error_code=ErrorCode.NON_EMPTY_GROUP)]
            )
        ],
        {"g": failure(ErrorCode.NON_EMPTY_GROUP, "g")},
    ),
    Exchange(
        "members are removed",
        lambda admin: admin.remove_consumer_group_members(
            "g", [("m-1", None), ("", "i-2"), ("", "i-3")], request_timeout=TIMEOUT_S
        ),
        [
            LeaveGroupRequest(
                group_id="g",
                members=[
                    MemberIdentity(member_id="m-1", reason="removed by an administrator"),
                    MemberIdentity(group_instance_id="i-2", reason="removed by an administrator"),
                    MemberIdentity(group_instance_id="i-3", reason="removed by an administrator"),
                ],
            )
        ],
        [
            LeaveGroupResponse(
                members=[
                    MemberResponse(
                        member_id="m-1", group_instance_id=None, error_code=ErrorCode.UNKNOWN_MEMBER_ID
                    ),
                    MemberResponse(group_instance_id="i-2"),
                    MemberResponse(group_instance_id="i-3", error_code=ErrorCode.UNKNOWN_MEMBER_ID),
                ]
            )
        ],
        {
            ("m-1", None): failure(ErrorCode.UNKNOWN_MEMBER_ID, "m-1"),
            ("", "i-2"): None,
            ("", "i-3"): failure(ErrorCode.UNKNOWN_MEMBER_ID, "g"),
        },
    ),
    Exchange(
        "no member of a foreign group is removed",
        lambda admin: admin.remove_consumer_group_members("g", [("m-1", None)]),
        [
            LeaveGroupRequest(
                group_id="g", members=[MemberIdentity(member_id="m-1", reason="removed by an administrator")]
            )
        ],
        [LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)],
        failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g"),
    ),
]

OFFSETS = [
    Exchange(
        "all committed offsets of a group are listed",
        lambda admin: admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions("g")], request_timeout=TIMEOUT_S
        ),
        [fetch(None)],
        [
            committed(
                OffsetFetchResponsePartitions(
                    partition_index=1, committed_offset=5, committed_leader_epoch=4, metadata="note"
                ),
                OffsetFetchResponsePartitions(
                    partition_index=2, committed_offset=0, committed_leader_epoch=0
                ),
                OffsetFetchResponsePartitions(partition_index=3, committed_offset=-1, metadata=""),
                OffsetFetchResponsePartitions(
                    partition_index=4,
                    committed_offset=-1,
                    metadata="",
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ),
            )
        ],
        {
            "g": offsets_of(
                "g",
                TopicPartition("t", 1, 5, "note", 4),
                TopicPartition("t", 2, 0, None, 0),
                TopicPartition("t", 3, OFFSET_INVALID),
                TopicPartition("t", 4, OFFSET_INVALID, error=error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
            )
        },
    ),
    Exchange(
        "some committed offsets are listed, without those of open transactions",
        lambda admin: admin.list_consumer_group_offsets(
            [offsets_of("g", TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("t", 1))],
            require_stable=True,
        ),
        [
            fetch(
                [
                    OffsetFetchRequestTopics(name="t", partition_indexes=[2, 1]),
                    OffsetFetchRequestTopics(name="u", partition_indexes=[0]),
                ],
                require_stable=True,
            )
        ],
        [committed(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)],
        {"g": failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")},
    ),
    *(
        Exchange(
            f"version {version} of OffsetFetch asks for one group",
            lambda admin: admin.list_consumer_group_offsets(
                [offsets_of("g", TopicPartition("t", 2))], require_stable=True
            ),
            [
                OffsetFetchRequest(
                    group_id="g",
                    topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[2])],
                    require_stable=stable,
                )
            ],
            [
                OffsetFetchResponse(
                    topics=[
                        OffsetFetchResponseTopic(
                            name="t",
                            partitions=[OffsetFetchResponsePartition(partition_index=2, committed_offset=6)],
                        )
                    ]
                )
            ],
            {"g": offsets_of("g", TopicPartition("t", 2, 6))},
            ranges=broker_ranges({9: (1, version)}),
        )
        for version, stable in ((6, False), (7, True))
    ),
    Exchange(
        "version 7 of OffsetFetch lists all offsets",
        lambda admin: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]),
        [OffsetFetchRequest(group_id="g", topics=None)],
        [OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)],
        {"g": failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")},
        ranges=broker_ranges({9: (1, 7)}),
    ),
    Exchange(
        "offsets of a group are set",
        lambda admin: admin.alter_consumer_group_offsets(
            [offsets_of("g", TopicPartition("t", 2, 5, "note", 0), TopicPartition("t", 1, 6))],
            request_timeout=TIMEOUT_S,
        ),
        [
            OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=-1,
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=2,
                                committed_offset=5,
                                committed_leader_epoch=0,
                                committed_metadata="note",
                            ),
                            OffsetCommitRequestPartition(
                                partition_index=1, committed_offset=6, committed_metadata=""
                            ),
                        ],
                    )
                ],
            )
        ],
        [
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name="t",
                        partitions=[
                            OffsetCommitResponsePartition(partition_index=2),
                            OffsetCommitResponsePartition(
                                partition_index=1, error_code=ErrorCode.UNKNOWN_MEMBER_ID
                            ),
                        ],
                    )
                ]
            )
        ],
        {
            "g": offsets_of(
                "g",
                TopicPartition("t", 2, 5),
                TopicPartition("t", 1, 6, error=error_of(ErrorCode.UNKNOWN_MEMBER_ID)),
            )
        },
    ),
    Exchange(
        "no offsets are nothing to delete",
        lambda admin: admin.delete_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]),
        [OffsetDeleteRequest(group_id="g")],
        [OffsetDeleteResponse()],
        {"g": offsets_of("g")},
    ),
    Exchange(
        "offsets of a group are deleted",
        lambda admin: admin.delete_consumer_group_offsets(
            [offsets_of("g", TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("t", 1))],
            request_timeout=TIMEOUT_S,
        ),
        [
            OffsetDeleteRequest(
                group_id="g",
                topics=[
                    OffsetDeleteRequestTopic(
                        name="t",
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=2),
                            OffsetDeleteRequestPartition(partition_index=1),
                        ],
                    ),
                    OffsetDeleteRequestTopic(
                        name="u", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                    ),
                ],
            )
        ],
        [
            OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponseTopic(
                        name="t",
                        partitions=[
                            OffsetDeleteResponsePartition(partition_index=2),
                            OffsetDeleteResponsePartition(
                                partition_index=1, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                            ),
                        ],
                    )
                ]
            )
        ],
        {
            "g": offsets_of(
                "g",
                TopicPartition("t", 2),
                TopicPartition("t", 1, error=error_of(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),
            )
        },
    ),
    Exchange(
        "no offsets of a foreign group are deleted",
        lambda admin: admin.delete_consumer_group_offsets([offsets_of("g", TopicPartition("t", 2))]),
        [
            OffsetDeleteRequest(
                group_id="g",
                topics=[
                    OffsetDeleteRequestTopic(
                        name="t", partitions=[OffsetDeleteRequestPartition(partition_index=2)]
                    )
                ],
            )
        ],
        [OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)],
        {"g": failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")},
    ),
]


@pytest.mark.parametrize("exchange", GROUPS + OFFSETS, ids=str)
def test_groups(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected


MOVED = ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("call", "kind", "moved", "settled"),
    [
        (
            lambda admin: admin.describe_consumer_groups(["g"]),
            DescribeGroupsRequest,
            DescribeGroupsResponse(groups=[DescribedGroup(error_code=MOVED)]),
            DescribeGroupsResponse(groups=[DescribedGroup(group_state="Empty")]),
        ),
        (
            lambda admin: admin.delete_consumer_groups(["g"]),
            DeleteGroupsRequest,
            DeleteGroupsResponse(results=[DeletableGroupResult(error_code=MOVED)]),
            DeleteGroupsResponse(results=[DeletableGroupResult()]),
        ),
        (
            lambda admin: {"g": admin.remove_consumer_group_members("g", [("m", None)])},
            LeaveGroupRequest,
            LeaveGroupResponse(error_code=MOVED),
            LeaveGroupResponse(),
        ),
        (
            lambda admin: admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]),
            OffsetFetchRequest,
            committed(error_code=MOVED),
            committed(),
        ),
        (
            lambda admin: admin.alter_consumer_group_offsets([offsets_of("g", TopicPartition("t", 0, 1))]),
            OffsetCommitRequest,
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name="t", partitions=[OffsetCommitResponsePartition(error_code=MOVED)]
                    )
                ]
            ),
            OffsetCommitResponse(
                topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition()])]
            ),
        ),
        (
            lambda admin: admin.delete_consumer_group_offsets([offsets_of("g", TopicPartition("t", 0))]),
            OffsetDeleteRequest,
            OffsetDeleteResponse(error_code=MOVED),
            OffsetDeleteResponse(),
        ),
    ],
)
def test_a_coordinator_that_moved_is_looked_up_again(call: Any, kind: type, moved: Any, settled: Any) -> None:
    with FakeBroker({"t": 1}) as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(kind, moved, settled)
        call(admin)["g"].result(60)
        assert len(broker.asked(kind)) == 2
        assert [request.coordinator_keys for request in broker.asked(FindCoordinatorRequest)] == [
            ["g"],
            ["g"],
        ]


def test_groups_are_listed_with_their_members_bytes() -> None:
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"\x01", member_assignment=b"\x02"
    )
    stable = DescribedGroup(
        group_id="b", group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member]
    )
    refused = DescribedGroup(group_id="a", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    why = DescribedGroup(group_id="b", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="why")
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        listed = ListGroupsResponse(groups=[ListedGroup(group_id="b"), ListedGroup(group_id="a")])
        broker.script(ListGroupsRequest, listed, listed)
        broker.script(
            DescribeGroupsRequest, *(DescribeGroupsResponse(groups=[row]) for row in (refused, stable, why))
        )
        found = admin.list_groups(timeout=60)
        [only] = admin.list_groups("b")
        where = BrokerMetadata(1, "127.0.0.1", broker.port)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert plain(found) == plain(
        [
            GroupMetadata(where, "a", error_of(code, "a"), "", "", "", []),
            GroupMetadata(
                where,
                "b",
                None,
                "Stable",
                "consumer",
                "range",
                [GroupMember("m", "c", "/h", b"\x01", b"\x02")],
            ),
        ]
    )
    assert plain(only) == plain(GroupMetadata(where, "b", error_of(code, "why"), "", "", "", []))


def test_a_broker_without_a_connection_does_not_hide_the_groups_of_others() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        brokers = [
            MetadataResponseBroker(node_id=0, host="127.0.0.1", port=1),
            MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port),
        ]
        broker.handlers[MetadataRequest] = lambda request, version: MetadataResponse(brokers=brokers)
        broker.script(ListGroupsRequest, ListGroupsResponse(groups=LISTED))
        result = admin.list_consumer_groups().result(60)
    assert result.valid == LISTINGS
    [error] = result.errors
    assert isinstance(error, KafkaException) and error.code == KafkaError._TRANSPORT


def test_a_question_for_a_coordinator_fails_at_once_if_no_broker_answers() -> None:
    """And not at the end of the time limit, which is a minute."""
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        asked = [
            *admin.describe_consumer_groups(["g"]).values(),
            *admin.delete_consumer_groups(["g"]).values(),
        ]
        for future in asked:
            with pytest.raises(KafkaException) as raised:
                future.result(40)
            assert raised.value.args[0].code() == KafkaError._ALL_BROKERS_DOWN
