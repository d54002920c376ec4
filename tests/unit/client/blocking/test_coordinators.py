"""Transactions and committed offsets through a `BlockingClient`: the requests, and who gets them after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from felice.client.blocking import BlockingClient
from felice.client.blocking.coordinators import (
    BlockingCoordinators,
    DescribedTransaction,
    TransactionalProducer,
)
from felice.client.error import KafkaError, KafkaException
from felice.client.group.requests import CommittedOffset
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from felice.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from felice.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from felice.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from felice.protocol.messages.list_transactions import TransactionState as ListedTransaction
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from unit.client.admin.exchange import broker_ranges
from unit.client.fake_broker import Disconnect, FakeBroker, brokers_at

X, Y = TransactionalProducer("x", 7, 3), TransactionalProducer("y", 8, 4)
MOVED = ErrorCode.NOT_COORDINATOR
LASTING = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OFFSETS = {
    ("t", 2): CommittedOffset(5, "note", 9),
    ("u", 0): CommittedOffset(6),
    ("t", 0): CommittedOffset(7, leader_epoch=1),
}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 3, "u": 1}) as started:
        yield started


@pytest.fixture
def other() -> Iterator[FakeBroker]:
    with FakeBroker() as started:
        yield started


@pytest.fixture
def coordinators(broker: FakeBroker) -> Iterator[BlockingCoordinators]:
    with BlockingClient(broker.bootstrap, retry_timeout_ms=60_000) as client:
        yield BlockingCoordinators(client)


@pytest.fixture
def impatient(broker: FakeBroker) -> Iterator[BlockingCoordinators]:
    with BlockingClient(broker.bootstrap, retry_timeout_ms=100) as client:
        yield BlockingCoordinators(client)


def added(*codes: int) -> AddPartitionsToTxnResponse:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
        for number, code in enumerate(codes)
    ]
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def described(error_code: int = 0, state: str = "Ongoing") -> DescribeTransactionsResponse:
    row = TransactionState(
        error_code=error_code,
        transactional_id="x",
        transaction_state=state,
        producer_id=7,
        producer_epoch=3,
    )
    return DescribeTransactionsResponse(transaction_states=[row])


def committed(*codes: int) -> OffsetCommitResponse:
    rows = [
        OffsetCommitResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])


def committed_in_transaction(*codes: int) -> TxnOffsetCommitResponse:
    rows = [
        TxnOffsetCommitResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=rows)])


def fetched(error_code: int = 0, row_code: int = 0) -> OffsetFetchResponse:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=2, committed_offset=0, committed_leader_epoch=9, metadata="note"
        ),
        OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=-1, metadata="", error_code=row_code
        ),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error_code)
    return OffsetFetchResponse(groups=[group])


@dataclass(frozen=True, slots=True)
class Call:
    """A call with the last of its requests: its type, its content and version, and its responses by error code."""

    name: str
    do: Callable[[BlockingCoordinators], Any]
    key: tuple[int, str]
    request: Any
    version: int
    answer: Callable[[int], Any]
    result: Any

    def __str__(self) -> str:
        return self.name


CALLS = [
    Call(
        "begin",
        lambda them: them.begin("x", 9000),
        (TRANSACTION_KEY_TYPE, "x"),
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9000),
        5,
        lambda code: InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=3),
        X,
    ),
    Call(
        "add_partitions",
        lambda them: them.add_partitions(X, [("t", 2), ("u", 0), ("t", 0)]),
        (TRANSACTION_KEY_TYPE, "x"),
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=3,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name="t", partitions=[2, 0]),
                AddPartitionsToTxnTopic(name="u", partitions=[0]),
            ],
        ),
        3,
        lambda code: added(0, code),
        None,
    ),
    Call(
        "add_offsets, to the transaction",
        lambda them: them.add_offsets(X, "g", {}),
        (TRANSACTION_KEY_TYPE, "x"),
        AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, group_id="g"),
        4,
        lambda code: AddOffsetsToTxnResponse(error_code=code),
        None,
    ),
    Call(
        "add_offsets, to the group",
        lambda them: them.add_offsets(X, "g", OFFSETS),
        (GROUP_KEY_TYPE, "g"),
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=7,
            producer_epoch=3,
            generation_id=-1,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=2,
                            committed_offset=5,
                            committed_leader_epoch=-1,
                            committed_metadata="note",
                        ),
                        TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=7,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        ),
                    ],
                ),
                TxnOffsetCommitRequestTopic(
                    name="u",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=6,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                ),
            ],
        ),
        4,
        lambda code: committed_in_transaction(0, code),
        None,
    ),
    Call(
        "describe",
        lambda them: them.describe(["x"]),
        (TRANSACTION_KEY_TYPE, "x"),
        DescribeTransactionsRequest(transactional_ids=["x"]),
        0,
        described,
        {"x": DescribedTransaction(X, "Ongoing")},
    ),
    Call(
        "commit_offsets",
        lambda them: them.commit_offsets("g", {("t", 2): CommittedOffset(5, "note", 9)}),
        (GROUP_KEY_TYPE, "g"),
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=2,
                            committed_offset=5,
                            committed_leader_epoch=9,
                            committed_metadata="note",
                        )
                    ],
                )
            ],
        ),
        9,
        lambda code: committed(0, code),
        None,
    ),
    Call(
        "committed",
        lambda them: them.committed("g"),
        (GROUP_KEY_TYPE, "g"),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True),
        9,
        fetched,
        {("t", 2): CommittedOffset(0, "note", 9)},
    ),
]
CALL = pytest.mark.parametrize("call", CALLS, ids=str)


def prepare(broker: FakeBroker, call: Call, *answers: Any) -> None:
    """Let the call's request get these answers, and a good one afterwards; others of its requests are good at once."""
    broker.handlers[AddOffsetsToTxnRequest] = lambda request, version: AddOffsetsToTxnResponse()
    broker.handlers[TxnOffsetCommitRequest] = lambda request, version: committed_in_transaction()
    broker.handlers[type(call.request)] = lambda request, version: call.answer(0)
    broker.script(type(call.request), *answers)


