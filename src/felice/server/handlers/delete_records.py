"""DeleteRecords (key 21): moves the start of partitions forward; -1 means up to the high watermark.

Only the log start moves. Segments that lie wholly before it go with the next retention check. The answer waits until
every replica that is alive has moved its own, for at most `timeout_ms`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics, waiting = [], []
    timeout_s = max(request.timeout_ms, 0) / 1000
    for topic in request.topics:
        rows = [_row(topic.name, asked, timeout_s, context) for asked in topic.partitions]
        waiting.append(rows)
    for topic, rows in zip(request.topics, waiting, strict=True):
        results = await asyncio.gather(*rows)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=list(results)))
    return DeleteRecordsResponse(topics=topics)


async def _row(
    topic: str, asked: DeleteRecordsPartition, timeout_s: float, context: RequestContext
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = context.services.partitions.find(topic, index)
        start_offset = partition.delete_records_before(asked.offset)
        low_watermark = await partition.wait_deleted(start_offset, timeout_s)
    except ApiError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
