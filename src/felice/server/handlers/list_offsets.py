"""ListOffsets (key 2): the offset at a timestamp, or at one end of a partition.

Only records that the consumer may read count: `latest` is the last stable offset for read_committed, otherwise the high
watermark. A search whose result lies beyond it returns -1 without an error. For a follower (`replica_id`) `latest` is
the log end offset.

A new leader whose high watermark has not reached the start of its epoch does not know which offsets its predecessor
exposed. It returns OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE below version 5) instead of an older offset.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from felice.log.answers import TimestampOffset
from felice.log.errors import CorruptLog
from felice.log.timestamps import BatchSearch, Find
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from felice.replication.partition import Partition
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import each_partition, paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_READ_COMMITTED = 1
_EPOCHS_SINCE, _NOT_AVAILABLE_SINCE = 4, 5
_Known: TypeAlias = dict[tuple[int, int, int, int], TimestampOffset | ApiError | CorruptLog | None]
_NOTHING = TimestampOffset(-1, -1, -1)
_NOT_TIERED = TimestampOffset(-1, -1, -1)

# The first version in which each special timestamp is allowed.
_SINCE = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}

guard = items_need(API.LIST_OFFSETS, permission(Operation.DESCRIBE, ResourceType.TOPIC))


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Looks the offsets up at once, or waits for threads that search the log for a timestamp."""
    if any(_searches(asked.timestamp) for topic in request.topics for asked in topic.partitions):
        return await _answer_with_searches(request, context)
    return await _answer(request, context, BatchSearch.find)


async def _answer_with_searches(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Searches batches on threads. The log may change in the meantime, so the lookup starts again after each search."""
    times = _times_asked(request)
    topics = [ListOffsetsTopicResponse(name=topic.name) for topic in request.topics]
    pairs = (
        (answered, asked)
        for answered, topic in zip(topics, request.topics, strict=True)
        for asked in topic.partitions
    )
    async for answered, asked in paced(pairs, context.services.env.clock):
        times_asked = times[answered.name, asked.partition_index]
        answered.partitions.append(await _searched_row(answered.name, asked, times_asked, request, context))
    return ListOffsetsResponse(topics=topics)


async def _searched_row(
    topic: str, asked: ListOffsetsPartition, times: int, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsPartitionResponse:
    known: _Known = {}
    while True:
        try:
            return _row(topic, asked, times, request, context, _among(known))
        except _UnknownSearch as missing:
            search = missing.search
        try:
            known[search.key] = await context.services.batch_validation.on_thread(search.find)
        except (ApiError, CorruptLog) as error:
            known[search.key] = error


class _UnknownSearch(Exception):
    """A batch must be searched on a thread before the lookup can continue."""

    def __init__(self, search: BatchSearch) -> None:
        self.search = search


def _among(known: _Known) -> Find:
    """Returns a function that finds the known results, and raises `_UnknownSearch` for others."""

    def find(search: BatchSearch) -> TimestampOffset | None:
        if search.key not in known:
            raise _UnknownSearch(search)
        found = known[search.key]
        if isinstance(found, Exception):
            raise found
        return found

    return find


def _searches(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _times_asked(request: ListOffsetsRequest) -> Counter[tuple[str, int]]:
    return Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )


async def _answer(request: ListOffsetsRequest, context: RequestContext, find: Find) -> ListOffsetsResponse:
    times = _times_asked(request)

    def row(topic: ListOffsetsTopic, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        return _row(topic.name, asked, times[topic.name, asked.partition_index], request, context, find)

    topics = await each_partition(request.topics, row, context.services.env.clock)
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=topic.name, partitions=rows) for topic, rows in topics]
    )


def _row(
    topic: str,
    asked: ListOffsetsPartition,
    times: int,
    request: ListOffsetsRequest,
    context: RequestContext,
    find: Find,
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        if times > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if asked.timestamp < 0 and context.version < _SINCE.get(asked.timestamp, 2**15):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        partition = context.services.partitions.find(topic, index)
        partition.check_leader(asked.current_leader_epoch)
        found = _search(partition, asked.timestamp, _bound(partition, request), find)
        if request.replica_id < 0 and (asked.timestamp == LATEST_TIMESTAMP or found is _NOTHING):
            partition.check_latest_is_known()
    except ApiError as error:
        code = error.code
        if code == ErrorCode.OFFSET_NOT_AVAILABLE and context.version < _NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    epoch = found.leader_epoch if context.version >= _EPOCHS_SINCE else -1
    return ListOffsetsPartitionResponse(
        partition_index=index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch
    )


def _bound(partition: Partition, request: ListOffsetsRequest) -> int:
    if request.replica_id >= 0:
        return partition.log_end_offset
    if request.isolation_level == _READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _search(partition: Partition, timestamp: int, bound: int, find: Find) -> TimestampOffset:
    log = partition.log
    if timestamp == LATEST_TIMESTAMP:
        return TimestampOffset(-1, bound, partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start = log.log_start_offset
        return TimestampOffset(-1, start, log.epochs.epoch_at(start))
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOT_TIERED
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp(bound, find) or _NOTHING
    return log.offset_for_timestamp(timestamp, end_offset=bound, find=find) or _NOTHING
