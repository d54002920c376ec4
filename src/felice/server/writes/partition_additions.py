"""Adds partitions to a transaction, or checks whether they were added, for AddPartitionsToTxn.

All partitions are added or none: if a topic is unknown or not allowed, it gets its error, and the others get
OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Callable

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.coordinator.transaction.coordinator import TransactionCoordinator
from felice.coordinator.transaction.metadata import V1, V2
from felice.coordinator.transaction.shard import Identity
from felice.env import Clock
from felice.metadata import ClusterImage
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
from felice.protocol.topic_partition import TopicPartition
from felice.server.flow.pace import paced
from felice.server.writes.transactions import as_client_error

_SEVERAL_SINCE = 4
_FENCED_SINCE = 2

MayWrite = Callable[[str], bool]
"""Whether the client may write to a topic."""
_Results = list[AddPartitionsToTxnTopicResult]


async def add_partitions(
    request: AddPartitionsToTxnRequest,
    transactions: TransactionCoordinator,
    image: ClusterImage,
    version: int,
    clock: Clock,
    check_session: Callable[[], None],
    may_write: MayWrite = lambda topic: True,
) -> AddPartitionsToTxnResponse:
    """The response to AddPartitionsToTxn, in the form of `version`: one transaction below 4, several from 4 on.

    Up to version 3 clients send the request, and `may_write` checks each topic. Brokers send the later versions.
    `check_session` is called after each pause: another broker may coordinate the transactions by then.
    """
    if version < _SEVERAL_SINCE:
        one = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=await _one(
                one, transactions, image, version, clock, check_session, may_write
            )
        )
    results = [
        AddPartitionsToTxnResult(
            transactional_id=one.transactional_id,
            topic_results=await _one(one, transactions, image, version, clock, check_session, may_write),
        )
        async for one in paced(request.transactions, clock)
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _one(
    asked: AddPartitionsToTxnTransaction,
    transactions: TransactionCoordinator,
    image: ClusterImage,
    version: int,
    clock: Clock,
    check_session: Callable[[], None],
    may_write: MayWrite,
) -> _Results:
    # One element for each row of the request, because a request may have several rows of one topic.
    faults = [_faults(topic, image, version, may_write) async for topic in paced(asked.topics, clock)]
    if any(code != ErrorCode.NONE for found in faults for code in found.values()):
        return _not_attempted(asked.topics, faults)
    if not asked.transactional_id:
        return _everywhere(asked.topics, ErrorCode.INVALID_REQUEST)
    who = Identity(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        return await _verified(who, asked.topics, transactions, clock, check_session)
    partitions = frozenset(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    client_version = V2 if version >= _SEVERAL_SINCE else V1
    # The process may have been suspended during a pause, and another broker may be the coordinator now.
    check_session()
    error = await transactions.add_partitions(who, partitions, client_version)
    return _everywhere(asked.topics, as_client_error(error, version >= _FENCED_SINCE))


def _faults(
    topic: AddPartitionsToTxnTopic, image: ClusterImage, version: int, may_write: MayWrite
) -> dict[int, ErrorCode]:
    is_from_client = version < _SEVERAL_SINCE
    if is_from_client and (topic.name in INTERNAL_TOPICS or not may_write(topic.name)):
        return dict.fromkeys(topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return {
        index: ErrorCode.NONE
        if image.partition(topic.name, index) is not None
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for index in topic.partitions
    }


def _not_attempted(topics: list[AddPartitionsToTxnTopic], faults: list[dict[int, ErrorCode]]) -> _Results:
    return [
        _topic(
            topic.name, {index: code or ErrorCode.OPERATION_NOT_ATTEMPTED for index, code in found.items()}
        )
        for topic, found in zip(topics, faults, strict=True)
    ]


async def _verified(
    who: Identity,
    topics: list[AddPartitionsToTxnTopic],
    transactions: TransactionCoordinator,
    clock: Clock,
    check_session: Callable[[], None],
) -> _Results:
    codes: list[dict[int, ErrorCode]] = [{} for _ in topics]
    asked = ((at, topic.name, index) for at, topic in enumerate(topics) for index in topic.partitions)
    async for at, name, index in paced(asked, clock):
        check_session()
        codes[at][index] = transactions.verify(who, TopicPartition(name, index))
    return [_topic(topic.name, found) for topic, found in zip(topics, codes, strict=True)]


def _everywhere(topics: list[AddPartitionsToTxnTopic], code: ErrorCode) -> _Results:
    return [_topic(topic.name, dict.fromkeys(topic.partitions, code)) for topic in topics]


def _topic(name: str, codes: dict[int, ErrorCode]) -> AddPartitionsToTxnTopicResult:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in codes.items()
    ]
    return AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows)