def lookups(broker: FakeBroker) -> list[tuple[int, list[str]]]:
    return [(row.key_type, row.coordinator_keys) for row in broker.asked(FindCoordinatorRequest)]


@CALL
def test_request_and_result(broker: FakeBroker, coordinators: BlockingCoordinators, call: Call) -> None:
    prepare(broker, call)
    assert call.do(coordinators) == call.result
    sent = [row for row in broker.requests if isinstance(row[0], type(call.request))]
    assert sent == [(call.request, call.version)]
    call.do(coordinators)
    assert lookups(broker).count((call.key[0], [call.key[1]])) == 1, "the coordinator's address is cached"


@CALL
@pytest.mark.parametrize("code", [MOVED, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_coordinator_that_moved_is_looked_up_again(
    broker: FakeBroker, coordinators: BlockingCoordinators, call: Call, code: int
) -> None:
    prepare(broker, call, call.answer(code))
    assert call.do(coordinators) == call.result
    assert lookups(broker).count((call.key[0], [call.key[1]])) == 2


@CALL
def test_a_passing_error_is_retried_at_the_same_coordinator(
    broker: FakeBroker, coordinators: BlockingCoordinators, call: Call
) -> None:
    passing = call.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    prepare(broker, call, passing, passing)
    assert call.do(coordinators) == call.result
    assert len(broker.asked(type(call.request))) == 3
    assert lookups(broker).count((call.key[0], [call.key[1]])) == 1


@CALL
def test_a_lost_connection_is_retried_at_a_coordinator_that_is_looked_up_again(
    broker: FakeBroker, coordinators: BlockingCoordinators, call: Call
) -> None:
    prepare(broker, call, Disconnect)
    assert call.do(coordinators) == call.result
    assert lookups(broker).count((call.key[0], [call.key[1]])) == 2


@CALL
def test_a_lasting_error_is_raised_with_the_key(
    broker: FakeBroker, coordinators: BlockingCoordinators, call: Call
) -> None:
    prepare(broker, call, call.answer(LASTING))
    with pytest.raises(KafkaException) as raised:
        call.do(coordinators)
    text, _, topic = raised.value.error.str().partition(", topic ")
    assert raised.value.code == LASTING and text.endswith(f": {call.key[1]}")
    assert topic == ("t" if isinstance(call.request, (OffsetCommitRequest, TxnOffsetCommitRequest)) else "")
    assert len(broker.asked(type(call.request))) == 1


@CALL
def test_retries_end_with_the_last_reason(
    broker: FakeBroker, impatient: BlockingCoordinators, call: Call
) -> None:
    prepare(broker, call)
    broker.handlers[type(call.request)] = lambda request, version: call.answer(MOVED)
    with pytest.raises(KafkaException) as raised:
        call.do(impatient)
    assert raised.value.code == MOVED and raised.value.error.str().endswith(f": {call.key[1]}")


@CALL
def test_lost_connections_end_the_retries_too(
    broker: FakeBroker, impatient: BlockingCoordinators, call: Call
) -> None:
    prepare(broker, call, *[Disconnect] * 1000)
    with pytest.raises(KafkaException) as raised:
        call.do(impatient)
    assert raised.value.code == KafkaError._TRANSPORT


def test_pauses_between_attempts_grow_to_half_a_second(
    broker: FakeBroker, coordinators: BlockingCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    prepare(broker, CALLS[0], *[InitProducerIdResponse(error_code=MOVED)] * 7)
    coordinators.begin("x", 9000)
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


def test_transactions_that_end_at_once_are_not_waited_for(
    broker: FakeBroker, coordinators: BlockingCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    broker.handlers[EndTxnRequest] = lambda request, version: EndTxnResponse()
    assert coordinators.end([X, Y], committed=True) == {"x": 0, "y": 0}
    assert pauses == []


def test_a_lasting_error_hides_passing_ones(broker: FakeBroker, coordinators: BlockingCoordinators) -> None:
    broker.script(AddPartitionsToTxnRequest, added(MOVED, LASTING, 0))
    with pytest.raises(KafkaException) as raised:
        coordinators.add_partitions(X, [("t", 0), ("t", 1), ("t", 2)])
    assert raised.value.code == LASTING


@pytest.mark.parametrize(("group_code", "row_code"), [(LASTING, 0), (0, LASTING)])
def test_offsets_fail_for_the_group_or_for_a_partition(
    broker: FakeBroker, coordinators: BlockingCoordinators, group_code: int, row_code: int
) -> None:
    broker.script(OffsetFetchRequest, fetched(group_code, row_code))
    with pytest.raises(KafkaException) as raised:
        coordinators.committed("g")
    assert raised.value.code == LASTING


def test_an_unknown_transaction_is_absent(broker: FakeBroker, coordinators: BlockingCoordinators) -> None:
    broker.script(DescribeTransactionsRequest, described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), described())
    assert coordinators.describe(["gone", "x"]) == {"x": DescribedTransaction(X, "Ongoing")}


# Ending transactions


def found_at(*rows: tuple[str, FakeBroker | int]) -> FindCoordinatorResponse:
    """Coordinators by key: at a broker, or refused with an error code."""
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, error_code=where)
            if isinstance(where, int)
            else Coordinator(key=key, node_id=1, host="127.0.0.1", port=where.port)
            for key, where in rows
        ]
    )


