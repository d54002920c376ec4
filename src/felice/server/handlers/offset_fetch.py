"""OffsetFetch (key 9): committed offsets of one group, or from version 8 of several.

A partition without a committed offset has offset -1 and no error. If the whole group has an error, the response of
version 1 has no field for it: each partition has it. In versions 2 to 7 the response and each requested partition have
it. Kafka's response has no partitions then. aiokafka 0.14 (version 3) does not read the error of the response: without
partitions it finds no committed offsets, and resets its positions (`auto_offset_reset`) if it asks while a coordinator
moves. A request for all partitions names none, and from version 8 on only the group has the error, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.coordinator.group.offsets.commits import NO_OFFSET
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from felice.server.flow.pace import each_answer
from felice.server.requests.group_client import client_of
from felice.server.requests.requested_groups import distinct

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_MANY_GROUPS_SINCE = 8


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
