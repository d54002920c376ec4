"""Guards over handlers that a test holds in its hand: what reaches a handler, and what is added to its response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from begun_calls import at_once, under_way
from felice.env import SystemClock
from felice.protocol.api import API, Api
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from felice.protocol.messages.join_group import JoinGroupRequest
from felice.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from felice.protocol.messages.produce import ProduceRequest, TopicProduceData
from felice.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from felice.security.acl import Operation, ResourceType
from felice.server.context import NO_REPLY, CloseConnection
from felice.server.flow import pace
from felice.server.handlers.table import GuardedHandlers
from felice.server.security.access_control import EVERYTHING


class Allowing:
    """The access of a client that may use the named resources."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[tuple[Operation, ResourceType, str]] = []

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        self.asked.append((operation, kind, name))
        return name in self.names

    shows = allows

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        return False

    def operations(self, kind: ResourceType, name: str) -> int:
        return 0


class Context:
    """The parts of a request's context that guards use."""

    def __init__(self, access: Any, version: int = 2) -> None:
        self.access = access
        self.version = version
        self.events: list[str] = []
        self.session = SimpleNamespace(
            hold=lambda: self.events.append("hold"), release=lambda: self.events.append("release")
        )
        self.services = SimpleNamespace(
            env=SimpleNamespace(clock=SystemClock()),
            image_follower=SimpleNamespace(check_session=lambda: self.events.append("session checked")),
            image=SimpleNamespace(topic_names={}),
        )


def deleting(seen: list[list[str]]) -> Callable[[Any, Any], Coroutine[Any, Any, DeleteGroupsResponse]]:
    async def handle(request: DeleteGroupsRequest, context: Any) -> DeleteGroupsResponse:
        seen.append(request.groups_names)
        rows = [DeletableGroupResult(group_id=name) for name in request.groups_names]
        return DeleteGroupsResponse(results=rows)

    return handle


def guard(api: Api) -> Any:
    """The guard of an API, for the contexts of this module."""
    return lambda request, context, handle: GuardedHandlers({api.key: handle})[api.key](request, context)


def codes(answer: DeleteGroupsResponse) -> dict[str, int]:
    return {row.group_id: row.error_code for row in answer.results}