def test_transactions_are_ended_at_their_coordinators(
    broker: FakeBroker, other: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    broker.script(FindCoordinatorRequest, found_at(("x", broker), ("y", other)))
    broker.script(EndTxnRequest, EndTxnResponse(error_code=LASTING))
    other.script(EndTxnRequest, EndTxnResponse())
    assert coordinators.end([X, Y], committed=True) == {"x": LASTING, "y": 0}
    assert lookups(broker) == [(TRANSACTION_KEY_TYPE, ["x", "y"])]
    request = EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, committed=True)
    assert [row for row in broker.requests if isinstance(row[0], EndTxnRequest)] == [(request, 4)]
    assert [row.transactional_id for row in other.asked(EndTxnRequest)] == ["y"]


def test_transactions_of_one_coordinator_are_ended_in_one_go(
    broker: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    broker.script(EndTxnRequest, EndTxnResponse(error_code=LASTING), EndTxnResponse())
    assert coordinators.end([X, Y], committed=False) == {"x": LASTING, "y": 0}
    assert [(row.transactional_id, row.committed) for row in broker.asked(EndTxnRequest)] == [
        ("x", False),
        ("y", False),
    ]


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        (EndTxnResponse(error_code=MOVED), 2),
        (EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS), 1),
        (Disconnect, 2),
    ],
)
def test_only_the_open_transaction_is_ended_again(
    broker: FakeBroker, other: FakeBroker, coordinators: BlockingCoordinators, answer: Any, places: int
) -> None:
    broker.script(FindCoordinatorRequest, found_at(("x", broker), ("y", other)))
    broker.script(EndTxnRequest, EndTxnResponse())
    other.script(EndTxnRequest, answer, EndTxnResponse())
    broker.handlers[FindCoordinatorRequest] = lambda request, version: found_at(("y", other))
    assert coordinators.end([X, Y], committed=True) == {"x": 0, "y": 0}
    assert [row.transactional_id for row in broker.asked(EndTxnRequest)] == ["x"]
    assert lookups(broker) == [
        (TRANSACTION_KEY_TYPE, keys) for keys in ([["x", "y"], ["y"]] if places == 2 else [["x", "y"]])
    ]


