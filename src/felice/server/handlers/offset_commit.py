"""OffsetCommit (key 8): stores offsets. The response is sent when they are committed to the log.

A request with thousands of partitions is committed in parts, with pauses between them. Each part is checked on its own:
if the group rebalances meanwhile, the rows of the later parts have that error. The connection's next requests wait, so
that its later commits are not overwritten by earlier ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING

from felice.coordinator.group.coordinator import gather
from felice.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from felice.server.group_client import client_of
from felice.server.pace import MAX_ITEMS_WITHOUT_PAUSE, paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# Some milliseconds of work.
_PART_PARTITIONS = 200


def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """The group checks member and generation; the awaitable ends when the offsets are replicated."""
    if sum(len(topic.partitions) for topic in request.topics) <= MAX_ITEMS_WITHOUT_PAUSE:
        return context.services.coordinators.groups.commit(request, client_of(context))
    context.session.hold()
    return _commit_in_parts(request, context)


async def _commit_in_parts(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    groups, client = context.services.coordinators.groups, client_of(context)
    try:
        parts = paced(_parts(request), context.services.env.clock)
        answers = [groups.commit(part, client) async for part in parts]
    finally:
        context.session.release()
    whole = gather(answers, lambda found: _joined(request, found))
    return await whole if isinstance(whole, Awaitable) else whole


def _parts(request: OffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    """Requests of at most `_PART_PARTITIONS` partitions each, in the order of the whole request."""
    topics: list[OffsetCommitRequestTopic] = []
    room = _PART_PARTITIONS
    for topic in request.topics:
        left = iter(topic.partitions)
        while partitions := list(islice(left, room)):
            topics.append(
                OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
            )
            room -= len(partitions)
            if not room:
                yield _with_topics(request, topics)
                topics, room = [], _PART_PARTITIONS
    if topics:
        yield _with_topics(request, topics)


def _with_topics(request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    part = copy(request)
    part.topics = topics
    return part


def _joined(request: OffsetCommitRequest, parts: list[OffsetCommitResponse]) -> OffsetCommitResponse:
    """The response to the whole request: each of its topics, with the rows that are in the parts' responses."""
    rows = (row for part in parts for topic in part.topics for row in topic.partitions)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=list(islice(rows, len(topic.partitions)))
            )
            for topic in request.topics
        ]
    )
