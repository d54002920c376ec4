"""DeleteRecords (key 21): moves the start of partitions forward; -1 means up to the high watermark.

Only the log start moves. Segments that lie wholly before it go with the next retention check.
"""

from __future__ import annotations

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


def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_row(topic.name, asked, context) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _row(topic: str, asked: DeleteRecordsPartition, context: RequestContext) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        low_watermark = context.broker.partitions.find(topic, index).delete_records_before(asked.offset)
    except ApiError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
