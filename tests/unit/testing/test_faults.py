"""The effect of each fault on requests, and what it does not affect."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conformance.wire import ConnectionClosed, Wire
from felice.protocol.api import API
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from felice.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.delete_groups import DeleteGroupsRequest
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.describe_producers import DescribeProducersRequest
from felice.protocol.messages.describe_producers import TopicRequest as DescribedTopic
from felice.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.end_txn import EndTxnRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.heartbeat import HeartbeatRequest
from felice.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from felice.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.join_group import JoinGroupRequest
from felice.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from felice.protocol.messages.list_groups import ListGroupsRequest
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from felice.protocol.messages.offset_delete import OffsetDeleteRequest
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from felice.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.messages.sync_group import SyncGroupRequest
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from felice.protocol.schema import schema_of
from felice.records.builder import BatchBuilder
from felice.server.handlers.table import OFFERED
from felice.testing import Broker, ErrorCode, FaultKind, FaultNotFired, Injection, answers
from waiting import wait_until

REFUSAL = ErrorCode.POLICY_VIOLATION  # no request in these tests gets this error without a fault


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics=["orders", "other"]) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap, timeout_s=60) as connection:
        yield connection


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), b"k", b"v")
    return bytes(builder.build())


def producing(*topics: str, acks: int = -1) -> ProduceRequest:
    rows = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch())])
        for name in topics
    ]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=rows)


def produced(answer: Any) -> dict[str, int]:
    return {row.name: row.partition_responses[0].error_code for row in answer.responses}


def fetching(*topics: str, max_wait_ms: int = 0, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    rows = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        for name in topics
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=rows,
        session_id=session[0],
        session_epoch=session[1],
    )


def fetched(answer: Any) -> dict[str, int]:
    return {row.topic: row.partitions[0].error_code for row in answer.responses}


def one_of_each(broker: Broker) -> dict[str, Any]:
    """A request of every API that a broker executes without an error, about the topic `orders`."""
    topic_id = broker._server.image.topics["orders"].topic_id
    requests: list[Any] = [
        ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name="orders",
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=0, records=batch())],
                )
            ],
        ),
        FetchRequest(
            max_bytes=1 << 20,
            topics=[FetchTopic(topic="orders", topic_id=topic_id, partitions=[FetchPartition()])],
        ),
        ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(timestamp=-1)])]
        ),
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="orders", partitions=[OffsetForLeaderPartition()])]
        ),
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(offset=0)])]
        ),
        MetadataRequest(topics=[MetadataRequestTopic(name="orders")]),
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="orders", topic_id=topic_id, partitions=[OffsetCommitRequestPartition()]
                )
            ],
        ),
        OffsetFetchRequest(
            group_id="g",
            topics=[],
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[
                        OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=[0])
                    ],
                )
            ],
        ),
        FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
        JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"),
        HeartbeatRequest(group_id="g"),
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]),
        SyncGroupRequest(group_id="g"),
        DescribeGroupsRequest(groups=["g"]),
        ListGroupsRequest(),
        CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], timeout_ms=5000
        ),
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name="orders")], topic_names=["orders"], timeout_ms=5000
        ),
        InitProducerIdRequest(),
        ApiVersionsRequest(client_software_name="tests", client_software_version="1"),
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="orders")]),
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="orders")]),
        DeleteGroupsRequest(groups_names=["g"]),
        OffsetDeleteRequest(group_id="g"),
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=2)], timeout_ms=5000),
        IncrementalAlterConfigsRequest(
            resources=[IncrementalResource(resource_type=2, resource_name="orders")]
        ),
        DescribeClusterRequest(),
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")]),
        *of_transactions(),
    ]
    return {type(request).__name__.removesuffix("Request"): request for request in requests}


def of_transactions() -> list[Any]:
    added = AddPartitionsToTxnTopic(name="orders", partitions=[0])
    batched = AddPartitionsToTxnTransaction(transactional_id="t", topics=[added])
    offsets = [TxnOffsetCommitRequestTopic(name="orders", partitions=[TxnOffsetCommitRequestPartition()])]
    marked = WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    return [
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t", v3_and_below_topics=[added], transactions=[batched]
        ),
        AddOffsetsToTxnRequest(transactional_id="t", group_id="g"),
        EndTxnRequest(transactional_id="t"),
        TxnOffsetCommitRequest(transactional_id="t", group_id="g", topics=offsets),
        WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=[marked])]),
        DescribeProducersRequest(topics=[DescribedTopic(name="orders", partition_indexes=[0])]),
        DescribeTransactionsRequest(transactional_ids=["t"]),
        ListTransactionsRequest(),
    ]


def in_version(request: Any, version: int) -> Any:
    """The request without the fields that its version lacks."""
    fields = schema_of(type(request)).fields
    spoken = {field.name: getattr(request, field.name) for field in fields if version in field.versions}
    return type(request)(**spoken)


def codes_in(message: Any) -> set[int]:
    """Every error code in a response, at any depth."""
    found = set()
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(value)
        for row in value if isinstance(value, list) else ():
            if hasattr(type(row), "__slots__"):
                found |= codes_in(row)
    return found


def test_every_api_fails_in_every_version_in_a_shape_that_clients_can_read(
    broker: Broker, wire: Wire
) -> None:
    requests = one_of_each(broker)
    for name, request in requests.items():
        api = next(api for api in OFFERED.values() if api.name == name)
        for version in api.accepted:
            if (name, version) in {("OffsetFetch", 0), ("OffsetFetch", 1)}:
                continue  # no error of its own, and the request names no topic
            broker.faults.fail(name, REFUSAL)
            answer = wire.ask(in_version(request, version), version)
            assert REFUSAL in codes_in(answer), (name, version, answer)
    broker.faults.assert_all_fired()
    assert broker.records("orders") == []
    assert set(broker._server.image.topics) >= {"orders", "other"}
    assert "new" not in broker._server.image.topics


def test_an_api_without_described_errors_is_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_IN_ROWS", ())
    with pytest.raises(ValueError, match="OffsetCommit cannot be made to fail"):
        broker.faults.fail("OffsetCommit", REFUSAL)
    broker.faults.drop("OffsetCommit")


@pytest.mark.parametrize("name", ["AddPartitionsToTxn", "TxnOffsetCommit", "WriteTxnMarkers"])
def test_transactional_requests_fail_for_their_topic_alone_and_after_they_were_executed(
    broker: Broker, wire: Wire, name: str
) -> None:
    request = one_of_each(broker)[name]
    api = next(api for api in OFFERED.values() if api.name == name)
    for version in api.accepted:
        with broker.faults.fail(name, REFUSAL, topic="other"):
            answer = wire.ask(in_version(request, version), version)
            assert REFUSAL not in codes_in(answer), (version, answer)
        broker.faults.fail(name, REFUSAL, topic="orders", applied=True)
        answer = wire.ask(in_version(request, version), version)
        assert codes_in(answer) - {0} == {REFUSAL}, (version, answer)


def test_an_error_stands_where_the_clients_of_an_api_look_for_it(broker: Broker, wire: Wire) -> None:
    requests = one_of_each(broker)
    broker.faults.fail("AddPartitionsToTxn", REFUSAL)
    added = wire.ask(in_version(requests["AddPartitionsToTxn"], 4), 4)
    assert added.error_code == 0
    assert codes_in(added) == {0, REFUSAL}
    broker.faults.fail("CreateTopics", REFUSAL)
    created = wire.ask(in_version(requests["CreateTopics"], 7), 7)
    assert {row.error_message for row in created.topics} == {answers.MESSAGE}
    broker.faults.fail("Fetch", REFUSAL, applied=True)
    read = wire.ask(fetching("orders"), 12)
    assert (read.error_code, fetched(read)) == (0, {"orders": REFUSAL})
    broker.faults.fail("JoinGroup", REFUSAL)
    joining = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, protocol_type="consumer", member_id="m"
    )
    refused = wire.ask(joining, 9)
    assert (refused.error_code, refused.member_id) == (REFUSAL, "m")


def test_only_partitions_of_the_topic_fail_and_the_rest_of_the_request_is_served(
    broker: Broker, wire: Wire
) -> None:
    broker.faults.fail("Produce", REFUSAL, topic="orders")
    assert produced(wire.ask(producing("orders", "other"), 9)) == {"orders": REFUSAL, "other": 0}
    assert (len(broker.records("orders")), len(broker.records("other"))) == (0, 1)
    assert produced(wire.ask(producing("orders", "other"), 9)) == {"orders": 0, "other": 0}
    broker.faults.fail("Metadata", REFUSAL, topic="orders")
    topics = [MetadataRequestTopic(name=name) for name in ("orders", "other")]
    answer = wire.ask(MetadataRequest(topics=topics), 9)
    assert [(row.name, row.error_code, len(row.partitions)) for row in answer.topics] == [
        ("orders", REFUSAL, 0),
        ("other", 0, 1),
    ]


def test_a_fault_waits_for_its_topic_its_client_and_its_api(broker: Broker, wire: Wire) -> None:
    faults = broker.faults
    faults.fail("Produce", REFUSAL, topic="other")
    faults.fail("Produce", REFUSAL, client_id="somebody-else")
    faults.fail("Fetch", REFUSAL, topic="orders")
    assert produced(wire.ask(producing("orders"), 9)) == {"orders": 0}
    assert faults.injected == ()
    assert len(faults.pending) == 3
    with pytest.raises(FaultNotFired, match=r"Produce, POLICY_VIOLATION, topic='other'\) fired 0 of 1"):
        faults.assert_all_fired()
    faults.clear()
    faults.assert_all_fired()


def test_topics_are_known_by_their_ids_too(broker: Broker, wire: Wire) -> None:
    requests = one_of_each(broker)
    for name, version in (("Produce", 13), ("Fetch", 17), ("OffsetCommit", 10), ("OffsetFetch", 10)):
        broker.faults.fail(name, REFUSAL, topic="orders")
        assert REFUSAL in codes_in(wire.ask(in_version(requests[name], version), version))
    assert broker.faults.injected[0] == Injection(
        FaultKind.FAIL, "Produce", 13, "wire", ("orders",), REFUSAL, 0
    )


def test_a_topic_inside_a_fetch_session_is_found(broker: Broker, wire: Wire) -> None:
    first = wire.ask(fetching("orders", "other", session=(0, 0)), 12)
    assert first.session_id
    broker.faults.fail("Fetch", REFUSAL, topic="orders")
    assert fetched(wire.ask(fetching(session=(first.session_id, 1)), 12)) == {"orders": REFUSAL}
    assert fetched(wire.ask(fetching(session=(first.session_id, 2)), 12)) == {"orders": 0}
    broker.faults.fail("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    answer = wire.ask(fetching(session=(first.session_id, 3)), 12)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_a_fetch_without_partitions_uses_up_no_error(broker: Broker, wire: Wire) -> None:
    broker.faults.fail("Fetch", REFUSAL)
    wire.ask(fetching(), 12)
    assert fetched(wire.ask(fetching("orders"), 12)) == {"orders": REFUSAL}


def test_an_applied_fault_executes_the_request_and_then_reports_an_error(broker: Broker, wire: Wire) -> None:
    error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    broker.faults.fail("Produce", error, topic="orders", applied=True)
    assert produced(wire.ask(producing("orders", "other"), 9)) == {"orders": error, "other": 0}
    assert len(broker.records("orders")) == 1
    broker.faults.fail("CreateTopics", ErrorCode.REQUEST_TIMED_OUT, applied=True)
    wire.ask(one_of_each(broker)["CreateTopics"], 5)
    assert broker.records("new") == []


def test_a_producer_without_acks_loses_its_connection_where_its_write_fails(broker: Broker) -> None:
    for applied in (False, True):
        broker.faults.fail("Produce", REFUSAL, applied=applied)
        with Wire(broker.bootstrap, timeout_s=60) as connection:
            connection.send(producing("orders", acks=0), 9)
            with pytest.raises(ConnectionClosed):
                connection.read_frame()
    assert len(broker.records("orders")) == 1


@pytest.mark.parametrize("applied", [False, True])
def test_a_dropped_request_costs_its_connection_alone(broker: Broker, wire: Wire, applied: bool) -> None:
    with Wire(broker.bootstrap, timeout_s=60) as unlucky:
        broker.faults.drop("Produce", applied=applied)
        with pytest.raises((ConnectionClosed, ConnectionResetError)):
            unlucky.ask(producing("orders"), 9)
    assert produced(wire.ask(producing("other"), 9)) == {"other": 0}
    assert len(broker.records("orders")) == applied


def test_a_delay_holds_the_response_and_not_the_execution(broker: Broker, wire: Wire) -> None:
    with ThreadPoolExecutor(1) as pool, broker.faults.delay("Produce", 600_000) as delay:
        answer = pool.submit(wire.ask, producing("orders"), 9)
        broker.wait_for_records("orders", 1)
        assert not answer.done()
        delay.remove()
        assert produced(answer.result()) == {"orders": 0}
    wire.ask(producing("orders"), 9)
    assert delay.fired == len(broker.faults.injected) == 1


def test_a_delay_combines_with_an_error(broker: Broker, wire: Wire) -> None:
    broker.faults.delay("Produce", 100)
    broker.faults.fail("Produce", REFUSAL)
    began = time.monotonic()
    assert produced(wire.ask(producing("orders"), 9)) == {"orders": REFUSAL}
    assert time.monotonic() - began >= 0.1
    assert [injection.kind for injection in broker.faults.injected] == [FaultKind.FAIL, FaultKind.DELAY]


@pytest.mark.parametrize("applied", [False, True])
def test_a_black_hole_ends_with_its_connection(broker: Broker, wire: Wire, applied: bool) -> None:
    with ThreadPoolExecutor(1) as pool, broker.faults.black_hole("Produce", applied=applied) as hole:
        answer = pool.submit(wire.ask, producing("orders"), 9)
        hole.wait_fired()
        time.sleep(0.05)
        assert not answer.done()
        hole.remove()
        with pytest.raises((ConnectionClosed, ConnectionResetError)):
            answer.result(60)
    assert len(broker.records("orders")) == applied


@pytest.mark.parametrize("kind", [FaultKind.BLACK_HOLE, FaultKind.DELAY])
def test_a_stop_does_not_wait_for_what_faults_hold(broker: Broker, wire: Wire, kind: FaultKind) -> None:
    faults = broker.faults
    is_hole = kind is FaultKind.BLACK_HOLE
    fault = faults.black_hole("Produce") if is_hole else faults.delay("Produce", 60_000)
    wire.send(producing("orders"), 9)
    fault.wait_fired()
    began = time.monotonic()
    broker.restart()
    assert time.monotonic() - began < 40


def test_connections_are_cut_by_client(broker: Broker, wire: Wire) -> None:
    wire.ask(MetadataRequest(topics=[]), 9)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as silent:
        wait_until(lambda: len(broker._server.sessions) == 2)
        assert broker.faults.drop_connections("wire") == 1
        with pytest.raises((ConnectionClosed, ConnectionResetError)):
            wire.ask(MetadataRequest(topics=[]), 9)
        silent.settimeout(0.05)
        with pytest.raises(TimeoutError):
            silent.recv(1)
        assert broker.faults.drop_connections() == 1
        silent.settimeout(60)
        assert silent.recv(1) == b""


def test_exactly_as_many_requests_fail_as_scripted_however_many_ask_at_once(broker: Broker) -> None:
    fault = broker.faults.fail("Produce", REFUSAL, times=7)

    def ask(_: int) -> list[int]:
        with Wire(broker.bootstrap, timeout_s=60) as connection:
            return [produced(connection.ask(producing("orders"), 9))["orders"] for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        codes = [code for some in pool.map(ask, range(4)) for code in some]
    assert (codes.count(REFUSAL), codes.count(0)) == (7, 33)
    assert (fault.fired, fault.is_active, len(broker.faults.injected)) == (7, False, 7)


def test_faults_may_be_scripted_from_any_thread_while_requests_come(broker: Broker, wire: Wire) -> None:
    def script() -> None:
        for _ in range(200):
            with broker.faults.fail("Fetch", REFUSAL, times=None), broker.faults.delay("Fetch", 0):
                pass

    threads = [threading.Thread(target=script) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        wire.ask(producing("orders"), 9)
    assert broker.faults.injected == ()
    assert fetched(wire.ask(fetching("orders"), 12)) == {"orders": 0}


def test_the_first_scripted_fires_first_and_faults_outlive_a_restart(broker: Broker) -> None:
    broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
    broker.faults.fail("Produce", REFUSAL, times=1)
    broker.restart()
    with Wire(broker.bootstrap, timeout_s=60) as connection:
        codes = [produced(connection.ask(producing("orders"), 9))["orders"] for _ in range(3)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, REFUSAL, 0]


def test_direct_access_to_the_broker_meets_no_faults(broker: Broker) -> None:
    broker.faults.black_hole()
    broker.faults.fail("Produce", REFUSAL, times=None)
    broker.produce("orders", "v")
    assert len(broker.records("orders")) == 1
    assert broker.faults.injected == ()


def test_waiting_for_a_fault_ends_when_it_fires_or_raises(broker: Broker, wire: Wire) -> None:
    fault = broker.faults.fail("Produce", REFUSAL, times=2)
    wire.ask(producing("orders"), 9)
    fault.wait_fired(1, timeout_s=0)
    with pytest.raises(FaultNotFired, match="fired 1 of 2 times in 0.02 s"):
        fault.wait_fired(timeout_s=0.02)


def test_an_impossible_script_is_refused_with_a_reason(broker: Broker) -> None:
    faults = broker.faults
    with pytest.raises(ValueError, match=r"no API 'Prodce'; the broker offers .*Produce"):
        faults.fail("Prodce", REFUSAL)
    with pytest.raises(ValueError, match="no error 'NO_SUCH_ERROR'"):
        faults.fail("Produce", "NO_SUCH_ERROR")
    with pytest.raises(ValueError, match="NONE is no error"):
        faults.fail("Produce", 0)
    with pytest.raises(ValueError, match="cannot fire 0 times"):
        faults.drop("Produce", times=0)
    with pytest.raises(ValueError, match="delay of -1 ms"):
        faults.delay("Produce", -1)
    assert faults.fail("offset_commit", "not_coordinator").api is API.OFFSET_COMMIT
