"""The requests of a producer's transaction on the wire, of the producer with threads and of the asyncio producer."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from felice.client import ConsumerGroupMetadata, KafkaError, KafkaException, Message, Producer, TopicPartition
from felice.client.aio import AIOProducer
from felice.client.aio import Producer as AsyncProducer
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from felice.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from felice.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    FindCoordinatorRequest,
)
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.produce import ProduceRequest
from felice.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from unit.client.admin.exchange import broker_ranges
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from waiting import wait_until

GROUP = ConsumerGroupMetadata("g", 3, "m-1", "i-1")
OFFSETS = [TopicPartition("s", 1, 5, "note", 4), TopicPartition("s", 0, 6), TopicPartition("s", 2)]
OF_TRANSACTIONS = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)


class Coordinating(FakeBroker):
    """Knows transactions of version 1 or 2."""

    def __init__(self, level: int = 1, ranges: dict[int, tuple[int, int]] | None = None) -> None:
        super().__init__({"t": 2, "u": 1}, ranges)
        versions = self.handlers[ApiVersionsRequest]

        def finalized(request: Any, version: int) -> ApiVersionsResponse:
            response: ApiVersionsResponse = versions(request, version)
            response.finalized_features_epoch = 0
            response.finalized_features = [
                FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=0)
            ]
            return response

        self.handlers |= {
            ApiVersionsRequest: finalized,
            AddPartitionsToTxnRequest: lambda request, version: added(request),
            AddOffsetsToTxnRequest: lambda request, version: AddOffsetsToTxnResponse(),
            TxnOffsetCommitRequest: lambda request, version: TxnOffsetCommitResponse(),
            EndTxnRequest: lambda request, version: EndTxnResponse(
                **({"producer_id": 7, "producer_epoch": request.producer_epoch + 1} if version > 4 else {})
            ),
        }

    def sent(self) -> list[tuple[Any, int]]:
        """The requests of transactions, and their versions."""
        return [row for row in self.requests if isinstance(row[0], OF_TRANSACTIONS)]


def added(request: AddPartitionsToTxnRequest, code: int = 0) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def committed(code: int) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponsePartition(partition_index=1, error_code=code)
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="s", partitions=[row])])


@dataclass(frozen=True, slots=True)
class Made:
    """A producer of either kind: `await made.do("commit_transaction", 5.0)`."""

    producer: Any

    async def do(self, name: str, *arguments: Any, **more: Any) -> Any:
        result = getattr(self.producer, name)(*arguments, **more)
        return await result if inspect.isawaitable(result) else result

    async def produce(self, topic: str, value: bytes, partition: int) -> None:
        """Queue a record; the coroutine does not wait for its result."""
        send = getattr(self.producer, "produce", None) or self.producer.send
        result = send(topic, value, partition=partition)
        if inspect.isawaitable(result):
            future = await result
            future.add_done_callback(lambda done: done.cancelled() or done.exception())


@asynccontextmanager
async def made(kind: Callable[..., Any], broker: FakeBroker, **options: Any) -> AsyncIterator[Made]:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": "x",
        "transaction.timeout.ms": 30_000,
        "linger.ms": 0,
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 20,
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    found = Made(kind({name: value for name, value in config.items() if value is not None}))
    await found.do("start") if kind is AsyncProducer else None
    try:
        yield found
    finally:
        with suppress(KafkaException):
            await found.do("close")


KINDS = pytest.mark.parametrize("kind", [Producer, AIOProducer, AsyncProducer])
INIT = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=30_000)
ADDED = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="x",
    v3_and_below_producer_id=7,
    v3_and_below_producer_epoch=0,
    v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[1])],
)
ADDED_GROUP = AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=0, group_id="g")
COMMITTED = TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    producer_id=7,
    producer_epoch=0,
    generation_id=3,
    member_id="m-1",
    group_instance_id="i-1",
    topics=[
        TxnOffsetCommitRequestTopic(
            name="s",
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=1,
                    committed_offset=5,
                    committed_leader_epoch=4,
                    committed_metadata="note",
                ),
                # An offset without a number is not committed.
                TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=6, committed_metadata=""),
            ],
        )
    ],
)


def ended(committed: bool, epoch: int = 0) -> EndTxnRequest:
    return EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=epoch, committed=committed)


@KINDS
async def test_requests_of_a_transaction(kind: type[Any]) -> None:
    with Coordinating() as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions", 60)
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("flush")
            await producer.do("send_offsets_to_transaction", OFFSETS, GROUP, 60)
            await producer.do("commit_transaction", 60)
        assert broker.sent() == [
            (INIT, 5),
            (ADDED, 3),
            (ADDED_GROUP, 4),
            (COMMITTED, 4),
            (ended(True), 4),
        ]
        found = [(row.key_type, row.coordinator_keys) for row in broker.asked(FindCoordinatorRequest)]
        assert found == [(TRANSACTION_KEY_TYPE, ["x"]), (GROUP_KEY_TYPE, ["g"])]
        assert [row.transactional_id for row in broker.asked(ProduceRequest)] == ["x"]
        [header] = broker.batches("t", 1)
        assert header.is_transactional and broker.values("t", 1) == [b"v"]


@KINDS
async def test_requests_of_transactions_of_version_2(kind: type[Any]) -> None:
    with Coordinating(level=2) as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            for turn in range(2):
                await producer.do("begin_transaction")
                await producer.produce("t", b"%d" % turn, 1)
                await producer.do("flush")
                await producer.do("send_offsets_to_transaction", OFFSETS, GROUP)
                await producer.do("commit_transaction" if turn == 0 else "abort_transaction")
        kinds = [(type(request), version, request.producer_epoch) for request, version in broker.sent()]
        # The first end gives a new epoch, with which the second transaction begins.
        assert kinds == [
            (InitProducerIdRequest, 5, -1),
            (TxnOffsetCommitRequest, 5, 0),
            (EndTxnRequest, 5, 0),
            (TxnOffsetCommitRequest, 5, 1),
            (EndTxnRequest, 5, 1),
        ]
        assert [row.committed for row in broker.asked(EndTxnRequest)] == [True, False]
        assert [row.producer_epoch for row in broker.batches("t", 1)] == [0, 1]


@KINDS
@pytest.mark.parametrize("ranges", [{26: (0, 4)}, {}])
async def test_version_2_needs_the_feature_and_the_request(
    kind: type[Any], ranges: dict[int, tuple[int, int]]
) -> None:
    with Coordinating(2 if ranges else 1, broker_ranges(ranges)) as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("commit_transaction")
        assert len(broker.asked(AddPartitionsToTxnRequest)) == 1


@KINDS
async def test_an_aborted_transaction_is_ended_so(kind: type[Any]) -> None:
    with Coordinating() as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("flush")
            await producer.do("abort_transaction", 60)
        assert broker.sent()[-1] == (ended(False), 4)


@KINDS
async def test_a_closed_producer_aborts_its_open_transaction(kind: type[Any]) -> None:
    with Coordinating() as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("flush")
        assert broker.sent()[-1] == (ended(False), 4)


def test_a_transaction_is_committed_although_a_callback_raises() -> None:
    served: list[bytes | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        served.append(message.value())
        raise LookupError(message.value())

    with Coordinating() as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "on_delivery": report}
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"0", partition=1)
        producer.produce("t", b"1", partition=1)
        with pytest.raises(LookupError, match="b'0'"):
            producer.commit_transaction()
        assert broker.sent()[-1] == (ended(True), 4)
        producer.close()
    assert served == [b"0", b"1"]


@KINDS
async def test_no_offsets_need_no_request(kind: type[Any]) -> None:
    with Coordinating() as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.do("send_offsets_to_transaction", [], GROUP)
            await producer.do("commit_transaction")
        assert broker.sent() == [(INIT, 5)]


PASSING = [
    (ErrorCode.NOT_COORDINATOR, 2),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1),
    (ErrorCode.CONCURRENT_TRANSACTIONS, 1),
]


@pytest.mark.parametrize(("code", "lookups"), PASSING)
@pytest.mark.parametrize(
    ("request_type", "answer", "key"),
    [
        (InitProducerIdRequest, lambda code: InitProducerIdResponse(error_code=code), "x"),
        (
            AddPartitionsToTxnRequest,
            lambda code: lambda request, version: added(request, code),
            "x",
        ),
        (AddOffsetsToTxnRequest, lambda code: AddOffsetsToTxnResponse(error_code=code), "x"),
        (TxnOffsetCommitRequest, committed, "g"),
        (EndTxnRequest, lambda code: EndTxnResponse(error_code=code), "x"),
    ],
)
def test_passing_errors_are_retried_at_the_right_coordinator(
    request_type: type, answer: Callable[[int], Any], key: str, code: int, lookups: int
) -> None:
    with (
        Coordinating() as broker,
        Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": "x",
                "retry.backoff.ms": 5,
                "linger.ms": 0,
            }
        ) as producer,
    ):
        broker.script(request_type, answer(code))
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"v", partition=1)
        producer.send_offsets_to_transaction(OFFSETS, GROUP)
        producer.commit_transaction()
        assert len(broker.asked(request_type)) == 2
        found = [row.coordinator_keys for row in broker.asked(FindCoordinatorRequest)]
        assert found.count([key]) == lookups


@KINDS
async def test_a_lost_connection_is_retried_at_the_coordinator(kind: type[Any]) -> None:
    with Coordinating() as broker:
        broker.script(EndTxnRequest, Disconnect)
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("commit_transaction")
        assert len(broker.asked(EndTxnRequest)) == 2


@KINDS
@pytest.mark.parametrize("timeout", [0.05, 0])
async def test_a_call_that_timed_out_goes_on_and_may_be_made_again(kind: type[Any], timeout: float) -> None:
    with Coordinating() as broker:
        broker.script(
            InitProducerIdRequest, *[InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)] * 4
        )
        async with made(kind, broker) as producer:
            with pytest.raises(KafkaException, match=f"init_transactions: not done in {timeout:g} s") as late:
                await producer.do("init_transactions", timeout)
            assert late.value.code == KafkaError._TIMED_OUT and late.value.error.retriable()
            await producer.do("init_transactions", -1)
        assert len(broker.asked(InitProducerIdRequest)) == 5


@KINDS
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_an_end_that_timed_out_goes_on_and_may_be_made_again(kind: type[Any], end: str) -> None:
    with Coordinating() as broker:
        broker.script(EndTxnRequest, *[EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)] * 4)
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("flush")
            with pytest.raises(KafkaException, match=f"{end}: not done in") as late:
                await producer.do(end, 0.05)
            assert late.value.code == KafkaError._TIMED_OUT and late.value.error.retriable()
            await producer.do(end)
        assert len(broker.asked(EndTxnRequest)) == 5


@KINDS
async def test_a_commit_whose_records_are_late_times_out_with_them(kind: type[Any]) -> None:
    with Coordinating() as broker:
        broker.script(ProduceRequest, Hang)
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            started = time.monotonic()
            with pytest.raises(KafkaException, match=r"commit_transaction: not done in 0.1 s") as late:
                await producer.do("commit_transaction", 0.1)
            assert late.value.code == KafkaError._TIMED_OUT
            assert 0.1 <= time.monotonic() - started < 40
            await producer.do("purge")
            with suppress(KafkaException):
                await producer.do("abort_transaction")


def test_a_batch_that_came_before_its_repeated_predecessor_is_sent_again() -> None:
    """The broker refuses its sequence number, because the batch before it is missing so far."""
    with (
        Coordinating() as broker,
        Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": "x",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 10,
            }
        ) as producer,
    ):
        refuse = broker.produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)

        def refuse_late(request: ProduceRequest, version: int) -> Any:
            assert producer._core is not None
            in_flight = producer._core.sender._in_flight
            wait_until(lambda: in_flight.get(1) == 2)
            return refuse(request, version)

        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"0", partition=1)
        assert producer.flush(60) == 0
        broker.script(
            ProduceRequest, refuse_late, broker.produce_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        )
        for value in (b"1", b"2"):
            producer.produce("t", value, partition=1)
        producer.commit_transaction(60)
        assert broker.values("t", 1) == [b"0", b"1", b"2"]
        assert len(broker.asked(ProduceRequest)) == 5


@KINDS
async def test_a_fatal_error_is_the_result_of_the_call(kind: type[Any]) -> None:
    with Coordinating() as broker:
        broker.script(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            with pytest.raises(KafkaException) as raised:
                await producer.do("commit_transaction")
            assert raised.value.code == KafkaError._FENCED and raised.value.error.fatal()


@KINDS
async def test_a_coordinator_that_refuses_the_id_is_an_error(kind: type[Any]) -> None:
    with Coordinating() as broker:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        broker.script(InitProducerIdRequest, InitProducerIdResponse(error_code=code))
        async with made(kind, broker) as producer:
            with pytest.raises(KafkaException) as raised:
                await producer.do("init_transactions")
            assert raised.value.code == code and raised.value.error.fatal()


@KINDS
async def test_offsets_need_the_metadata_of_a_group(kind: type[Any]) -> None:
    with Coordinating() as broker:
        async with made(kind, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            with pytest.raises(TypeError, match=r"expected consumer_group_metadata\(\), got str"):
                await producer.do("send_offsets_to_transaction", OFFSETS, "g")
            with pytest.raises(KafkaException, match='no "group.id"') as raised:
                await producer.do("send_offsets_to_transaction", OFFSETS, ConsumerGroupMetadata(""))
            assert raised.value.code == KafkaError._INVALID_ARG


@KINDS
async def test_transactions_need_an_id(kind: type[Any]) -> None:
    with Coordinating() as broker:
        async with made(kind, broker, transactional_id=None, transaction_timeout_ms=None) as producer:
            for call in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
                with pytest.raises(KafkaException) as raised:
                    await producer.do(call)
                assert raised.value.code == KafkaError._NOT_CONFIGURED


@pytest.mark.parametrize(
    ("ranges", "group", "is_allowed"),
    [
        ({28: (0, 2)}, GROUP, False),
        ({28: (0, 2)}, ConsumerGroupMetadata("g"), True),
        ({28: (0, 3)}, GROUP, True),
    ],
)
async def test_members_commit_offsets_from_version_3_on(
    ranges: dict[int, tuple[int, int]], group: ConsumerGroupMetadata, is_allowed: bool
) -> None:
    with Coordinating(1, broker_ranges(ranges)) as broker:
        async with made(Producer, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            if is_allowed:
                await producer.do("send_offsets_to_transaction", OFFSETS, group)
                return
            with pytest.raises(KafkaException, match="KIP-447") as raised:
                await producer.do("send_offsets_to_transaction", OFFSETS, group)
            assert raised.value.code == KafkaError._UNSUPPORTED_FEATURE and raised.value.error.fatal()


@pytest.mark.parametrize(("newest", "is_allowed"), [(2, False), (3, True)])
async def test_a_known_producer_gets_a_new_epoch_from_version_3_on(newest: int, is_allowed: bool) -> None:
    with Coordinating(1, broker_ranges({22: (0, newest)})) as broker:
        async with made(Producer, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            broker.script(ProduceRequest, broker.produce_error(ErrorCode.INVALID_RECORD))
            await producer.produce("t", b"v", 1)
            await producer.do("flush")
            if not is_allowed:
                with pytest.raises(KafkaException, match="KIP-360"):
                    await producer.do("abort_transaction")
                return
            await producer.do("abort_transaction")
        resumed = InitProducerIdRequest(
            transactional_id="x", transaction_timeout_ms=30_000, producer_id=7, producer_epoch=0
        )
        assert broker.asked(InitProducerIdRequest) == [INIT, resumed]


async def test_a_broker_that_forgets_version_2_is_not_used_for_half_a_transaction() -> None:
    with Coordinating(level=2) as broker:
        async with made(Producer, broker) as producer:
            await producer.do("init_transactions")
            await producer.do("begin_transaction")
            await producer.produce("t", b"v", 1)
            await producer.do("flush")
            usual = broker.handlers[ApiVersionsRequest]

            def older(request: Any, version: int) -> ApiVersionsResponse:
                response: ApiVersionsResponse = usual(request, version)
                for row in response.api_keys:
                    row.max_version = 4 if row.api_key == 26 else row.max_version
                return response

            broker.handlers[ApiVersionsRequest] = older
            broker.script(EndTxnRequest, Disconnect)
            with pytest.raises(
                KafkaException, match=r"the cluster's transaction\.version is below 2 again"
            ) as raised:
                await producer.do("commit_transaction")
            assert raised.value.code == KafkaError._UNSUPPORTED_FEATURE


async def test_a_transaction_block_commits_or_aborts() -> None:
    with Coordinating() as broker:
        async with made(AsyncProducer, broker) as made_producer:
            producer = made_producer.producer
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"1", partition=1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait("t", b"2", partition=1)
                    raise ZeroDivisionError
            assert [row.committed for row in broker.asked(EndTxnRequest)] == [True, False]


async def test_a_transaction_block_aborts_what_cannot_be_committed() -> None:
    with Coordinating() as broker:
        async with made(AsyncProducer, broker) as made_producer:
            producer = made_producer.producer
            await producer.init_transactions()
            broker.script(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE))
            with pytest.raises(KafkaException) as raised:
                async with producer.transaction():
                    await producer.send("t", b"1", partition=1)
            assert raised.value.error.txn_requires_abort()
            assert [row.committed for row in broker.asked(EndTxnRequest)] == [True, False]
            async with producer.transaction():
                await producer.send("t", b"2", partition=1)
            assert [row.committed for row in broker.asked(EndTxnRequest)] == [True, False, True]


async def test_an_abort_that_fails_does_not_hide_the_first_error() -> None:
    with Coordinating() as broker:
        async with made(AsyncProducer, broker) as made_producer:
            producer = made_producer.producer
            await producer.init_transactions()
            broker.script(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait("t", b"1", partition=1)
                    raise ZeroDivisionError
