"""DescribeTopicPartitions (key 75): topics page by page, in the order of their names (KIP-966).

A page holds at most `response_partition_limit` partitions, and never more than
`max.request.partition.size.limit`; the cursor names the first partition of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller import topic_names
from felice.metadata import PartitionImage, TopicImage
from felice.metadata.layout import NO_LEADER
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from felice.security.acl import Operation, ResourceType
from felice.server.flow.pace import for_each
from felice.server.handlers.metadata import leader_fault
from felice.server.requests.large_answers import each_alone
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access

guard = in_handler  # DESCRIBE of each topic


async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page of topics from the cursor on. INVALID_REQUEST for every topic if the cursor is not in the request."""
    cursor = request.cursor
    if cursor is not None and not _is_valid(cursor, request):
        return _refused(request)
    names = [name for name in _names(request, context) if cursor is None or name >= cursor.topic_name]
    page = _Page(request, context)
    if request.topics:
        await for_each(names, page.add_if_allowed, context.services.env.clock)
    else:
        await each_alone(names, page.add_if_shown, context)
    return page.response()


class _Page:
    """The topics of one response, until the limit of partitions is reached."""

    def __init__(self, request: DescribeTopicPartitionsRequest, context: RequestContext) -> None:
        self.is_full = False
        self._context = context
        # One for the whole request, because it limits the refusals that are logged.
        self._access = context.access
        self._cursor = request.cursor
        limit = context.services.config.max_request_partition_size_limit
        self._left = max(1, min(request.response_partition_limit, limit))
        self._response = DescribeTopicPartitionsResponse()
        self._denied: list[DescribeTopicPartitionsResponseTopic] = []

    def add_if_allowed(self, name: str) -> None:
        """Adds a topic that the request names."""
        if not self._access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            # As in Kafka every page has these topics, even those whose names come after its last topic.
            self._denied.append(_denied(name))
        elif not self.is_full:
            self.add(name)

    def add_if_shown(self, name: str) -> None:
        """Adds a topic of a request for all topics."""
        if self.is_full or name not in self._context.services.image.topics:  # deleted since the request came
            return
        if self._access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            self.add(name)

    def add(self, name: str) -> None:
        """Adds a topic, or the part of it that has room."""
        access, cursor, left = self._access, self._cursor, self._left
        topic = self._context.services.image.topics.get(name)
        if topic is None and left > 0:
            self._response.topics.append(_unknown(name, access))
            return
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if topic is None or left == 0:
            self._end(name, first)
            return
        end = min(first + left, len(topic.partitions))
        self._response.topics.append(_described(topic, first, end, access, self._context))
        self._left -= max(0, end - first)
        if end < len(topic.partitions):
            self._end(name, end)

    def _end(self, name: str, partition: int) -> None:
        self._response.next_cursor = Cursor(topic_name=name, partition_index=partition)
        self.is_full = True

    def response(self) -> DescribeTopicPartitionsResponse:
        """The topics, and those that the client may not describe."""
        self._response.topics += self._denied
        return self._response


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        is_internal=name in topic_names.INTERNAL_TOPICS,
    )


def _is_valid(cursor: Cursor, request: DescribeTopicPartitionsRequest) -> bool:
    """Whether the cursor names a topic of the request; in a request for all topics every cursor is valid."""
    is_asked = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return is_asked and cursor.partition_index >= 0


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        ]
    )


def _names(request: DescribeTopicPartitionsRequest, context: RequestContext) -> list[str]:
    if request.topics:
        return sorted({topic.name for topic in request.topics})
    return sorted(context.services.image.topics)


def _unknown(name: str, access: Access) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_names.fault_of(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_authorized_operations=access.operations(ResourceType.TOPIC, name),
    )


def _described(
    topic: TopicImage, first: int, end: int, access: Access, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    """A page of the topic: the partitions from `first` up to `end`."""
    operations = access.operations(ResourceType.TOPIC, topic.name)

    def build() -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in topic_names.INTERNAL_TOPICS,
            topic_authorized_operations=operations,
            partitions=[
                _partition(topic.name, partition, context) for partition in topic.partitions[first:end]
            ],
        )

    services, key = context.services, (context.listener_name, first, end, operations)
    response = DescribeTopicPartitionsResponse
    return services.topics.rows.row(services.image, topic, response, context.version, key, build)


def _partition(
    topic: str, partition: PartitionImage, context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    image = context.services.image
    fault = leader_fault(partition, image, context.listener_name)
    return DescribeTopicPartitionsResponsePartition(
        error_code=fault,
        partition_index=partition.partition,
        leader_id=NO_LEADER if fault else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=image.offline_replicas(topic, partition),
    )
