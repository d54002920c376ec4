"""OffsetFetch (key 9): committed offsets of one group, or from version 8 of several.

A partition without a committed offset has offset -1 and no error. If the whole group has an error, the response of
version 1 has no field for it: each partition has it. In versions 2 to 7 the response and each requested partition have
it. Kafka's response has no partitions then. aiokafka 0.14 (version 3) does not read the error of the response: without
partitions it finds no committed offsets, and resets its positions (`auto_offset_reset`) if it asks while a coordinator
moves. A request for all partitions names none, and from version 8 on only the group has the error, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, islice
from typing import TYPE_CHECKING, TypeAlias

from felice.coordinator.group.offsets.commits import NO_OFFSET
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import (
    Handle,
    all_of,
    by_version,
    codes_of,
    items_need,
    permission,
    request_needs,
    rows_need,
    topic_name,
)
from felice.server.access.refusals import row_of
from felice.server.flow.pace import each_answer
from felice.server.requests.group_client import client_of
from felice.server.requests.large_answers import each_alone
from felice.server.requests.requested_groups import distinct

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_MANY_GROUPS_SINCE = 8
_Handle: TypeAlias = "Handle[OffsetFetchRequest, OffsetFetchResponse]"

_OF_GROUP = permission(Operation.DESCRIBE, ResourceType.GROUP)
_OF_TOPIC = permission(Operation.DESCRIBE, ResourceType.TOPIC)
_REFUSED = {"committed_offset": NO_OFFSET}


def _describes_topics(handle: _Handle) -> _Handle:
    """Before version 8. If a request asks for all topics, the response leaves out those that the client may not see."""
    checked = items_need(API.OFFSET_FETCH, _OF_TOPIC, version=_MANY_GROUPS_SINCE - 1, fields=_REFUSED)(handle)
    shown = rows_need(
        API.OFFSET_FETCH, Operation.DESCRIBE, ResourceType.TOPIC, version=_MANY_GROUPS_SINCE - 1
    )(handle)
    return lambda request, context: (shown if request.topics is None else checked)(request, context)


def _describes_topics_of_groups(handle: _Handle) -> _Handle:
    """`_describes_topics` from version 8 on, for each group."""
    check = _OF_TOPIC(OffsetFetchRequestTopics)

    async def guarded(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        asked = [topic for group in request.groups for topic in group.topics or ()]
        codes = await codes_of(asked, check, context)
        request.groups = distinct(request.groups)
        denied = _take_denied(request.groups, iter(codes))
        answer = await handle(request, context)
        unfiltered = []
        for row, refused in zip(answer.groups, denied, strict=True):
            if refused is None:
                unfiltered.append(row)
            elif not row.error_code:
                row.topics = [*row.topics, *refused]
        await _take_hidden(unfiltered, context)
        return answer

    return guarded


def _take_denied(
    groups: Iterable[OffsetFetchRequestGroup], codes: Iterator[ErrorCode]
) -> list[list[OffsetFetchResponseTopics] | None]:
    """Removes the topics without permission from the groups of a request.

    Returns the rows of these topics for each group, or None for a group of which all topics are requested.
    """
    denied: list[list[OffsetFetchResponseTopics] | None] = []
    refuse = row_of(OffsetFetchRequestTopics, OffsetFetchResponseTopics, _MANY_GROUPS_SINCE, _REFUSED)
    for group in groups:
        if group.topics is None:
            denied.append(None)
            continue
        found = list(zip(group.topics, islice(codes, len(group.topics)), strict=True))
        group.topics = [topic for topic, code in found if code == ErrorCode.NONE]
        denied.append([refuse(topic, code) for topic, code in found if code != ErrorCode.NONE])
    return denied


async def _take_hidden(rows: list[OffsetFetchResponseGroup], context: RequestContext) -> None:
    """Removes the topics that the client may not see."""
    access = context.access

    def is_shown(topic: OffsetFetchResponseTopics) -> bool:
        name = topic_name(topic, context)
        return name is not None and access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)

    are_shown = iter(await each_alone([topic for row in rows for topic in row.topics], is_shown, context))
    for row in rows:
        row.topics = list(compress(row.topics, islice(are_shown, len(row.topics))))


# Each group and each of its topics need DESCRIBE.
guard = by_version(
    _MANY_GROUPS_SINCE,
    all_of(items_need(API.OFFSET_FETCH, _OF_GROUP), _describes_topics_of_groups),
    all_of(request_needs(API.OFFSET_FETCH, _OF_GROUP, fields=_REFUSED), _describes_topics),
)


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Reads the offsets of each distinct group; before version 8 the response has the fields of its single group."""
    groups, client = context.services.coordinators.groups, client_of(context)
    asked = request.groups if context.version >= _MANY_GROUPS_SINCE else [_as_group(request)]

    found = await each_answer(
        distinct(asked),
        lambda group: groups.fetch(group, request.require_stable, client),
        context.services.env.clock,
    )
    if context.version >= _MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=found)
    return _as_single(request, found[0])


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_single(request: OffsetFetchRequest, found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    if found.error_code != ErrorCode.NONE:
        topics = _error_in_each_partition(request, found.error_code)
        return OffsetFetchResponse(topics=topics, error_code=found.error_code)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=row.partition_index,
                    committed_offset=row.committed_offset,
                    committed_leader_epoch=row.committed_leader_epoch,
                    metadata=row.metadata,
                    error_code=row.error_code,
                )
                for row in topic.partitions
            ],
        )
        for topic in found.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=found.error_code)


def _error_in_each_partition(request: OffsetFetchRequest, error_code: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
