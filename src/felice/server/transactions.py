"""What this broker does for transactions as the leader of partitions: it writes their markers.

How:         `LeadersOfPartitions` is the way from the coordinator to the partitions, `admission` has the way back.
             Where the other end is another broker a connection is between, and nothing else differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.coordinator.group.coordinator import GROUP_TOPIC
from felice.coordinator.shard import TransactionalProducer
from felice.log.log import AppendOrigin
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from felice.records.builder import build_control
from felice.records.control import ControlType, EndTransactionMarker
from felice.replication.partition import ACKS_ALL, Partition
from felice.replication.peers import PeerUnavailable

if TYPE_CHECKING:
    from felice.server.broker import Broker

MARKER_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = MARKER_TIMEOUT_S + 5


class LeadersOfPartitions:
    """Takes markers to the brokers that lead partitions, this one or another."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def write_markers(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if leader == self._broker.broker_id:
            return await write_markers(self._broker, request)
        try:
            response: WriteTxnMarkersResponse = await self._broker.peers.call(
                leader, API.WRITE_TXN_MARKERS, request, _ANSWER_TIMEOUT_S, lane="markers"
            )
        except PeerUnavailable as error:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error
        return response


async def write_markers(broker: Broker, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Answers when every marker is committed, or cannot be."""
    waiting = []
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for asked in marker.topics:
            topic = WritableTxnMarkerTopicResult(name=asked.name)
            result.topics.append(topic)
            for index in asked.partition_indexes:
                row = WritableTxnMarkerPartitionResult(partition_index=index)
                topic.partitions.append(row)
                waiting.append(_write_marker(broker, asked.name, row, marker))
    await asyncio.gather(*waiting)
    return response


async def _write_marker(
    broker: Broker, topic: str, row: WritableTxnMarkerPartitionResult, marker: WritableTxnMarker
) -> None:
    try:
        partition = broker.partitions.find(topic, row.partition_index)
        offset = _append_marker(broker, partition, marker)
        await partition.wait_committed(offset, MARKER_TIMEOUT_S)
    except ApiError as error:
        row.error_code = error.code


def _append_marker(broker: Broker, partition: Partition, asked: WritableTxnMarker) -> int:
    kind = ControlType.COMMIT if asked.transaction_result else ControlType.ABORT
    marker = EndTransactionMarker(kind, asked.coordinator_epoch)
    producer = TransactionalProducer(asked.producer_id, asked.producer_epoch)
    if partition.topic == GROUP_TOPIC:
        # Offsets wait in the group's coordinator; they count from the marker on.
        return broker.group_coordinator.end_transaction(
            partition.partition, marker, producer, asked.transaction_version
        )
    now_ms = broker.env.clock.now_ms()
    batch = build_control(
        marker,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        timestamp_ms=now_ms,
    )
    info = partition.append(
        batch,
        required_acks=ACKS_ALL,
        now_ms=now_ms,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=asked.transaction_version,
    )
    return info.last_offset


def as_client_error(error: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """A client too old for PRODUCER_FENCED hears what was said before there was such an error."""
    if error == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


async def settled(answer: ErrorCode | Awaitable[ErrorCode]) -> ErrorCode:
    return answer if isinstance(answer, ErrorCode) else await answer
