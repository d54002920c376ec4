"""A queued transactional request lets its producer's next request pass once its records are in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from begun_calls import under_way
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from felice.protocol.topic_partition import TopicPartition
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.replication.partition import ACKS_ALL
from felice.server.context import RequestContext
from felice.server.handlers import produce, txn_offset_commit
from felice.server.services import Services
from rooms import context_with
from waiting import LIMIT_S

VERSION = 12
ContextOf: TypeAlias = Callable[..., RequestContext]


class Queue:
    """An admission in which every request waits for the coordinator, which refuses the given partitions."""

    def __init__(self, refusals: dict[TopicPartition, ErrorCode] | None = None) -> None:
        self.refusals = refusals or {}
        self.has_ended = asyncio.Event()

    def enter(self, *_: object) -> Queue:
        return self

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.ensure_future(work)

    async def __aenter__(self) -> dict[TopicPartition, ErrorCode]:
        return self.refusals

    async def __aexit__(self, *_: object) -> None:
        self.has_ended.set()


@pytest.fixture
def context_of(services: Services) -> ContextOf:
    """Makes the context of a request to one partition, with this admission and other parts."""

    def context_of(queue: Queue, partition: object, groups: object = None, **others: Any) -> RequestContext:
        known: Any = SimpleNamespace(get=lambda *where: partition, find=lambda *where: partition)
        coordinators: Any = SimpleNamespace(admission=queue, groups=groups)
        image = SimpleNamespace(topic_names={}, partition=lambda *where: object())
        watcher: Any = SimpleNamespace(image=image)
        parts = {"partitions": known, "coordinators": coordinators, "watcher": watcher, **others}
        return context_with(replace(services, **parts), VERSION)

    return context_of


def produce_request(codec: Codec = Codec.NONE) -> ProduceRequest:
    builder = BatchBuilder(codec, producer_id=7, producer_epoch=2, base_sequence=0, transactional=True)
    builder.append(1, b"k", b"v")
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(transactional_id="x", acks=ACKS_ALL, timeout_ms=1000, topic_data=[topic])


async def test_a_produced_batch_is_replicated_while_the_next_request_is_handled(
    context_of: ContextOf,
) -> None:
    queue, replicated = Queue(), asyncio.Event()

    async def wait_acknowledged(*_: object) -> None:
        await replicated.wait()

    info = SimpleNamespace(base_offset=5, log_append_time_ms=-1, log_start_offset=0)
    partition = SimpleNamespace(
        append=lambda records, **given: info,
        is_acknowledged=lambda *_: False,
        wait_acknowledged=wait_acknowledged,
    )
    answer: Any = under_way(produce.handle(produce_request(), context_of(queue, partition)))
    async with asyncio.timeout(LIMIT_S):
        await queue.has_ended.wait()
        assert not answer.done()
        replicated.set()
        response: ProduceResponse = await answer
    assert response.responses[0].partition_responses[0].base_offset == 5


async def test_a_partition_that_the_coordinator_refuses_receives_nothing(context_of: ContextOf) -> None:
    queue = Queue({TopicPartition("t", 0): ErrorCode.INVALID_TXN_STATE})
    answer: Any = under_way(produce.handle(produce_request(), context_of(queue, object())))
    response: ProduceResponse = await answer
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE


async def test_a_batch_is_validated_only_after_the_coordinator_agreed(context_of: ContextOf) -> None:
    """Many requests may wait for a coordinator: none of them keeps a batch that was rebuilt for its topic."""
    events: list[str] = []

    class Agreeing(Queue):
        async def __aenter__(self) -> dict[TopicPartition, ErrorCode]:
            events.append("agreed")
            return {}

    def validate_small(*_: object, **rules: object) -> ApiError:
        events.append("validated")
        return ApiError(ErrorCode.INVALID_RECORD)

    def append(records: object, *, verdict: ApiError, **given: object) -> object:
        raise verdict

    log = SimpleNamespace(produce_rules=None)
    partition = SimpleNamespace(append=append, is_leader=True, log=log, log_start_offset=0)
    validation = SimpleNamespace(validate_small=validate_small)
    context = context_of(Agreeing(), partition, batch_validation=validation)
    answer: Any = under_way(produce.handle(produce_request(Codec.GZIP), context))
    response: ProduceResponse = await answer
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    assert events == ["agreed", "validated"]


async def test_committed_offsets_are_replicated_while_the_next_request_is_handled(
    context_of: ContextOf,
) -> None:
    refusals = {TopicPartition("__consumer_offsets", 3): ErrorCode.INVALID_TXN_STATE}
    queue, replicated, refused = Queue(refusals), asyncio.Event(), []

    def commit_transactional(request: object, refusal: ErrorCode) -> Coroutine[Any, Any, Any]:
        async def answer() -> TxnOffsetCommitResponse:
            await replicated.wait()
            return TxnOffsetCommitResponse()

        refused.append(refusal)
        return answer()

    groups = SimpleNamespace(
        answer_without_transaction=lambda request: None,
        partition_for=lambda group_id: 3,
        commit_transactional=commit_transactional,
    )
    context = context_of(queue, object(), groups=groups)
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=7, producer_epoch=2)
    answer: Any = under_way(txn_offset_commit.handle(request, context))
    async with asyncio.timeout(LIMIT_S):
        await queue.has_ended.wait()
        assert not answer.done()
        replicated.set()
        await answer
    assert refused == [ErrorCode.INVALID_TXN_STATE]
