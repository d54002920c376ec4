"""Connections to a cluster: which address is asked, when it is tried again, and what errors say."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from felice.client.error import KafkaError, KafkaException
from felice.client.model import BrokerMetadata, ThrottleEvent
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.limits import limited
from felice.client.options import ProducerSettings
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from felice.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from felice.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from unit.client.admin.exchange import broker_ranges
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from waiting import LIMIT_S

NOBODY = "127.0.0.1:1"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2}) as started:
        yield started


@asynccontextmanager
async def opened(bootstrap: str, **options: Any) -> AsyncIterator[Cluster]:
    given = {name.replace("_", "."): value for name, value in options.items() if name[:3] != "on_"}
    told = {name: value for name, value in options.items() if name[:3] == "on_"}
    settings = ProducerSettings.parse(
        {"bootstrap.servers": bootstrap, "logger": logging.getLogger("felice.client.test"), **given}
    )
    cluster = Cluster(settings, **told)
    try:
        yield cluster
    finally:
        await cluster.close()


async def failing(work: Any) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        await work
    return raised.value.error


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_backoffs_double_up_to_a_limit_and_differ() -> None:
    waits = [backoff_s(attempt, 100, 1000, Random(attempt)) for attempt in range(30)]
    for attempt, wait in enumerate(waits):
        middle = min(0.1 * 2**attempt, 1.0)
        assert 0.8 * middle <= wait <= 1.2 * middle
    assert len({backoff_s(3, 100, 1000, Random(seed)) for seed in range(10)}) == 10


async def test_a_broker_that_is_not_in_the_metadata_is_unknown(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap) as cluster:
        error = await failing(cluster.call(7, MetadataRequest(topics=[])))
        assert error == KafkaError._UNKNOWN_BROKER and error.retriable()
        assert "broker 7 is not in the metadata" in error.str()
        assert cluster.open_connection(7) is None and cluster.traffic_to(7) is None


async def test_each_purpose_has_one_connection(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap) as cluster:
        await cluster.refresh([])
        first = await cluster.connection(1)
        assert cluster.open_connection(1) is first is await cluster.connection(1)
        assert cluster.open_connection(1, "fetch") is None
        other = await cluster.connection(1, "fetch")
        assert other is not first and cluster.open_connection(1, "fetch") is other
        assert sorted(map(id, cluster.connections("127.0.0.1", broker.port))) == sorted(
            [id(first), id(other)]
        )
        assert cluster.connections("127.0.0.1", 1) == []
        assert len(broker.asked(ApiVersionsRequest)) == 2
        traffic = cluster.traffic_to(1)
        assert traffic is not None and traffic.connects == 2
        assert traffic is cluster.traffic_of("127.0.0.1", broker.port)
        first.close()
        assert cluster.open_connection(1) is None
        assert await cluster.connection(1) is not first


async def test_a_closed_cluster_connects_no_more(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap) as cluster:
        await cluster.refresh([])
        connection = await cluster.connection(1)
        background = cluster.spawn(asyncio.sleep(60))
        await asyncio.sleep(0)
        await cluster.close()
        assert connection.closed and background.cancelled()
        assert await failing(cluster.connection(1)) == KafkaError._DESTROY


async def test_a_close_ends_background_work_that_waits_for_a_connection(broker: FakeBroker) -> None:
    went_on = []

    async def looking_up(cluster: Cluster) -> None:
        try:
            await cluster.call_any(MetadataRequest(topics=[]))
        except KafkaException as error:
            went_on.append(error)  # it would pause before its next attempt

    async with opened(broker.bootstrap) as cluster:
        first = asyncio.ensure_future(cluster.refresh([]))
        await asyncio.sleep(0)  # it connects
        background = cluster.spawn(looking_up(cluster))
        await asyncio.sleep(0)  # it waits for the same connection
        await cluster.close()
        assert background.cancelled() and not went_on
        assert await failing(first) == KafkaError._DESTROY


async def test_attempts_to_connect_are_spaced_by_growing_backoffs(broker: FakeBroker) -> None:
    async with opened(NOBODY, reconnect_backoff_ms=100, reconnect_backoff_max_ms=150) as cluster:
        cluster.topology.brokers[1] = BrokerMetadata(1, "127.0.0.1", 1)
        began = time.monotonic()
        waits = []
        for _ in range(4):
            error = await failing(cluster.connection(1))
            assert error == KafkaError._TRANSPORT and NOBODY in error.str()
            waits.append(time.monotonic() - began)
        gaps = [after - before for before, after in zip([0.0, *waits], waits, strict=False)]
        assert gaps[0] < LIMIT_S
        for gap, least in zip(gaps[1:], (0.08, 0.12, 0.12), strict=True):
            assert least <= gap
        node = cluster._node("127.0.0.1", 1)
        assert node.failures == 4 and node.last_error is not None
        # Another broker may answer at once: a question to any broker does not wait for this one.
        node.not_before += 600
        began = time.monotonic()
        assert await failing(cluster.call_any(MetadataRequest(topics=[]))) == KafkaError._ALL_BROKERS_DOWN
        assert time.monotonic() - began < LIMIT_S and node.failures == 4
        # The same address, now with a broker.
        node.port, node.not_before = broker.port, 0.0
        await cluster._open(node)
        assert (node.failures, node.last_error) == (0, None)


async def test_a_question_to_any_broker_goes_to_one_that_answers(broker: FakeBroker) -> None:
    async with opened(f"{NOBODY},{broker.bootstrap}") as cluster:
        response = await cluster.call_any(MetadataRequest(topics=[]))
        assert response.cluster_id == "fake"
        # An open connection is used first, and a broker that failed is tried last.
        for _ in range(5):
            assert [node.port for node in cluster._candidates()] == [broker.port, 1]
        broker.script(MetadataRequest, Disconnect)
        error = await failing(cluster.call_any(MetadataRequest(topics=[])))
        assert error == KafkaError._ALL_BROKERS_DOWN and error.retriable()
        assert f"{broker.bootstrap}: the broker closed the connection" in error.str()
        assert f"{NOBODY}: " in error.str()


async def test_a_question_that_cannot_be_asked_is_an_error_at_once() -> None:
    with FakeBroker(ranges={18: (0, 4), 3: (0, 13)}) as broker:
        async with opened(f"{broker.bootstrap},{NOBODY}") as cluster:
            await cluster.refresh([])
            assert await failing(cluster.call_any(ListGroupsRequest())) == KafkaError._UNSUPPORTED_FEATURE
            assert cluster._node("127.0.0.1", 1).failures == 0, "nobody else was asked"


async def test_a_question_has_its_own_time_limit_or_the_cluster_s(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap, request_timeout_ms=70_000) as cluster:
        await cluster.refresh([])
        broker.script(MetadataRequest, Hang, Hang)
        limits = ((0.1, "in 100 ms"), (None, "in 1000 ms"))
        for _, text in limits:
            await cluster.connection(1, text)
        assert cluster.timeout_s == 70
        cluster.timeout_s = 1.0  # only now: on a slow machine the connections may take longer
        for limit, text in limits:
            error = await failing(cluster.call(1, MetadataRequest(topics=[]), purpose=text, timeout_s=limit))
            assert error == KafkaError._TIMED_OUT and error.str().endswith(f"no reply to Metadata {text}")


async def test_the_controller_is_asked_if_there_is_one(broker: FakeBroker) -> None:
    with FakeBroker() as controller:
        usual = broker.handlers[MetadataRequest]

        def with_controller(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.controller_id = 2
            response.brokers.append(
                MetadataResponseBroker(node_id=2, host="127.0.0.1", port=controller.port, rack="r")
            )
            return response

        broker.script(MetadataRequest, with_controller)
        controller.script(ListGroupsRequest, ListGroupsResponse(), ListGroupsResponse())
        async with opened(broker.bootstrap) as cluster:
            for _ in range(2):
                await cluster.call_controller(ListGroupsRequest())
            assert len(controller.asked(ListGroupsRequest)) == 2
            assert len(broker.asked(MetadataRequest)) == 1, "once it is known, it is not looked up"
            assert [row.topics for row in broker.asked(MetadataRequest)] == [[]]
            assert cluster.topology.brokers[2] == BrokerMetadata(2, "127.0.0.1", controller.port, "r")


async def test_any_broker_is_asked_if_the_controller_is_unknown(broker: FakeBroker) -> None:
    usual = broker.handlers[MetadataRequest]

    def without_controller(request: MetadataRequest, version: int) -> MetadataResponse:
        response: MetadataResponse = usual(request, version)
        response.controller_id = -1
        return response

    broker.handlers[MetadataRequest] = without_controller
    broker.script(ListGroupsRequest, ListGroupsResponse())
    async with opened(broker.bootstrap) as cluster:
        await cluster.call_controller(ListGroupsRequest())
    assert len(broker.asked(ListGroupsRequest)) == 1


async def test_a_refresh_notes_who_answered(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap) as cluster:
        await cluster.refresh(["t"], allow_auto_create=True)
        found = cluster.topology.describe(None)
        assert (found.orig_broker_id, found.orig_broker_name) == (1, f"{broker.bootstrap}/1")
        assert list(found.topics) == ["t"]
        broker.topics.clear()
        await cluster.refresh(None)
        assert cluster.topology.topics == {}, "of all topics none is left"
        assert [row.allow_auto_topic_creation for row in broker.asked(MetadataRequest)] == [True, False]


async def test_refreshes_in_the_background_are_shared_and_spaced(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap, retry_backoff_ms=150) as cluster:
        cluster.interesting |= {"t", "no"}
        first = cluster.refresh_soon()
        assert cluster.refresh_soon() is first
        await first
        began = time.monotonic()
        second = cluster.refresh_soon()
        assert second is not first
        await second
        assert time.monotonic() - began >= 0.14
        asked = [[row.name for row in request.topics] for request in broker.asked(MetadataRequest)]
        assert asked == [["no", "t"]] * 2
        assert cluster.topology.topic_errors["no"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_outage_is_told_once_until_it_is_over(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[KafkaError] = []
    async with opened(broker.bootstrap, retry_backoff_ms=1, on_error=told.append) as cluster:
        for _ in range(2):
            broker.script(MetadataRequest, Disconnect, Disconnect)
            await cluster.refresh_soon()
            await cluster.refresh_soon()
            assert len(broker.scripts[MetadataRequest]) == 0
            await cluster.refresh_soon()
    assert told == [KafkaError._ALL_BROKERS_DOWN] * 2
    lines = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert [line.name for line in lines] == ["felice.client.test"] * 2


async def test_aged_metadata_is_refreshed_and_idle_connections_are_closed(broker: FakeBroker) -> None:
    options = {"metadata_max_age_ms": 1000, "connections_max_idle_ms": 1000}
    async with opened(broker.bootstrap, **options) as cluster:
        cluster.interesting.add("t")
        await cluster.refresh_soon()
        idle = await cluster.connection(1, "other")
        broker.script(ListGroupsRequest, Hang)

        async def wait_in_vain() -> None:
            connection = await cluster.connection(1, "busy")
            await connection.call(ListGroupsRequest(), 600)  # at once, or it would be idle, too

        waiting = asyncio.ensure_future(wait_in_vain())
        async with asyncio.timeout(LIMIT_S):
            await until(lambda: broker.asked(ListGroupsRequest))
            busy = cluster.open_connection(1, "busy")
            assert busy is not None
            await until(lambda: idle.closed)
            await until(lambda: len(broker.asked(MetadataRequest)) >= 2)
        assert not busy.closed and cluster.open_connection(1, "other") is None
        waiting.cancel()


async def test_connections_may_be_idle_for_ever(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap, connections_max_idle_ms=0, metadata_max_age_ms=1000) as cluster:
        await cluster.refresh(["t"])
        connection = await cluster.connection(1)
        connection.last_used = -1e9
        cluster._on_tick()
        assert not connection.closed
        assert len(broker.asked(MetadataRequest)) == 1, "nothing is interesting"


async def test_sockets_have_the_options_of_the_settings(broker: FakeBroker) -> None:
    made: list[socket.socket] = []
    options = {"socket_send_buffer_bytes": 20_000, "socket_receive_buffer_bytes": 30_000}
    for more in ({}, options | {"socket_keepalive_enable": True}):
        async with opened(broker.bootstrap, **more) as cluster:
            await cluster.refresh([])
            connection = await cluster.connection(1)
            assert connection._transport is not None
            sock = connection._transport.get_extra_info("socket")
            made.append(sock)
            is_kept = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            assert is_kept == bool(more)
            if more:
                # Linux doubles both.
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 40_000
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 60_000


async def test_throttling_is_told_with_the_broker(broker: FakeBroker) -> None:
    events: list[ThrottleEvent] = []
    async with opened(broker.bootstrap, on_throttled=events.append) as cluster:
        broker.script(MetadataRequest, MetadataResponse(throttle_time_ms=50))
        await cluster.refresh([])
        await cluster.refresh([])
        broker.script(MetadataRequest, MetadataResponse(throttle_time_ms=70))
        await cluster.refresh([])
    found = [(event.broker_name, event.broker_id, event.throttle_time) for event in events]
    assert found == [(broker.bootstrap, -1, 0.05), (broker.bootstrap, -1, 0.0), (broker.bootstrap, 1, 0.07)]


# Topics


async def test_a_topic_that_is_there_is_ready(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap, retry_backoff_ms=5) as cluster:
        await cluster.ready_topic("t", 60)
        await cluster.ready_topic("t", 60)
        assert cluster.interesting == {"t"} and cluster.topology.partition_count("t") == 2
        assert len(broker.asked(MetadataRequest)) == 1


async def test_a_topic_that_comes_later_is_waited_for(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap, retry_backoff_ms=5) as cluster:
        waiting = asyncio.ensure_future(cluster.ready_topic("later", 60))
        await until(lambda: len(broker.asked(MetadataRequest)) >= 3)
        assert not waiting.done()
        broker.topics["later"] = broker.topics["t"]
        await waiting


async def test_a_topic_that_does_not_come_is_an_error_with_its_name(broker: FakeBroker) -> None:
    async with opened(broker.bootstrap, retry_backoff_ms=5) as cluster:
        began = time.monotonic()
        error = await failing(cluster.ready_topic("no", 0.1))
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and error.str().endswith(": no")
        assert time.monotonic() - began >= 0.1
    async with opened(NOBODY, retry_backoff_ms=5) as cluster:
        with pytest.raises(KafkaException, match="later: no answer in 1 s"):
            async with limited(1, "later: no answer"):
                await cluster.ready_topic("later", 0.1)
        assert cluster.why_no_metadata is not None
        assert cluster.why_no_metadata.code == KafkaError._ALL_BROKERS_DOWN


async def test_a_topic_that_is_refused_for_good_is_an_error_at_once(broker: FakeBroker) -> None:
    usual = broker.handlers[MetadataRequest]

    def refused(request: MetadataRequest, version: int) -> MetadataResponse:
        response: MetadataResponse = usual(request, version)
        response.topics[0].error_code, response.topics[0].partitions = (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            [],
        )
        return response

    broker.script(MetadataRequest, refused)
    async with opened(broker.bootstrap) as cluster:
        error = await failing(cluster.ready_topic("t", 600))
        assert error == ErrorCode.TOPIC_AUTHORIZATION_FAILED and error.str().endswith(": t")


# Coordinators


def found(**fields: Any) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Coordinator(key="k", **fields)])


@pytest.mark.parametrize("key_type", [GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE])
async def test_a_coordinator_is_looked_up_once_until_it_is_forgotten(
    broker: FakeBroker, key_type: int
) -> None:
    broker.script(FindCoordinatorRequest, found(node_id=5, host="h", port=99), found(node_id=1))
    async with opened(broker.bootstrap) as cluster:
        assert [await cluster.coordinator("k", 60, key_type) for _ in range(2)] == [5, 5]
        assert cluster.topology.brokers[5] == BrokerMetadata(5, "h", 99)
        cluster.forget_coordinator("other", key_type)
        assert await cluster.coordinator("k", 60, key_type) == 5
        cluster.forget_coordinator("k", key_type)
        assert await cluster.coordinator("k", 60, key_type) == 1
    asked = [(row.key_type, row.coordinator_keys) for row in broker.asked(FindCoordinatorRequest)]
    assert asked == [(key_type, ["k"])] * 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ],
)
async def test_a_coordinator_that_is_not_there_yet_is_waited_for(broker: FakeBroker, code: int) -> None:
    async with opened(broker.bootstrap, retry_backoff_ms=5, retry_backoff_max_ms=10) as cluster:
        broker.script(FindCoordinatorRequest, found(error_code=code), found(error_code=code))
        assert await cluster.coordinator("k", 60) == 1
        assert len(broker.asked(FindCoordinatorRequest)) == 3
        cluster.forget_coordinator("k")
        broker.handlers[FindCoordinatorRequest] = lambda request, version: found(error_code=code)
        began = time.monotonic()
        error = await failing(cluster.coordinator("k", 0.1))
        assert error == code and error.retriable() and time.monotonic() - began >= 0.1


@pytest.mark.parametrize(
    ("key_type", "message", "end"),
    [
        (GROUP_KEY_TYPE, None, "coordinator of group 'k'"),
        (GROUP_KEY_TYPE, "why", "coordinator of group 'k': why"),
        (TRANSACTION_KEY_TYPE, None, "coordinator of transactional id 'k'"),
        # The broker's own text of the code says nothing more.
        (
            TRANSACTION_KEY_TYPE,
            ErrorCode.GROUP_AUTHORIZATION_FAILED.message,
            "coordinator of transactional id 'k'",
        ),
    ],
)
async def test_a_refused_lookup_has_its_reason(
    broker: FakeBroker, key_type: int, message: str | None, end: str
) -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    broker.script(FindCoordinatorRequest, found(error_code=code, error_message=message))
    async with opened(broker.bootstrap) as cluster:
        error = await failing(cluster.coordinator("k", 600, key_type))
    assert error == code and error.str().endswith(f": {end}")
    assert len(broker.asked(FindCoordinatorRequest)) == 1


async def test_older_brokers_are_asked_for_one_coordinator() -> None:
    with FakeBroker(ranges=broker_ranges({10: (0, 3)})) as broker:
        here = FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)
        broker.script(FindCoordinatorRequest, here, here)
        async with opened(broker.bootstrap) as cluster:
            assert await cluster.coordinator("g", 60) == 1
            assert await cluster.coordinator("x", 60, TRANSACTION_KEY_TYPE) == 1
        asked = [(row.key_type, row.key) for row in broker.asked(FindCoordinatorRequest)]
        assert asked == [(GROUP_KEY_TYPE, "g"), (TRANSACTION_KEY_TYPE, "x")]


async def test_the_oldest_brokers_have_no_transactions() -> None:
    with FakeBroker(ranges=broker_ranges({10: (0, 0)})) as broker:
        broker.script(
            FindCoordinatorRequest, FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)
        )
        async with opened(broker.bootstrap) as cluster:
            assert await cluster.coordinator("g", 60) == 1
            error = await failing(cluster.coordinator("x", 600, TRANSACTION_KEY_TYPE))
            assert error == KafkaError._UNSUPPORTED_FEATURE