def test_only_allowed_items_reach_the_handler() -> None:
    seen: list[list[str]] = []
    access = Allowing("a", "c")
    request = DeleteGroupsRequest(groups_names=["a", "b", "c", "b"])
    answer = at_once(guard(API.DELETE_GROUPS)(request, Context(access), deleting(seen)))
    assert seen == [["a", "c"]]
    assert codes(answer) == {"a": 0, "c": 0, "b": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert access.asked[0] == (Operation.DELETE, ResourceType.GROUP, "a")


def test_a_handler_is_not_called_where_nothing_is_allowed() -> None:
    """Its list would be empty, which means all in many APIs."""
    seen: list[list[str]] = []
    request = DeleteGroupsRequest(groups_names=["a"])
    answer = at_once(guard(API.DELETE_GROUPS)(request, Context(Allowing()), deleting(seen)))
    assert not seen
    assert codes(answer) == {"a": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_an_empty_list_and_a_list_of_allowed_items_pass_unchanged() -> None:
    seen: list[list[str]] = []
    for names in ([], ["a", "b"]):
        context = Context(EVERYTHING)
        at_once(guard(API.DELETE_GROUPS)(DeleteGroupsRequest(groups_names=names), context, deleting(seen)))
    assert seen == [[], ["a", "b"]]


def test_a_long_list_is_checked_in_slices_while_later_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_WORK_S", 1e-9)
    seen: list[list[str]] = []
    names = [f"g{number}" for number in range(5000)]
    context = Context(Allowing("g7"))

    async def handle(request: DeleteGroupsRequest, context: Any) -> DeleteGroupsResponse:
        context.events.append("handled")
        return await deleting(seen)(request, context)

    async def scenario() -> None:
        answering = under_way(
            guard(API.DELETE_GROUPS)(DeleteGroupsRequest(groups_names=names), context, handle)
        )
        assert context.events == ["hold"]
        answer = await answering
        assert seen == [["g7"]]
        assert len(answer.results) == 5000
        # Later requests may go on as soon as the handler was called.
        assert context.events == ["hold", "session checked", "release", "handled"]

    asyncio.run(scenario())


def test_later_requests_go_on_after_a_check_that_failed() -> None:
    context = Context(SimpleNamespace(allows=lambda *_: 1 / 0))
    request = DeleteGroupsRequest(groups_names=["g"] * 2000)

    async def scenario() -> None:
        try:
            await guard(API.DELETE_GROUPS)(request, context, deleting([]))
        except ZeroDivisionError:
            return
        raise AssertionError("the fault was swallowed")

    asyncio.run(scenario())
    assert context.events == ["hold", "release"]


def test_produce_without_acks_closes_the_connection_after_it_wrote_what_is_allowed() -> None:
    seen: list[list[str]] = []

    async def handle(request: ProduceRequest, context: Any) -> Any:
        seen.append([topic.name for topic in request.topic_data])
        return NO_REPLY

    def send(*names: str) -> Any:
        topics = [TopicProduceData(name=name) for name in names]
        request = ProduceRequest(acks=0, topic_data=topics)
        return at_once(guard(API.PRODUCE)(request, Context(Allowing("a"), 9), handle))

    assert send("a") is NO_REPLY
    for names in (("a", "b"), ("b",)):
        try:
            send(*names)
        except CloseConnection:
            continue
        raise AssertionError("the connection stays open")
    assert seen == [["a"], ["a"]]


def test_a_member_that_is_refused_gets_no_protocol() -> None:
    context = Context(Allowing(), 9)
    answer = at_once(guard(API.JOIN_GROUP)(JoinGroupRequest(group_id="g"), context, deleting([])))
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert answer.protocol_name is None


def test_an_api_that_is_not_offered_has_no_handler() -> None:
    def handle(request: Any, context: Any) -> Any:
        raise AssertionError("it must not be called")

    handlers = GuardedHandlers({API.API_VERSIONS.key: handle, 32_000: handle})
    assert handlers[API.API_VERSIONS.key] is handlers[API.API_VERSIONS.key]
    try:
        handlers[32_000]
    except KeyError:
        return
    raise AssertionError("an API without a guard was found")


def answering(answer: Any, seen: list[Any] | None = None) -> Any:
    """A handler with one answer; `seen` gets its requests."""

    async def handle(request: Any, context: Any) -> Any:
        if seen is not None:
            seen.append(request)
        return answer

    return handle


def test_offsets_are_deleted_of_no_topic_where_none_is_allowed_and_the_groups_error_is_told() -> None:
    seen: list[OffsetDeleteRequest] = []
    topics = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()])]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    failed = OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    context = Context(Allowing("g"), 0)
    assert at_once(guard(API.OFFSET_DELETE)(request, context, answering(failed, seen))) is failed
    assert [one.topics for one in seen] == [[]]
    # The group's error stands for all topics: the response has no rows beside it.
    assert not failed.topics
    request.topics = topics
    done = at_once(guard(API.OFFSET_DELETE)(request, context, answering(OffsetDeleteResponse())))
    assert [row.name for row in done.topics] == ["t"]


def test_a_sync_without_its_protocol_is_refused_for_that_before_permissions_are_checked() -> None:
    access, seen = Allowing(), list[SyncGroupRequest]()
    named = SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range")
    context = Context(access, 5)
    for request in (SyncGroupRequest(group_id="g"), named):
        at_once(guard(API.SYNC_GROUP)(request, context, answering(SyncGroupResponse(), seen)))
    assert seen == [SyncGroupRequest(group_id="g")]
    assert access.asked == [(Operation.READ, ResourceType.GROUP, "g")]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_a_fetch_of_offsets_has_rows_of_refused_topics_unless_the_group_failed(error: ErrorCode) -> None:
    refused = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[3]) for name in ("seen", "hidden")]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    group = OffsetFetchResponseGroup(group_id="g", error_code=error)
    answer = OffsetFetchResponse(groups=[group])
    at_once(guard(API.OFFSET_FETCH)(request, Context(Allowing("g", "seen"), 8), answering(answer)))
    rows = [row for topic in group.topics for row in topic.partitions]
    assert [(row.error_code, row.committed_offset) for row in rows] == ([] if error else [refused])
    # Before version 8 the request is about one group, and its response has the topics.
    old = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="hidden", partition_indexes=[3])]
    )
    found = at_once(guard(API.OFFSET_FETCH)(old, Context(Allowing("g"), 7), answering(OffsetFetchResponse())))
    ((row,),) = [topic.partitions for topic in found.topics]
    assert (row.partition_index, row.error_code, row.committed_offset) == (3, *refused)
