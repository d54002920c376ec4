"""DeleteTopics (key 20): by name, and from version 6 by name or id.

A topic that occurs twice, even once by name and once by id, is not deleted. When the response is sent, Metadata does
not show a deleted topic any more; its files are deleted later. The committed offsets of the topic are deleted, too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from felice.metadata.image import TopicImage
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from felice.protocol.primitives import ZERO_UUID
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import by_version, cluster_permission_or, items_need, permission, topic_name
from felice.server.flow.pace import paced
from felice.server.requests.mutations import Mutations

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_DISABLED_CODE_FROM = 3
_STRICT_QUOTA_FROM = 5
_STATES_FROM = 6

# A topic as the request names it.
TopicRef: TypeAlias = str | UUID


def _to_delete(item: DeleteTopicState | str, context: RequestContext) -> str | None:
    """The topic of an item. None if the handler refuses the item even with all permissions."""
    if isinstance(item, str):
        return _existing_or_hidden(item, context)
    if item.name is None:
        return topic_name(item, context)
    return _existing_or_hidden(item.name, context) if item.topic_id == ZERO_UUID else None


def _existing_or_hidden(name: str, context: RequestContext) -> str | None:
    """None for a topic that does not exist, if the client may know that it does not exist."""
    is_known = name in context.services.image.topics
    return (
        name if is_known or not context.access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name) else None
    )


def _undeleted(
    item: DeleteTopicState | str, code: ErrorCode, context: RequestContext
) -> DeletableTopicResult:
    """If an item has only a topic id, the row has the topic's name only if the client has DESCRIBE."""
    row = DeletableTopicResult(error_code=code, error_message=code.message, name=None)
    if isinstance(item, DeleteTopicState):
        row.topic_id = item.topic_id
    name = _to_delete(item, context)
    by_name = isinstance(item, str) or item.name is not None
    if name is not None and (by_name or context.access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)):
        row.name = name
    return row


# DELETE of the cluster is an ACL for ALL.
_deletes = cluster_permission_or(
    Operation.DELETE, permission(Operation.DELETE, ResourceType.TOPIC, _to_delete)
)
guard = by_version(
    _STATES_FROM,
    items_need(API.DELETE_TOPICS, _deletes, row=_undeleted),
    items_need(API.DELETE_TOPICS, _deletes, row=_undeleted, version=_STATES_FROM - 1),
)


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Deletes one topic after the other. A row with neither name nor id, or with both, gets INVALID_REQUEST."""
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    refused = [_refused(topic) for topic in asked if _ref(topic) is None]
    times = Counter(ref for topic in asked if (ref := _ref(topic)) is not None)
    results = []
    mutations = Mutations(context, _STRICT_QUOTA_FROM)
    async for ref in paced(_merge_duplicates(times, context), context.services.env.clock):
        results.append(await _result(ref, times, context, mutations))
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_time_ms, responses=refused + results)


def _ref(topic: DeleteTopicState) -> TopicRef | None:
    """Returns the name or the id of the topic, or None if the request gives both or neither."""
    if (topic.name is None) == (topic.topic_id == ZERO_UUID):
        return None
    return topic.topic_id if topic.name is None else topic.name


def _refused(topic: DeleteTopicState) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message="A topic is named either by its name or by its id.",
    )


def _merge_duplicates(times: Counter[TopicRef], context: RequestContext) -> list[TopicRef]:
    """Returns the distinct topics. If a name and an id mean the same topic, only the name stays, counted twice."""
    names = context.services.image.topic_names
    doubled = {ref: names[ref] for ref in times if isinstance(ref, UUID) and names.get(ref) in times}
    for name in doubled.values():
        times[name] += 1
    return [ref for ref in times if ref not in doubled]


async def _result(
    ref: TopicRef, times: Counter[TopicRef], context: RequestContext, mutations: Mutations
) -> DeletableTopicResult:
    result = (
        DeletableTopicResult(name=None, topic_id=ref)
        if isinstance(ref, UUID)
        else DeletableTopicResult(name=ref)
    )
    try:
        _check_enabled(context)
        if times[ref] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The topic is named more than once.")
        topic = _find(ref, context)
        mutations.check()
        await context.services.changes.cluster.delete_topic(topic.name)
        mutations.spend(len(topic.partitions))
        result.name, result.topic_id = topic.name, topic.topic_id
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check_enabled(context: RequestContext) -> None:
    if not context.services.config.delete_topic_enable:
        is_known = context.version >= _DISABLED_CODE_FROM
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST)


def _find(ref: TopicRef, context: RequestContext) -> TopicImage:
    image = context.services.image
    found = image.topic_by_id(ref) if isinstance(ref, UUID) else image.topics.get(ref)
    if found is None:
        is_id = isinstance(ref, UUID)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found
