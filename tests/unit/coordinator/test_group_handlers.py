"""The form of error responses in old versions of group requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from begun_calls import at_once
from felice.metadata.image import BrokerImage, ClusterImage
from felice.metadata.layout import Endpoint
from felice.protocol.codec import encode
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.server.context import RequestContext
from felice.server.handlers import (
    consumer_group_heartbeat,
    find_coordinator,
    join_group,
    leave_group,
    offset_fetch,
)
from felice.server.services import Services
from rooms import context_with

MakeContext: TypeAlias = Callable[..., RequestContext]


@pytest.fixture
def context(services: Services) -> MakeContext:
    """A coordinator that gives each call the answer set for it: `context(version, join=answer)`."""

    def call(name: str, answer: Any) -> Any:
        async def later(*_: object) -> Any:
            return answer

        return (lambda *_: answer) if name == "leader_of" else later

    def context(version: int, **answers: Any) -> RequestContext:
        groups = SimpleNamespace(**{name: call(name, answer) for name, answer in answers.items()})
        endpoint = Endpoint("PLAINTEXT", "h", 9092)
        image = ClusterImage(brokers={1: BrokerImage(1, {"PLAINTEXT": endpoint}, None, 0)})
        parts: Any = {
            "coordinators": SimpleNamespace(groups=groups),
            "watcher": SimpleNamespace(image=image),
        }
        return context_with(replace(services, **parts), version)

    return context


@pytest.mark.parametrize("version", [1, 7])
@pytest.mark.parametrize("asks_for_all", [False, True])
def test_offset_fetch_of_one_group_has_its_offsets(
    context: MakeContext, version: int, asks_for_all: bool
) -> None:
    asked: list[tuple[OffsetFetchRequestGroup, bool]] = []
    found = OffsetFetchResponseGroup(
        group_id="g",
        topics=[
            OffsetFetchResponseTopics(
                name="t",
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=1, committed_offset=5, committed_leader_epoch=3, metadata="m"
                    ),
                    OffsetFetchResponsePartitions(
                        partition_index=0, committed_offset=-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
                    ),
                ],
            )
        ],
    )

    async def fetch(group: OffsetFetchRequestGroup, require_stable: bool, client: object) -> Any:
        asked.append((group, require_stable))
        return found

    made = context(version)
    made.services.coordinators.groups.fetch = fetch
    topics = None if asks_for_all else [OffsetFetchRequestTopic(name="t", partition_indexes=[1, 0])]
    request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
    answer: Any = at_once(offset_fetch.handle(request, made))
    ((group, require_stable),) = asked
    assert (group.group_id, require_stable) == ("g", True)
    wanted = None if asks_for_all else [OffsetFetchRequestTopics(name="t", partition_indexes=[1, 0])]
    assert group.topics == wanted
    assert (answer.error_code, answer.groups) == (ErrorCode.NONE, [])
    (topic,) = answer.topics
    assert topic.name == "t"
    rows = [
        (row.partition_index, row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code)
        for row in topic.partitions
    ]
    assert rows == [(1, 5, 3, "m", 0), (0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)]


@pytest.mark.parametrize("version", range(1, 8))
def test_the_groups_error_is_that_of_each_partition_too(context: MakeContext, version: int) -> None:
    """Rule 68: otherwise a client would treat the missing offsets as not committed; aiokafka does so in version 3."""
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    failed = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
    answer: Any = at_once(offset_fetch.handle(request, context(version, fetch=failed)))
    encode(answer, version)
    (topic,) = answer.topics
    rows = [(row.partition_index, row.committed_offset, row.error_code) for row in topic.partitions]
    assert topic.name == "t"
    assert rows == [(index, -1, ErrorCode.NOT_COORDINATOR) for index in (0, 1)]
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(3))
def test_old_leave_group_has_one_error(context: MakeContext, version: int) -> None:
    request = LeaveGroupRequest(group_id="g", member_id="m")
    whole = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    one = LeaveGroupResponse(members=[MemberResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)])
    for given, expected in ((whole, ErrorCode.NOT_COORDINATOR), (one, ErrorCode.UNKNOWN_MEMBER_ID)):
        answer: Any = at_once(leave_group.handle(request, context(version, leave=given)))
        encode(answer, version)
        assert answer.error_code == expected


@pytest.mark.parametrize("version", range(10))
def test_a_failed_join_can_be_encoded_in_every_version(context: MakeContext, version: int) -> None:
    failed = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=None)
    answer: Any = at_once(join_group.handle(JoinGroupRequest(), context(version, join=failed)))
    encode(answer, version)
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(
    ("node_id", "expected"), [(-1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, 15), (1, ErrorCode.NONE)]
)
def test_a_coordinator_is_named_only_if_it_can_be_reached(
    context: MakeContext, version: int, node_id: int, expected: int
) -> None:
    request = FindCoordinatorRequest()
    if version >= 4:
        request.coordinator_keys = ["g"]
    answer: Any = at_once(find_coordinator.handle(request, context(version, leader_of=node_id)))
    encode(answer, version)
    row = answer.coordinators[0] if version >= 4 else answer
    reached = ("h", 9092, 1) if expected == ErrorCode.NONE else ("", -1, -1)
    assert (row.error_code, row.host, row.port, row.node_id) == (expected, *reached)


def test_a_cluster_without_the_feature_refuses_members_of_consumer_groups(context: MakeContext) -> None:
    """Also without an authorizer, when no guard runs."""
    asked = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
    answer = at_once(consumer_group_heartbeat.handle(asked, context(1)))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
