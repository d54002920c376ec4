"""The form of error responses in old versions of group requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from felice.env import SystemClock
from felice.metadata.image import BrokerImage, ClusterImage
from felice.metadata.layout import Endpoint
from felice.protocol.codec import encode
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
)
from felice.server.group_lookups import GroupLookups
from felice.server.handlers import find_coordinator, join_group, leave_group, offset_fetch


def context(version: int, **answers: Any) -> Any:
    """A coordinator that gives each call the answer set for it."""
    coordinator = SimpleNamespace(
        **{name: lambda *_, answer=answer: answer for name, answer in answers.items()}
    )
    endpoint = Endpoint("PLAINTEXT", "h", 9092)
    image = ClusterImage(brokers={1: BrokerImage(1, {"PLAINTEXT": endpoint}, None, 0)})
    return SimpleNamespace(
        version=version,
        client_id="c",
        session=SimpleNamespace(peer="127.0.0.1", client_software=""),
        listener_name="PLAINTEXT",
        services=SimpleNamespace(
            env=SimpleNamespace(clock=SystemClock()),
            coordinators=SimpleNamespace(groups=coordinator),
            broker_id=1,
            group_lookups=GroupLookups(lambda: 0.0),
            image=image,
            auto_topics=SimpleNamespace(fault_of=lambda topic: None),
        ),
    )


@pytest.mark.parametrize("version", range(1, 8))
def test_the_groups_error_is_that_of_each_partition_too(version: int) -> None:
    """Rule 68: otherwise a client would treat the missing offsets as not committed; aiokafka does so in version 3."""
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    failed = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
    answer: Any = offset_fetch.handle(request, context(version, fetch=failed))
    encode(answer, version)
    rows = [(row.committed_offset, row.error_code) for row in answer.topics[0].partitions]
    assert rows == [(-1, ErrorCode.NOT_COORDINATOR)] * 2
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(3))
def test_old_leave_group_has_one_error(version: int) -> None:
    request = LeaveGroupRequest(group_id="g", member_id="m")
    whole = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    one = LeaveGroupResponse(members=[MemberResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)])
    for given, expected in ((whole, ErrorCode.NOT_COORDINATOR), (one, ErrorCode.UNKNOWN_MEMBER_ID)):
        answer: Any = leave_group.handle(request, context(version, leave=given))
        encode(answer, version)
        assert answer.error_code == expected


@pytest.mark.parametrize("version", range(10))
def test_a_failed_join_can_be_encoded_in_every_version(version: int) -> None:
    def failed() -> JoinGroupResponse:
        return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=None)

    async def parked() -> Any:
        future: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        future.set_result(failed())
        answer: Any = join_group.handle(JoinGroupRequest(), context(version, join=future))
        return await answer

    at_once: Any = join_group.handle(JoinGroupRequest(), context(version, join=failed()))
    for answer in (at_once, asyncio.run(parked())):
        encode(answer, version)
        assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(
    ("node_id", "expected"), [(-1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, 15), (1, ErrorCode.NONE)]
)
def test_a_coordinator_is_named_only_if_it_can_be_reached(version: int, node_id: int, expected: int) -> None:
    request = FindCoordinatorRequest()
    if version >= 4:
        request.coordinator_keys = ["g"]
    answer: Any = find_coordinator.handle(request, context(version, leader_of=node_id))
    encode(answer, version)
    row = answer.coordinators[0] if version >= 4 else answer
    reached = ("h", 9092, 1) if expected == ErrorCode.NONE else ("", -1, -1)
    assert (row.error_code, row.host, row.port, row.node_id) == (expected, *reached)
