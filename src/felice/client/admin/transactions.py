"""Transactions for operators: list and describe them, describe a partition's producers, and end a transaction by force.

Each function sends one request and returns a result or an error; `aio.Admin` retries. The rules are those of KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from felice.client.admin.coordinators import ask_coordinator, raise_if_moved
from felice.client.admin.model import (
    AbortTransactionSpec,
    FencedProducer,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from felice.client.admin.results import Results, by_leader, from_all, from_each, no_broker, outcome
from felice.client.error import KafkaError, KafkaException, failure
from felice.client.model import Partition, TopicPartition
from felice.client.net.cluster import Cluster
from felice.client.net.requests import LAST_INIT_PRODUCER_ID, by_topic
from felice.client.net.wire import ByVersion
from felice.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from felice.protocol.messages.describe_producers import ProducerState as ProducerStateRow
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.find_coordinator import TRANSACTION_KEY_TYPE
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


async def list_transactions(
    cluster: Cluster,
    states: Sequence[TransactionState],
    producer_ids: Sequence[int],
    longer_than_ms: int,
    pattern: str | None,
) -> dict[int, list[TransactionListing]]:
    """List transactions. Asks every broker, because each lists only the transactions that it coordinates."""
    await cluster.refresh([])

    def build(version: int) -> ListTransactionsRequest:
        if (longer_than_ms >= 0 and version < 1) or (pattern is not None and version < 2):
            raise failure(
                KafkaError._UNSUPPORTED_FEATURE,
                f"ListTransactions version {version} cannot choose by duration (from 1 on) or pattern (from 2 on)",
            )
        return ListTransactionsRequest(
            state_filters=[state.value for state in states],
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

    answers = await from_all(cluster, ByVersion(ListTransactionsRequest, build))
    found = {}
    for node_id, response in answers.items():
        if isinstance(response, KafkaException):
            raise response
        if response.error_code:
            raise failure(response.error_code, f"broker {node_id}")
        found[node_id] = [
            TransactionListing(
                row.transactional_id, row.producer_id, TransactionState.of(row.transaction_state)
            )
            for row in response.transaction_states
        ]
    return found


async def describe_transaction(
    cluster: Cluster, transactional_id: str, timeout_s: float
) -> TransactionDescription:
    """Return the coordinator's description of a transactional id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    row = (await _ask(cluster, transactional_id, request, timeout_s)).transaction_states[0]
    _check(cluster, transactional_id, row.error_code)
    return TransactionDescription(
        await cluster.coordinator(transactional_id, timeout_s, TRANSACTION_KEY_TYPE),
        TransactionState.of(row.transaction_state),
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        _known(row.transaction_start_time_ms),
        [TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions],
    )


async def fence_producer(cluster: Cluster, transactional_id: str, timeout_s: float) -> FencedProducer:
    """Take the id's next producer epoch, which aborts its transaction and fences its producer.

    No producer writes with the new epoch, so its transaction timeout has no effect (it is the call's own, as in Java).
    """
    asked = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=int(timeout_s * 1000)
    )
    request = ByVersion(InitProducerIdRequest, lambda version: asked, LAST_INIT_PRODUCER_ID)
    response = await _ask(cluster, transactional_id, request, timeout_s)
    _check(cluster, transactional_id, response.error_code)
    return FencedProducer(response.producer_id, response.producer_epoch)


async def _ask(cluster: Cluster, transactional_id: str, request: object, timeout_s: float) -> Any:
    return await ask_coordinator(cluster, transactional_id, request, timeout_s, TRANSACTION_KEY_TYPE)


def _check(cluster: Cluster, transactional_id: str, code: int) -> None:
    raise_if_moved(cluster, transactional_id, code, TRANSACTION_KEY_TYPE)
    if code:
        raise failure(code, transactional_id)


async def describe_producers(
    cluster: Cluster, partitions: Iterable[Partition], broker_id: int | None
) -> Results:
    """Return `[ProducerState]` or the error by partition, from the leader or from the given broker."""

    async def ask(node_id: int, some: list[Partition]) -> Results:
        if node_id not in cluster.topology.brokers:
            raise no_broker(node_id)
        topics = [
            TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(some).items()
        ]
        response = await cluster.call(node_id, DescribeProducersRequest(topics=topics))
        found: Results = {}
        for topic in response.topics:
            for row in topic.partitions:
                what = f"{topic.name}-{row.partition_index} on broker {node_id}"
                producers = [_producer(known) for known in row.active_producers]
                found[topic.name, row.partition_index] = outcome(
                    row.error_code, row.error_message, what, producers
                )
        return found

    if broker_id is not None:
        some = list(partitions)
        await cluster.refresh([])
        try:
            return await ask(broker_id, some)
        except KafkaException as error:
            if error.code != KafkaError._UNKNOWN_BROKER:
                raise
            return dict.fromkeys(some, error)
    led, errors = await by_leader(cluster, partitions)
    return errors | await from_each(led, ask)


def _producer(row: ProducerStateRow) -> ProducerState:
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        _known(row.coordinator_epoch),
        _known(row.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None


async def abort_transactions(cluster: Cluster, specs: Iterable[AbortTransactionSpec]) -> Results:
    """Make partition leaders write missing abort markers. Returns None or the error by partition."""
    wanted = {spec.topic_partition.key: spec for spec in specs}
    led, errors = await by_leader(cluster, wanted)

    async def ask(node_id: int, partitions: list[Partition]) -> Results:
        markers = [_abort_marker(wanted[partition]) for partition in partitions]
        response = await cluster.call(node_id, WriteTxnMarkersRequest(markers=markers))
        found: Results = {}
        for marker in response.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    what = f"{topic.name}-{row.partition_index}, producer {marker.producer_id}"
                    found[topic.name, row.partition_index] = outcome(row.error_code, None, what)
        return found

    return errors | await from_each(led, ask)


def _abort_marker(spec: AbortTransactionSpec) -> WritableTxnMarker:
    topic, number = spec.topic_partition.key
    return WritableTxnMarker(
        producer_id=spec.producer_id,
        producer_epoch=spec.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
        coordinator_epoch=spec.coordinator_epoch,
    )
