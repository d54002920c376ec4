"""DeleteTopics (key 20): by name, and from version 6 by name or id.

A deleted topic is gone from Metadata when the answer leaves; its files go later. Offsets that
groups committed for it go too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.metadata.image import ZERO_UUID
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_DISABLED_CODE_FROM = 3


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    done: set[str] = set()
    results = []
    for topic in asked:
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        try:
            await _delete(topic, result, done, context)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DeleteTopicsResponse(responses=results)


async def _delete(
    topic: DeleteTopicState, result: DeletableTopicResult, done: set[str], context: RequestContext
) -> None:
    broker = context.broker
    if not broker.config.delete_topic_enable:
        is_known = context.version >= _DISABLED_CODE_FROM
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST)
    if (topic.name is None) == (topic.topic_id == ZERO_UUID):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is named either by its name or by its id")
    if topic.name is None:
        found = broker.image.topic_by_id(topic.topic_id)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        found = broker.image.topics.get(topic.name)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if found.name in done:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
    done.add(found.name)
    await broker.controller.delete_topic(found.name)
    result.name, result.topic_id = found.name, found.topic_id
