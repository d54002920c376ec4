"""The results of other brokers are returned if one broker cannot be reached, and earlier results after a late error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException
from felice.client.admin import ConfigResource, retries
from felice.client.admin.results import from_each
from felice.client.aio import Admin
from felice.client.error import failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from felice.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from felice.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from felice.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from unit.client.fake_broker import Disconnect, FakeBroker, Hang


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """Leads t-0. The leader of t-1 is broker 2, which cannot be reached."""
    with FakeBroker({"t": 2}) as running:
        usual = running.handlers[MetadataRequest]

        def both(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1))
            for topic in response.topics:
                topic.partitions[1].leader_id = 2
            return response

        running.handlers[MetadataRequest] = both
        yield running


CALLS: list[tuple[Any, Any, Callable[[Admin], Awaitable[dict[Any, Any]]], list[Any]]] = [
    (
        None,
        None,
        lambda admin: admin.list_offsets({("t", 1): -1, ("t", 0): -1}),
        [("t", 1), ("t", 0)],
    ),
    (
        DeleteRecordsRequest,
        DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name="t", partitions=[DeleteRecordsPartitionResult(partition_index=0, low_watermark=3)]
                )
            ]
        ),
        lambda admin: admin.delete_records({("t", 1): 3, ("t", 0): 3}),
        [("t", 1), ("t", 0)],
    ),
    (
        DescribeProducersRequest,
        DescribeProducersResponse(
            topics=[TopicResponse(name="t", partitions=[PartitionResponse(partition_index=0)])]
        ),
        lambda admin: admin.describe_producers([("t", 1), ("t", 0)], None),
        [("t", 1), ("t", 0)],
    ),
    (
        DescribeLogDirsRequest,
        DescribeLogDirsResponse(),
        lambda admin: admin.describe_log_dirs([2, 1], None),
        [2, 1],
    ),
    (
        DescribeConfigsRequest,
        DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=4, resource_name="1")]),
        lambda admin: admin.describe_configs([ConfigResource("broker", "2"), ConfigResource("broker", "1")]),
        [ConfigResource("broker", "2"), ConfigResource("broker", "1")],
    ),
]


@pytest.mark.parametrize(("kind", "response", "call", "items"), CALLS)
async def test_a_broker_that_cannot_be_reached_fails_only_its_own_items(
    broker: FakeBroker,
    kind: Any,
    response: Any,
    call: Callable[[Admin], Awaitable[Any]],
    items: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "_is_transient", lambda result: False)
    if kind is not None:
        broker.script(kind, response)
    async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        found = await call(admin)
    unreachable, reachable = items
    assert isinstance(found[unreachable], KafkaException)
    assert found[unreachable].code == KafkaError._TRANSPORT
    assert not isinstance(found[reachable], KafkaException)


async def test_a_broker_that_can_be_reached_again_gives_its_results(broker: FakeBroker) -> None:
    down = broker.handlers[MetadataRequest]

    def up(request: MetadataRequest, version: int) -> MetadataResponse:
        response: MetadataResponse = down(request, version)
        response.brokers[-1].port = broker.port
        return response

    broker.script(MetadataRequest, down, down)
    broker.handlers[MetadataRequest] = up
    async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        found = await admin.list_offsets({("t", 1): -1, ("t", 0): -1})
    assert {partition: info.offset for partition, info in found.items()} == {("t", 1): 0, ("t", 0): 0}


async def test_the_error_of_a_repetition_is_only_that_of_the_repeated_items() -> None:
    rounds: list[list[str]] = []

    async def ask(_: object, items: list[str]) -> dict[Any, Any]:
        rounds.append(items)
        if len(rounds) > 1:
            raise failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return {"a": None, "b": failure(ErrorCode.NOT_CONTROLLER)}

    with FakeBroker() as broker:
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            found = await admin._each({"a": "a", "b": "b"}, 60, ask)
    assert rounds == [["a", "b"], ["b"]]
    assert found["a"] is None
    assert found["b"].code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_list_of_groups_that_lacks_some_is_an_error() -> None:
    refused = ListGroupsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, groups=[ListedGroup(group_id="g")]
    )
    with FakeBroker() as broker:
        broker.script(ListGroupsRequest, refused)
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            with pytest.raises(KafkaException) as failed:
                await admin.list_groups()
    assert failed.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_broker_that_was_named_is_asked_again_after_a_failure() -> None:
    response = DescribeProducersResponse(
        topics=[TopicResponse(name="t", partitions=[PartitionResponse(partition_index=0)])]
    )
    with FakeBroker({"t": 1}) as broker:
        broker.script(DescribeProducersRequest, Disconnect, response)
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            assert await admin.describe_producers([("t", 0)], 1) == {("t", 0): []}


async def test_brokers_are_asked_at_the_same_time() -> None:
    begun: list[int] = []

    async def ask(node_id: int, items: list[str]) -> dict[Any, Any]:
        begun.append(node_id)
        await asyncio.sleep(0)
        return dict.fromkeys(items, tuple(begun))

    assert await from_each({1: ["a"], 2: ["b"]}, ask) == {"a": (1, 2), "b": (1, 2)}


async def test_brokers_that_do_not_answer_end_with_the_call_and_keep_the_results_of_the_others() -> None:
    async def ask(node_id: int, items: list[str]) -> dict[Any, Any]:
        if node_id != 1:
            await asyncio.Event().wait()
        return dict.fromkeys(items)

    with FakeBroker() as broker:
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            asked = {1: ["a"], 2: ["b"], 3: ["c"]}
            found = await admin._each({"a": 1, "b": 2, "c": 3}, 0.1, lambda *_: from_each(asked, ask))
    assert found["a"] is None
    assert [found[item].code for item in "bc"] == [KafkaError._TIMED_OUT] * 2


async def test_the_end_of_the_call_does_not_hide_why_a_broker_failed_before() -> None:
    rounds = 0

    async def ask(node_id: int, items: list[str]) -> dict[Any, Any]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise failure(KafkaError._TRANSPORT, "refused", retriable=True)
        await asyncio.Event().wait()
        return {}

    with FakeBroker() as broker:
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            found = await admin._each({"a": 1}, 0.5, lambda *_: from_each({1: ["a"]}, ask))
    assert found["a"].code == KafkaError._TRANSPORT


@pytest.fixture
def silent(broker: FakeBroker) -> Iterator[FakeBroker]:
    """Broker 2, which can be reached now; a test leaves requests to it without an answer."""
    with FakeBroker() as running:
        usual = broker.handlers[MetadataRequest]

        def both(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.brokers[-1].port = running.port
            return response

        broker.handlers[MetadataRequest] = running.handlers[MetadataRequest] = both
        yield running


async def test_groups_of_other_brokers_are_listed_if_one_does_not_answer(
    broker: FakeBroker, silent: FakeBroker
) -> None:
    nothing = ListGroupsResponse()
    silent.script(ListGroupsRequest, nothing, Hang, Hang)
    one = ListGroupsResponse(groups=[ListedGroup(group_id="g")])
    broker.script(ListGroupsRequest, nothing, one, one)
    async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        await admin.list_consumer_groups()  # connects, which may take long on a slow machine
        # On such a machine the healthy broker's answer may take longer than the shorter time too.
        for timeout_s in (3, 30):
            listed = await admin.list_consumer_groups(timeout_s=timeout_s)
            if len(listed.errors) == 1:
                break
    assert [row.group_id for row in listed.valid] == ["g"]
    assert [error.code for error in listed.errors] == [KafkaError._TIMED_OUT]


async def test_listing_transactions_ends_if_a_broker_does_not_answer(
    broker: FakeBroker, silent: FakeBroker
) -> None:
    nothing = ListTransactionsResponse()
    silent.script(ListTransactionsRequest, nothing, Hang, Hang)
    broker.script(ListTransactionsRequest, nothing, nothing, nothing)
    async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        await admin.list_transactions()  # connects, which may take long on a slow machine
        # On such a machine the healthy broker's answer may take longer than the shorter time too.
        for timeout_s in (3, 30):
            with pytest.raises(KafkaException) as failed:
                await admin.list_transactions(timeout_s=timeout_s)
            if "broker 2" in failed.value.error.str():
                break
    assert "no answer from broker 2 within the time limit" in failed.value.error.str()
