"""Writes transaction markers to the partitions that this broker leads, and sends markers to other leaders.

How:         `PartitionLeaders` sends markers from the transaction coordinator to partition leaders; `admission`
             sends requests in the other direction. Calls to this broker itself do not use the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from felice.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from felice.coordinator.shard import TransactionalProducer
from felice.env import Clock
from felice.log.answers import AppendOrigin
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
from felice.replication.partitions import Partitions
from felice.replication.peers import Peers, PeerUnavailable
from felice.server.flow.pace import paced

MARKER_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = MARKER_TIMEOUT_S + 5


class MarkerWriter:
    """Writes transaction markers to partitions that this broker leads."""

    def __init__(self, partitions: Partitions, groups: GroupCoordinator, clock: Clock) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Appends the markers, with pauses if there are many. Returns when each is committed or has failed."""
        wanted: list[tuple[str, WritableTxnMarkerPartitionResult, WritableTxnMarker]] = []
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
                    wanted.append((asked.name, row, marker))
        appended: list[tuple[WritableTxnMarkerPartitionResult, Partition, int]] = []
        async for name, row, marker in paced(wanted, self._clock):
            try:
                partition = self._partitions.find(name, row.partition_index)
                appended.append((row, partition, self._append(partition, marker)))
            except ApiError as error:
                row.error_code = error.code
        await self._wait_committed(appended)
        return response

    async def _wait_committed(
        self, appended: Sequence[tuple[WritableTxnMarkerPartitionResult, Partition, int]]
    ) -> None:
        """All markers share one deadline."""
        deadline = self._clock.monotonic() + MARKER_TIMEOUT_S
        async for row, partition, offset in paced(appended, self._clock):
            try:
                await partition.wait_committed(offset, max(0.0, deadline - self._clock.monotonic()))
            except ApiError as error:
                row.error_code = error.code

    def _append(self, partition: Partition, asked: WritableTxnMarker) -> int:
        kind = ControlType.COMMIT if asked.transaction_result else ControlType.ABORT
        marker = EndTransactionMarker(kind, asked.coordinator_epoch)
        producer = TransactionalProducer(asked.producer_id, asked.producer_epoch)
        if partition.topic == GROUP_TOPIC:
            # The group coordinator holds pending offsets of the transaction. The marker commits or drops them.
            return self._groups.end_transaction(
                partition.partition, marker, producer, asked.transaction_version
            )
        now_ms = self._clock.now_ms()
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


class PartitionLeaders:
    """Sends markers to the leaders of partitions, which may be this broker."""

    def __init__(self, broker_id: int, here: MarkerWriter, peers: Peers) -> None:
        self._broker_id = broker_id
        self._here = here
        self._peers = peers

    async def write_markers(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Sends markers to one leader. Raises `ApiError` if it cannot be reached."""
        if leader == self._broker_id:
            return await self._here.write(request)
        try:
            response: WriteTxnMarkersResponse = await self._peers.call(
                leader, API.WRITE_TXN_MARKERS, request, _ANSWER_TIMEOUT_S, lane="markers"
            )
        except PeerUnavailable as error:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error
        return response


def as_client_error(error: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """Replaces PRODUCER_FENCED by INVALID_PRODUCER_EPOCH for clients that do not know the newer error."""
    if error == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
