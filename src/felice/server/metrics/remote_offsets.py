"""High watermarks of partitions that have no replica on this broker, for the lag of the groups that it coordinates.

Keeps true: no page of metrics waits for another broker: it has the values of the last responses, and starts the next
            requests. So a partition's lag appears on the second page, and is as old as the previous page.
            At most `MAX_PARTITIONS` are asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator

from felice.metadata.watcher import Watcher
from felice.protocol.api import API
from felice.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from felice.protocol.topic_partition import PartitionKey
from felice.replication.peers import Peers, PeerUnavailable

_log = logging.getLogger("felice.server")

MAX_PARTITIONS = 10_000
_AT_ONCE = 500
_TIMEOUT_S = 10.0
# A connection of its own: answers about thousands of partitions must not delay other requests between brokers.
_LANE = "metrics"
_CONSUMER = -1


class RemoteOffsets:
    """The last responses of other brokers. Collectors call `get`; the page calls `refresh` when it is complete."""

    def __init__(self, watcher: Watcher, peers: Peers) -> None:
        self._watcher = watcher
        self._peers = peers
        self._known: dict[PartitionKey, int] = {}
        self._wanted: dict[PartitionKey, None] = {}
        self._asking: asyncio.Task[None] | None = None

    def get(self, topic: str, partition: int) -> int | None:
        """The last known high watermark. The next `refresh` asks for it."""
        key = topic, partition
        if len(self._wanted) < MAX_PARTITIONS:
            self._wanted[key] = None
        return self._known.get(key)

    def refresh(self) -> None:
        """Begins to ask for all partitions that were wanted since the last call."""
        if self._asking is None and self._wanted:
            wanted, self._wanted = list(self._wanted), {}
            self._asking = asyncio.create_task(self._ask(wanted))
        elif not self._wanted:
            self._known.clear()

    async def stop(self) -> None:
        """Asks no further."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self, wanted: list[PartitionKey]) -> None:
        found: dict[PartitionKey, int] = {}
        try:
            for leader, keys in self._by_leader(wanted).items():
                for start in range(0, len(keys), _AT_ONCE):
                    found.update(await self._ask_one(leader, keys[start : start + _AT_ONCE]))
        except Exception:
            _log.exception("offsets of other brokers are unknown")
        finally:
            self._known, self._asking = found, None

    def _by_leader(self, wanted: Iterable[PartitionKey]) -> dict[int, list[PartitionKey]]:
        leaders: dict[int, list[PartitionKey]] = defaultdict(list)
        for topic, number in wanted:
            image = self._watcher.image.partition(topic, number)
            if image is not None and image.leader >= 0:
                leaders[image.leader].append((topic, number))
        return leaders

    async def _ask_one(self, leader: int, keys: list[PartitionKey]) -> dict[PartitionKey, int]:
        topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for topic, number in keys:
            topics[topic].append(ListOffsetsPartition(partition_index=number, timestamp=LATEST_TIMESTAMP))
        asked = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        try:
            response = await self._peers.call(leader, API.LIST_OFFSETS, asked, _TIMEOUT_S, lane=_LANE)
        except PeerUnavailable:
            return {}
        return dict(_offsets(response))


def _offsets(response: ListOffsetsResponse) -> Iterator[tuple[PartitionKey, int]]:
    for topic in response.topics:
        for row in topic.partitions:
            if not row.error_code:
                yield (topic.name, row.partition_index), row.offset
