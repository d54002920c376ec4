"""Large requests of brokers and of clients without permission are handled in slices, too, and skip no check."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from felice.env import Environment, SystemClock
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.frames import decode_response, encode_request
from felice.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.builder import build_batch
from felice.records.record import Record
from felice.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from felice.security.authorizer import Decision
from felice.server.broker import Broker
from felice.server.flow import pace
from felice.server.handlers import list_transactions
from felice.server.process.embedded import embedded_config
from felice.server.requests import config_resources
from unit.server.test_costs import Line
from unit.server.test_large_requests import COUNT, passes_until_answered

OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def with_authorizer(
    directory: Path, scenario: Callable[[Line], Awaitable[None]], settings: dict[str, str] = OPEN
) -> None:
    """Runs a broker with the topics `topic` and `secret`. Everything is allowed until an ACL is created."""

    async def run() -> None:
        broker = Broker(embedded_config(directory, 0, settings), Environment.system())
        await broker.start()
        try:
            line = Line(broker)
            topics = [
                CreatableTopic(name=name, num_partitions=10, replication_factor=1)
                for name in ("topic", "secret")
            ]
            await line.ask(encode_request(19, 5, 1, "c", CreateTopicsRequest(topics=topics)))
            await scenario(line)
        finally:
            await broker.kill()

    asyncio.run(run())


async def deny(line: Line, operation: Operation, kind: ResourceType, name: str) -> None:
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:*",
        host="*",
        operation=operation,
        permission_type=Permission.DENY,
    )
    answer = await line.ask(encode_request(30, 3, 1, "c", CreateAclsRequest(creations=[rule])))
    assert decode_response(API.CREATE_ACLS, 3, answer[4:]).results[0].error_code == 0


@pytest.fixture
def _every_item_ends_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_WORK_S", 1e-9)


def produce_to_secret() -> bytes:
    data = [PartitionProduceData(index=0, records=build_batch([Record(0, 1, None, b"v")]))]
    topic = TopicProduceData(name="secret", partition_data=data)
    return encode_request(0, 9, 1, "c", ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]))


def fetch(count: int, topic: str = "topic", **fields: int) -> bytes:
    asked = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=100) for number in range(count)
    ]
    request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=asked)], **fields)
    return encode_request(1, 11, 1, "c", request)


@pytest.mark.usefixtures("_every_item_ends_a_slice")
@pytest.mark.parametrize("is_denied", [False, True])
def test_a_large_fetch_in_the_name_of_a_broker_is_handled_in_slices(tmp_path: Path, is_denied: bool) -> None:
    async def scenario(line: Line) -> None:
        if is_denied:
            await deny(line, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        begin = len(line.transport.written)
        request = fetch(COUNT, replica_id=7, max_wait_ms=0, session_epoch=-1)
        # Offsets are noted before any partition is read; a refused broker's are not noted.
        assert await passes_until_answered(line, request) >= COUNT * (1 if is_denied else 2)
        response = decode_response(API.FETCH, 11, bytes(line.transport.written[begin + 4 :]))
        codes = {row.error_code for row in response.responses[0].partitions}
        denied = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        unknown = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert codes == denied if is_denied else codes <= {*unknown, ErrorCode.UNKNOWN_LEADER_EPOCH}

    with_authorizer(tmp_path, scenario)


def fetch_of_many_topics() -> bytes:
    topics = [
        FetchTopic(topic=f"t{number}", partitions=[FetchPartition(partition=0)]) for number in range(COUNT)
    ]
    request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)
    return encode_request(1, 11, 1, "c", request)


def metadata_that_creates() -> bytes:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(COUNT)]
    return encode_request(3, 9, 1, "c", MetadataRequest(topics=topics, allow_auto_topic_creation=True))


@pytest.mark.usefixtures("_every_item_ends_a_slice")
@pytest.mark.parametrize(
    ("request_bytes", "operation"),
    [(fetch_of_many_topics(), Operation.READ), (metadata_that_creates(), Operation.CREATE)],
    ids=["Fetch", "Metadata"],
)
def test_permissions_for_thousands_of_topics_are_checked_in_slices(
    tmp_path: Path, request_bytes: bytes, operation: Operation
) -> None:
    async def scenario(line: Line) -> None:
        await deny(line, operation, ResourceType.TOPIC, "*")
        await deny(line, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        passes = 0
        decided: list[int] = []
        authorizer = line.session._services.security.access._authorizer
        assert authorizer is not None
        decide = authorizer.decide

        def noted(*asked: Any) -> Decision:
            decided.append(passes)
            return decide(*asked)

        authorizer.decide = noted  # type: ignore[method-assign]
        line.feed(request_bytes)
        async with asyncio.timeout(60):
            while not line.session.is_idle:
                await asyncio.sleep(0)
                passes += 1
        assert len(decided) >= COUNT
        assert max(Counter(decided).values()) <= 10

    with_authorizer(tmp_path, scenario)


def test_a_topic_that_another_client_creates_during_the_decisions_is_described(tmp_path: Path) -> None:
    async def scenario(line: Line) -> None:
        await deny(line, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        services = line.session._services
        authorizer, watcher = services.security.access._authorizer, services.watcher
        assert authorizer is not None
        decide, topics = authorizer.decide, watcher.image.topics

        def creating(*asked: Any) -> Decision:
            if Operation.CREATE in asked:
                watcher.image = replace(watcher.image, topics={**topics, "t0": topics["topic"]})
                return decide(*asked[:2], Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
            return decide(*asked)

        authorizer.decide = creating  # type: ignore[method-assign]
        names = [MetadataRequestTopic(name=name) for name in ("t0", "t1")]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
        answer = await line.ask(encode_request(3, 9, 1, "c", request))
        rows = decode_response(API.METADATA, 9, answer[4:]).topics
        assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    with_authorizer(tmp_path, scenario)


def test_a_request_that_waits_does_not_read_what_a_later_one_adds_to_the_session_without_permission(
    tmp_path: Path,
) -> None:
    async def scenario(line: Line) -> None:
        await line.ask(produce_to_secret())
        await deny(line, Operation.READ, ResourceType.TOPIC, "secret")
        answer = await line.ask(fetch(1, session_epoch=0, max_wait_ms=0))
        session_id = decode_response(API.FETCH, 11, answer[4:]).session_id
        assert session_id
        begin = len(line.transport.written)
        first = encode_request(
            1, 11, 1, "c", FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=300, min_bytes=1)
        )
        second = fetch(1, "secret", session_id=session_id, session_epoch=2, max_wait_ms=0)
        line.feed(first + second)
        async with asyncio.timeout(60):
            while not line.session.is_idle:
                await asyncio.sleep(0.01)
        answers = bytes(line.transport.written[begin:])
        size = 4 + int.from_bytes(answers[:4], "big")
        for reply in (answers[4:size], answers[size + 4 :]):
            for topic in decode_response(API.FETCH, 11, reply).responses:
                assert topic.topic == "secret"
                assert [(row.error_code, bool(row.records)) for row in topic.partitions] == [
                    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
                ]

    with_authorizer(tmp_path, scenario)


@pytest.mark.usefixtures("_every_item_ends_a_slice")
@pytest.mark.parametrize("count", [10, COUNT])
def test_rows_that_a_client_may_not_see_are_left_out_in_slices(count: int) -> None:
    passes = 0
    seen: list[int] = []

    def shows(operation: Operation, kind: ResourceType, name: str) -> bool:
        seen.append(passes)
        return int(name) % 2 == 0

    context: Any = SimpleNamespace(
        access=SimpleNamespace(shows=shows),
        services=SimpleNamespace(env=SimpleNamespace(clock=SystemClock())),
        session=SimpleNamespace(hold=lambda: None, release=lambda: None),
    )

    async def handle(request: ListTransactionsRequest, context: Any) -> ListTransactionsResponse:
        rows = [TransactionState(transactional_id=str(number)) for number in range(count)]
        return ListTransactionsResponse(transaction_states=rows)

    async def scenario() -> None:
        nonlocal passes
        task = asyncio.ensure_future(list_transactions.guard(handle)(ListTransactionsRequest(), context))
        while not task.done():
            await asyncio.sleep(0)
            passes += 1
        shown = [int(row.transactional_id) for row in (await task).transaction_states]
        assert shown == list(range(0, count, 2))

    asyncio.run(scenario())
    assert len(set(seen)) == (1 if count == 10 else COUNT)


def test_a_request_compares_few_names_with_those_of_all_options(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compared: list[str] = []
    monkeypatch.setattr(config_resources, "nearest", compared.append)
    config_resources._warn_of([f"name-{number}" for number in range(1000)], "0")
    assert len(compared) == 10
    assert vars(caplog.records[-1])["count"] == 990
