"""Writes the markers of a decided transaction: to every partition leader, until each partition has its marker.

Keeps true:  T4 (with `shard`): a partition is left out only if its topic is deleted.
How:         one request for each leader; failed ones are repeated after a pause, to the leaders at that time.
Leaves:      reaching a leader to its `MarkerChannel`; the decision to stop to the caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from felice.coordinator.transaction.metadata import TransactionMetadata
from felice.coordinator.transaction.records import by_topic
from felice.coordinator.transaction.states import TransactionState
from felice.metadata.image import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from felice.protocol.topic_partition import TopicPartition

_log = logging.getLogger("felice.coordinator")

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0

_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class MarkerChannel(Protocol):
    """Sends markers to the brokers that lead partitions; raises `ApiError` if one cannot be reached."""

    async def write_markers(self, leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Sends the request to a broker, which may be this one. Raises `ApiError` if it does not answer."""
        ...


class MarkerSender:
    """Sends the markers of decided transactions. `send` may run for several transactions at once."""

    def __init__(self, image: Callable[[], ClusterImage], channel: MarkerChannel) -> None:
        self._image = image
        self._channel = channel

    async def send(
        self, decided: TransactionMetadata, coordinator_epoch: int, goes_on: Callable[[], bool]
    ) -> bool:
        """Returns True when every partition has its marker; False if this broker is no longer the coordinator."""
        remaining = set(decided.partitions)
        pause_s = FIRST_PAUSE_S
        while goes_on():
            remaining = await self._send_once(decided, coordinator_epoch, remaining)
            if not remaining:
                return True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return False

    async def _send_once(
        self, decided: TransactionMetadata, coordinator_epoch: int, wanted: set[TopicPartition]
    ) -> set[TopicPartition]:
        """Returns the partitions that still lack their marker."""
        existing = {one for one in wanted if self._image().partition(*one) is not None}
        leaders: dict[int, list[TopicPartition]] = {}
        for one in sorted(existing):
            known = self._image().partition(*one)
            if known is not None and known.leader >= 0:
                leaders.setdefault(known.leader, []).append(one)
        requests = [
            self._ask(leader, marker_request(decided, coordinator_epoch, partitions))
            for leader, partitions in leaders.items()
        ]
        marked: set[TopicPartition] = set()
        for answered in await asyncio.gather(*requests):
            marked |= answered
        return existing - marked

    async def _ask(self, leader: int, request: WriteTxnMarkersRequest) -> set[TopicPartition]:
        """Returns the partitions that have their marker now."""
        try:
            response = await self._channel.write_markers(leader, request)
        except ApiError as error:
            _log.warning(
                "transaction markers did not reach a broker; they are sent again",
                extra={"broker": leader, "reason": str(error)},
            )
            return set()
        marked = set()
        for topic in (topic for marker in response.markers for topic in marker.topics):
            for row in topic.partitions:
                if row.error_code in _FENCED:
                    raise ApiError(ErrorCode(row.error_code), f"{topic.name}-{row.partition_index}")
                if row.error_code == ErrorCode.NONE:
                    marked.add(TopicPartition(topic.name, row.partition_index))
        return marked


def marker_request(
    decided: TransactionMetadata, coordinator_epoch: int, partitions: Iterable[TopicPartition]
) -> WriteTxnMarkersRequest:
    """The request for one leader. The transaction's state says whether the marker commits or aborts."""
    topics = [
        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    marker = WritableTxnMarker(
        producer_id=decided.producer_id,
        producer_epoch=decided.epoch,
        transaction_result=decided.state is TransactionState.PREPARE_COMMIT,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
        transaction_version=decided.client_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])
