"""AddPartitionsToTxn (key 24): partitions that a transaction is about to write to.

All or none: where one topic is unknown or not for clients, it gets its error and the others OPERATION_NOT_ATTEMPTED.
From version 4 the askers are brokers: several transactions in one request, or with `verify_only` a mere question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.coordinator.transaction.metadata import TopicPartition
from felice.coordinator.transaction.shard import Identity
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from felice.server.transactions import as_client_error, settled

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_SEVERAL_SINCE = 4
_FENCED_SINCE = 2
_ABORTABLE_SINCE = 5

_Results = list[AddPartitionsToTxnTopicResult]


async def handle(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    if context.version < _SEVERAL_SINCE:
        one = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _one(one, context))
    results = [
        AddPartitionsToTxnResult(
            transactional_id=one.transactional_id, topic_results=await _one(one, context)
        )
        for one in request.transactions
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _one(asked: AddPartitionsToTxnTransaction, context: RequestContext) -> _Results:
    if not asked.transactional_id:
        return _everywhere(asked.topics, ErrorCode.INVALID_REQUEST)
    faults = {topic.name: _faults(topic, context) for topic in asked.topics}
    if any(code != ErrorCode.NONE for found in faults.values() for code in found.values()):
        return _not_attempted(asked.topics, faults)
    who = Identity(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return _verified(who, asked.topics, context)
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    error = await settled(context.broker.transaction_coordinator.add_partitions(who, partitions))
    return _everywhere(asked.topics, as_client_error(error, context.version >= _FENCED_SINCE))


def _faults(topic: AddPartitionsToTxnTopic, context: RequestContext) -> dict[int, ErrorCode]:
    if context.version < _SEVERAL_SINCE and topic.name in INTERNAL_TOPICS:
        return dict.fromkeys(topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    image = context.broker.image
    return {
        index: ErrorCode.NONE
        if image.partition(topic.name, index) is not None
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in topic.partitions
    }


def _not_attempted(
    topics: list[AddPartitionsToTxnTopic], faults: dict[str, dict[int, ErrorCode]]
) -> _Results:
    return [
        _topic(
            topic.name,
            {
                index: faults[topic.name].get(index) or ErrorCode.OPERATION_NOT_ATTEMPTED
                for index in topic.partitions
            },
        )
        for topic in topics
    ]


def _verified(who: Identity, topics: list[AddPartitionsToTxnTopic], context: RequestContext) -> _Results:
    def verify(topic: str, index: int) -> ErrorCode:
        found = context.broker.transaction_coordinator.verify(who, TopicPartition(topic, index))
        if found == ErrorCode.TRANSACTION_ABORTABLE and context.version < _ABORTABLE_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        return found

    return [
        _topic(topic.name, {index: verify(topic.name, index) for index in topic.partitions})
        for topic in topics
    ]


def _everywhere(topics: list[AddPartitionsToTxnTopic], code: ErrorCode) -> _Results:
    return [_topic(topic.name, dict.fromkeys(topic.partitions, code)) for topic in topics]


def _topic(name: str, codes: dict[int, ErrorCode]) -> AddPartitionsToTxnTopicResult:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in codes.items()
    ]
    return AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows)
