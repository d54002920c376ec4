"""Transactions through the admin client, for operators (KIP-664)."""

from __future__ import annotations

from typing import Any

import pytest

from felice.client import KafkaError, TopicPartition
from felice.client.admin import (
    AbortTransactionSpec,
    AdminClient,
    FencedProducer,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from felice.client.error import failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import describe_producers as producers
from felice.protocol.messages import describe_transactions as described
from felice.protocol.messages import list_transactions as listed
from felice.protocol.messages.find_coordinator import TRANSACTION_KEY_TYPE, FindCoordinatorRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from unit.client.admin.exchange import TIMEOUT_MS, TIMEOUT_S, Exchange, broker_ranges
from unit.client.fake_broker import FakeBroker

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
SPEC = AbortTransactionSpec(TopicPartition("t", 2), 7, 3, 11)
MARKERS = WriteTxnMarkersRequest(
    markers=[
        WritableTxnMarker(
            producer_id=7,
            producer_epoch=3,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[2])],
            coordinator_epoch=11,
        )
    ]
)


def marked(error_code: int = 0) -> WriteTxnMarkersResponse:
    row = WritableTxnMarkerPartitionResult(partition_index=2, error_code=error_code)
    topics = [WritableTxnMarkerTopicResult(name="t", partitions=[row])]
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=topics)])


def no_filter(version: int, **filters: Any) -> Exchange:
    return Exchange(
        f"version {version} of ListTransactions lacks the filter {filters}",
        lambda admin: admin.list_transactions(**filters),
        [],
        [],
        failure(
            KafkaError._UNSUPPORTED_FEATURE,
            f"ListTransactions version {version} cannot choose by duration (from 1 on) or pattern (from 2 on)",
        ),
        ranges=broker_ranges({66: (0, version)}),
    )