def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    broker: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    broker.script(FindCoordinatorRequest, found_at(("x", int(ErrorCode.COORDINATOR_NOT_AVAILABLE))))
    broker.script(EndTxnRequest, EndTxnResponse())
    assert coordinators.end([X], committed=True) == {"x": 0}


def test_a_transaction_whose_coordinator_refuses_the_lookup_is_an_error(
    broker: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    broker.script(FindCoordinatorRequest, found_at(("x", int(LASTING))))
    with pytest.raises(KafkaException) as raised:
        coordinators.end([X], committed=True)
    assert raised.value.code == LASTING and raised.value.error.str().endswith(": x")


def test_a_broker_without_transactions_is_an_error_at_once() -> None:
    with (
        FakeBroker(ranges={key: row for key, row in broker_ranges({}).items() if key != 26}) as broker,
        BlockingClient(broker.bootstrap, retry_timeout_ms=60_000) as client,
        pytest.raises(KafkaException) as raised,
    ):
        BlockingCoordinators(client).end([X], committed=True)
    assert raised.value.code == KafkaError._UNSUPPORTED_FEATURE


def test_transactions_that_do_not_end_are_named(broker: FakeBroker, impatient: BlockingCoordinators) -> None:
    broker.handlers[EndTxnRequest] = lambda request, version: EndTxnResponse(
        error_code=0 if request.transactional_id == "x" else ErrorCode.CONCURRENT_TRANSACTIONS
    )
    with pytest.raises(KafkaException, match="transactions do not end: y, z") as raised:
        impatient.end([X, TransactionalProducer("z", 9, 0), Y], committed=True)
    assert raised.value.code == KafkaError._TIMED_OUT


def test_no_transactions_are_ended_without_a_request(
    broker: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    assert coordinators.end([], committed=True) == {}
    assert broker.requests == []


def test_older_brokers_look_up_one_coordinator_at_a_time() -> None:
    with (
        FakeBroker(ranges=broker_ranges({10: (1, 3)})) as broker,
        BlockingClient(broker.bootstrap, retry_timeout_ms=60_000) as client,
    ):
        broker.handlers[EndTxnRequest] = lambda request, version: EndTxnResponse()
        here = FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)
        refused = FindCoordinatorResponse(error_code=LASTING)
        broker.script(FindCoordinatorRequest, here, here, refused)
        them = BlockingCoordinators(client)
        assert them.end([X, Y], committed=True) == {"x": 0, "y": 0}
        asked = [(row.key_type, row.key) for row in broker.asked(FindCoordinatorRequest)]
        assert asked == [(TRANSACTION_KEY_TYPE, "x"), (TRANSACTION_KEY_TYPE, "y")]
        with pytest.raises(KafkaException) as raised:
            them.describe(["z"])
        assert raised.value.code == LASTING and raised.value.error.str().endswith(": z")


def test_a_lookup_that_answers_for_some_keys_is_repeated_for_the_others(
    broker: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    broker.script(FindCoordinatorRequest, found_at(("x", broker)), found_at(("y", broker)))
    broker.handlers[EndTxnRequest] = lambda request, version: EndTxnResponse()
    assert coordinators.end([X, Y], committed=True) == {"x": 0, "y": 0}
    assert lookups(broker) == [(TRANSACTION_KEY_TYPE, ["x", "y"]), (TRANSACTION_KEY_TYPE, ["y"])]


# Lists from every broker


@pytest.fixture
def both(broker: FakeBroker, other: FakeBroker) -> list[MetadataResponseBroker]:
    rows = brokers_at(dict(enumerate((other.port, 1, broker.port))))
    broker.handlers[MetadataRequest] = lambda request, version: MetadataResponse(brokers=list(rows))
    return rows


def ongoing(*names: str) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        transaction_states=[ListedTransaction(transactional_id=name) for name in names]
    )


def test_open_transactions_of_every_reachable_broker_are_listed(
    broker: FakeBroker, other: FakeBroker, both: list[Any], coordinators: BlockingCoordinators
) -> None:
    broker.script(ListTransactionsRequest, ongoing("q-2", "q-1", "other"))
    other.script(ListTransactionsRequest, ongoing("q-2", "q-0"))
    assert coordinators.list_open("q-") == ["q-0", "q-1", "q-2"]
    assert broker.asked(ListTransactionsRequest) == [ListTransactionsRequest(state_filters=["Ongoing"])]
    assert [row.topics for row in broker.asked(MetadataRequest)] == [[]], "no topics are asked for"


def test_a_broker_that_cannot_list_transactions_is_an_error() -> None:
    with (
        FakeBroker(ranges={key: row for key, row in broker_ranges({}).items() if key != 66}) as broker,
        BlockingClient(broker.bootstrap) as client,
        pytest.raises(KafkaException) as raised,
    ):
        BlockingCoordinators(client).list_open("q-")
    assert raised.value.code == KafkaError._UNSUPPORTED_FEATURE


def test_groups_of_every_broker_are_listed_and_none_may_be_missing(
    broker: FakeBroker, other: FakeBroker, both: list[Any], coordinators: BlockingCoordinators
) -> None:
    for each, names in ((broker, ("q-1", "other")), (other, ("q-0", "q-1"))):
        groups = [ListedGroup(group_id=name) for name in names]
        each.handlers[ListGroupsRequest] = lambda request, version, groups=groups: ListGroupsResponse(
            groups=groups
        )
    with pytest.raises(KafkaException):
        coordinators.list_groups("q-")
    del both[1]
    assert coordinators.list_groups("q-") == ["q-0", "q-1"]


def test_a_broker_that_refuses_to_list_is_an_error_but_its_loading_coordinators_are_passed_over(
    broker: FakeBroker, coordinators: BlockingCoordinators
) -> None:
    denied, loading = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.script(
        ListTransactionsRequest,
        ListTransactionsResponse(error_code=denied),
        ListTransactionsResponse(error_code=loading),
    )
    with pytest.raises(KafkaException, match="broker 1") as raised:
        coordinators.list_open("q-")
    assert raised.value.code == denied
    assert coordinators.list_open("q-") == []


@pytest.mark.parametrize(
    "code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_list_of_groups_that_may_lack_some_is_an_error(
    broker: FakeBroker, coordinators: BlockingCoordinators, code: int
) -> None:
    broker.script(ListGroupsRequest, ListGroupsResponse(error_code=code))
    with pytest.raises(KafkaException, match="broker 1") as raised:
        coordinators.list_groups("q-")
    assert raised.value.code == code