TRANSACTIONS = [
    Exchange(
        "transactions are listed by every filter",
        lambda admin: admin.list_transactions(
            states=[TransactionState.ONGOING, TransactionState.PREPARE_ABORT],
            producer_ids=(7, 8),
            longer_than_ms=0,
            pattern="a.*",
            request_timeout=TIMEOUT_S,
        ),
        [
            listed.ListTransactionsRequest(
                state_filters=["Ongoing", "PrepareAbort"],
                producer_id_filters=[7, 8],
                duration_filter=0,
                transactional_id_pattern="a.*",
            )
        ],
        [
            listed.ListTransactionsResponse(
                transaction_states=[
                    listed.TransactionState(
                        transactional_id="a-1", producer_id=7, transaction_state="Ongoing"
                    ),
                    listed.TransactionState(transactional_id="a-2", producer_id=8, transaction_state="New"),
                ]
            )
        ],
        {
            1: [
                TransactionListing("a-1", 7, TransactionState.ONGOING),
                TransactionListing("a-2", 8, TransactionState.UNKNOWN),
            ]
        },
    ),
    Exchange(
        "all transactions are listed, unless the broker refuses it",
        lambda admin: admin.list_transactions(),
        [listed.ListTransactionsRequest(duration_filter=-1)],
        [listed.ListTransactionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
        failure(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "broker 1"),
    ),
    no_filter(0, longer_than_ms=0),
    no_filter(1, pattern=""),
    Exchange(
        "version 1 of ListTransactions knows durations",
        lambda admin: admin.list_transactions(longer_than_ms=5),
        [listed.ListTransactionsRequest(duration_filter=5)],
        [listed.ListTransactionsResponse()],
        {1: []},
        ranges=broker_ranges({66: (0, 1)}),
    ),
    Exchange(
        "an open transaction is described",
        lambda admin: admin.describe_transactions(["x"], request_timeout=TIMEOUT_S),
        [described.DescribeTransactionsRequest(transactional_ids=["x"])],
        [
            described.DescribeTransactionsResponse(
                transaction_states=[
                    described.TransactionState(
                        transactional_id="x",
                        transaction_state="Ongoing",
                        transaction_timeout_ms=60_000,
                        transaction_start_time_ms=0,
                        producer_id=7,
                        producer_epoch=3,
                        topics=[
                            described.TopicData(topic="t", partitions=[2, 0]),
                            described.TopicData(topic="u", partitions=[1]),
                        ],
                    )
                ]
            )
        ],
        {
            "x": TransactionDescription(
                1,
                TransactionState.ONGOING,
                7,
                3,
                60_000,
                0,
                [TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("u", 1)],
            )
        },
    ),
    Exchange(
        "between transactions there is no start",
        lambda admin: admin.describe_transactions(["x"]),
        [described.DescribeTransactionsRequest(transactional_ids=["x"])],
        [
            described.DescribeTransactionsResponse(
                transaction_states=[
                    described.TransactionState(transaction_state="Empty", transaction_start_time_ms=-1)
                ]
            )
        ],
        {"x": TransactionDescription(1, TransactionState.EMPTY, 0, 0, 0, None, [])},
    ),
    Exchange(
        "an unknown transactional id is an error",
        lambda admin: admin.describe_transactions(["x"]),
        [described.DescribeTransactionsRequest(transactional_ids=["x"])],
        [
            described.DescribeTransactionsResponse(
                transaction_states=[
                    described.TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
                ]
            )
        ],
        {"x": failure(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "x")},
    ),
    Exchange(
        "producers are fenced",
        lambda admin: admin.fence_producers(["x"], request_timeout=TIMEOUT_S),
        [InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=TIMEOUT_MS)],
        [InitProducerIdResponse(producer_id=7, producer_epoch=4)],
        {"x": FencedProducer(7, 4)},
    ),
    Exchange(
        "one transaction is terminated by force",
        lambda admin: admin.force_terminate_transaction("x", request_timeout=62.5),
        [InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=62_500)],
        [InitProducerIdResponse(error_code=DENIED)],
        failure(DENIED, "x"),
    ),
    Exchange(
        "the leader describes the producers of a partition",
        lambda admin: admin.describe_producers(
            [TopicPartition("t", 2), TopicPartition("t", 1), TopicPartition("no", 0)],
            request_timeout=TIMEOUT_S,
        ),
        [
            producers.DescribeProducersRequest(
                topics=[producers.TopicRequest(name="t", partition_indexes=[2, 1])]
            )
        ],
        [
            producers.DescribeProducersResponse(
                topics=[
                    producers.TopicResponse(
                        name="t",
                        partitions=[
                            producers.PartitionResponse(
                                partition_index=2,
                                active_producers=[
                                    producers.ProducerState(
                                        producer_id=7,
                                        producer_epoch=3,
                                        last_sequence=9,
                                        last_timestamp=1000,
                                        coordinator_epoch=0,
                                        current_txn_start_offset=0,
                                    ),
                                    producers.ProducerState(
                                        producer_id=8, producer_epoch=1, coordinator_epoch=-1
                                    ),
                                ],
                            ),
                            producers.PartitionResponse(
                                partition_index=1,
                                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                                error_message="why",
                            ),
                        ],
                    )
                ]
            )
        ],
        {
            TopicPartition("t", 2): [
                ProducerState(7, 3, 9, 1000, 0, 0),
                ProducerState(8, 1, -1, -1, None, None),
            ],
            TopicPartition("t", 1): failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-1 on broker 1: why"),
            TopicPartition("no", 0): failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no-0"),
        },
    ),
    Exchange(
        "a broker without a replica is asked once",
        lambda admin: admin.describe_producers([TopicPartition("t", 2)], broker_id=1),
        [
            producers.DescribeProducersRequest(
                topics=[producers.TopicRequest(name="t", partition_indexes=[2])]
            )
        ],
        [
            producers.DescribeProducersResponse(
                topics=[
                    producers.TopicResponse(
                        name="t",
                        partitions=[
                            producers.PartitionResponse(
                                partition_index=2, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                            )
                        ],
                    )
                ]
            )
        ],
        {TopicPartition("t", 2): failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-2 on broker 1")},
    ),
    Exchange(
        "a broker that does not exist is not asked",
        lambda admin: admin.describe_producers([TopicPartition("t", 2), TopicPartition("t", 0)], broker_id=7),
        [],
        [],
        {
            TopicPartition("t", number): failure(KafkaError._UNKNOWN_BROKER, "there is no broker 7")
            for number in (2, 0)
        },
    ),
    Exchange(
        "a hanging transaction is aborted in its partition",
        lambda admin: admin.abort_transaction(SPEC, request_timeout=TIMEOUT_S),
        [MARKERS],
        [marked()],
        None,
    ),
    Exchange(
        "the leader may refuse the abort",
        lambda admin: admin.abort_transaction(SPEC),
        [MARKERS],
        [marked(ErrorCode.TRANSACTION_COORDINATOR_FENCED)],
        failure(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "t-2, producer 7"),
    ),
    Exchange(
        "no abort is sent for a partition without a leader",
        lambda admin: admin.abort_transaction(
            AbortTransactionSpec(TopicPartition("no", 0), 7, 3, 11), request_timeout=TIMEOUT_S
        ),
        [],
        [],
        failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no-0"),
    ),
]


@pytest.mark.parametrize("exchange", TRANSACTIONS, ids=str)
def test_transactions(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected


@pytest.mark.parametrize(
    ("call", "kind", "moved", "settled"),
    [
        (
            lambda admin: admin.describe_transactions(["x"]),
            described.DescribeTransactionsRequest,
            described.DescribeTransactionsResponse(
                transaction_states=[described.TransactionState(error_code=ErrorCode.NOT_COORDINATOR)]
            ),
            described.DescribeTransactionsResponse(
                transaction_states=[described.TransactionState(transaction_state="Empty")]
            ),
        ),
        (
            lambda admin: admin.fence_producers(["x"]),
            InitProducerIdRequest,
            InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR),
            InitProducerIdResponse(),
        ),
    ],
)
def test_a_coordinator_that_moved_is_looked_up_again(call: Any, kind: type, moved: Any, settled: Any) -> None:
    with FakeBroker({"t": 1}) as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(kind, moved, settled)
        call(admin)["x"].result(60)
        assert len(broker.asked(kind)) == 2
        asked = [(row.key_type, row.coordinator_keys) for row in broker.asked(FindCoordinatorRequest)]
        assert asked == [(TRANSACTION_KEY_TYPE, ["x"])] * 2


@pytest.mark.parametrize("call", ["describe_transactions", "fence_producers"])
def test_wrong_transactional_ids_are_refused_at_once(call: str) -> None:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        ask = getattr(admin, call)
        with pytest.raises(ValueError, match="at least one transactional id"):
            ask([])
        with pytest.raises(Exception, match="the transactional id 'a' is named twice"):
            ask(["a", "a"])
        with pytest.raises(TypeError, match="expected a list of str, not of int"):
            ask(["a", 5])
