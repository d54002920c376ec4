"""Metadata (key 3): brokers, topics, partitions and their leaders.

A client sees the topics that it may describe. A request that names a missing topic may create it. The response waits
for the creation, but not for long (`auto_topics.CREATION_WAIT_S`): then the client gets UNKNOWN_TOPIC_OR_PARTITION, and
asks again until the topic exists. Kafka's response never waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress, islice
from typing import TYPE_CHECKING
from uuid import UUID

from felice.controller import topic_names
from felice.metadata import BrokerImage, ClusterImage, PartitionImage, TopicImage
from felice.metadata.layout import NO_LEADER
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import (
    OPERATIONS_NOT_REQUESTED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from felice.protocol.primitives import ZERO_UUID
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.flow.pace import each
from felice.server.requests.large_answers import each_alone
from felice.server.requests.mutations import Mutations
from felice.server.security.access_control import cluster_operations, in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access

# From this version on a request may name a topic by its id, with the name None.
_ASK_BY_ID_FROM = 12

guard = in_handler  # DESCRIBE of each topic; CREATE for those that it creates


async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describes all topics or the requested ones, and starts the automatic creation of missing ones."""
    topics = request.topics
    if topics and context.version < _ASK_BY_ID_FROM and any(map(_is_without_name, topics)):
        return _refused(topics)
    if topics is None or (context.version == 0 and not topics):
        return await _all(request, context)
    client = _Client(request, context)
    distinct: dict[tuple[object, object], MetadataRequestTopic] = {}
    for topic in topics:
        distinct.setdefault((topic.name, topic.topic_id), topic)
    clock, auto_topics = context.services.env.clock, context.services.topics.auto

    missing = _missing(request, topics, context)
    creatable = list(compress(missing, await each(missing, client.may_begin_to_create, clock)))
    throttle_time_ms = _create(creatable, context)
    if auto_topics.is_creating(creatable):
        await auto_topics.wait_created(creatable)
    rows = await each(distinct.values(), lambda topic: _one(topic, client, context), clock)
    return _answer(request, context, rows, throttle_time_ms)


class _Client:
    """What the client of one request may see of topics, and which topics it may not create."""

    def __init__(self, request: MetadataRequest, context: RequestContext) -> None:
        self.access: Access = context.access
        self.uncreatable: set[str] = set()
        self._wants_operations = request.include_topic_authorized_operations
        self._may_describe: dict[str, bool] = {}

    def may_describe(self, topic: str) -> bool:
        known = self._may_describe.get(topic)
        if known is None:
            known = self.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            self._may_describe[topic] = known
        return known

    def may_create(self, topic: str) -> bool:
        access = self.access
        return access.shows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or access.allows(
            Operation.CREATE, ResourceType.TOPIC, topic
        )

    def may_begin_to_create(self, topic: str) -> bool:
        """Whether a missing topic may be created; remembers it in `uncreatable` if only the permission is missing."""
        if not self.may_describe(topic):
            return False
        if not self.may_create(topic):
            self.uncreatable.add(topic)
            return False
        return _may_be_created(topic)

    def operations(self, topic: str) -> int:
        """The bit field of authorised operations in the row of a topic."""
        if not self._wants_operations:
            return OPERATIONS_NOT_REQUESTED
        return self.access.operations(ResourceType.TOPIC, topic)


async def _all(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describes every topic that the client may describe."""
    client, services = _Client(request, context), context.services
    is_checked, shows = services.security.access.is_enabled, client.access.shows

    def row(name: str) -> MetadataResponseTopic | None:
        if is_checked and not shows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return None
        topic = services.image.topics.get(name)  # it may have been deleted since the request came
        return None if topic is None else _described(topic, context, client.operations(name))

    rows = await each_alone(services.image.topics, row, context)
    return _answer(request, context, [row for row in rows if row is not None])


def _is_without_name(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_UUID


def _refused(topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """The response to a request with topic ids in a version that has the field but does not allow its use."""
    rows = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
        )
        for topic in topics
    ]
    return MetadataResponse(topics=rows, controller_id=-1)


def _missing(
    request: MetadataRequest, topics: Sequence[MetadataRequestTopic], context: RequestContext
) -> list[str]:
    """The missing topics that the request names; none if it may not create topics."""
    services = context.services
    if not (request.allow_auto_topic_creation and services.config.auto_create_topics_enable):
        return []
    names = dict.fromkeys(topic.name for topic in topics if topic.name and topic.topic_id == ZERO_UUID)
    existing = services.image.topics
    return [name for name in names if name not in existing]


def _create(creatable: Iterable[str], context: RequestContext) -> int:
    """Starts to create topics, as many as may be created at once, and counts their partitions.

    Returns for how long the client should wait (ms).
    """
    services = context.services
    at_once = services.config.felice_auto_create_topics_max_at_once
    names = list(islice(creatable, max(0, at_once - services.topics.auto.under_way)))
    if not names:
        return 0
    mutations = Mutations(context, strict_from=None)
    for name in names:
        mutations.spend(services.topics.auto.ensure(name))
    return mutations.throttle_time_ms


def _may_be_created(name: str) -> bool:
    """Whether a request may create the topic: a valid name, and no internal topic except `__consumer_offsets`."""
    is_foreign = name in topic_names.INTERNAL_TOPICS and name != topic_names.CONSUMER_OFFSETS
    return not is_foreign and topic_names.fault_of(name) is None


def _one(topic: MetadataRequestTopic, client: _Client, context: RequestContext) -> MetadataResponseTopic:
    if topic.topic_id != ZERO_UUID:
        return _by_id(topic.topic_id, client, context)
    name = topic.name or ""
    known = context.services.image.topics.get(name)
    # Another client may have created the topic since this client was found to lack the permission to create it.
    if not client.may_describe(name) or (known is None and name in client.uncreatable):
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=name,
            is_internal=name in topic_names.INTERNAL_TOPICS,
        )
    operations = client.operations(name)
    if known is not None:
        return _described(known, context, operations)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_names.fault_of(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in topic_names.INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _by_id(topic_id: UUID, client: _Client, context: RequestContext) -> MetadataResponseTopic:
    found = context.services.image.topic_by_id(topic_id)
    if found is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not client.may_describe(found.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
    return _described(found, context, client.operations(found.name))


def _described(topic: TopicImage, context: RequestContext, operations: int) -> MetadataResponseTopic:
    def build() -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in topic_names.INTERNAL_TOPICS,
            partitions=[_partition(topic.name, partition, context) for partition in topic.partitions],
            topic_authorized_operations=operations,
        )

    services, key = context.services, (context.listener_name, operations)
    return services.topics.rows.row(services.image, topic, MetadataResponse, context.version, key, build)


def _partition(topic: str, partition: PartitionImage, context: RequestContext) -> MetadataResponsePartition:
    image = context.services.image
    fault = leader_fault(partition, image, context.listener_name, context.version >= 6)
    return MetadataResponsePartition(
        error_code=fault,
        partition_index=partition.partition,
        # A broker that cannot be reached is not named: the response has no address of it, either.
        leader_id=NO_LEADER if fault else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=image.offline_replicas(topic, partition),
    )


def leader_fault(
    partition: PartitionImage, image: ClusterImage, listener: str, tells_listener: bool = True
) -> ErrorCode:
    """Why a client that came through `listener` cannot reach the leader."""
    leader = image.brokers.get(partition.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if listener not in leader.endpoints:
        return ErrorCode.LISTENER_NOT_FOUND if tells_listener else ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


def _answer(
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
    throttle_time_ms: int = 0,
) -> MetadataResponse:
    image = context.services.image
    response = MetadataResponse(
        throttle_time_ms=throttle_time_ms,
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker_id,
                host=broker.endpoints[context.listener_name].host,
                port=broker.endpoints[context.listener_name].port,
                rack=broker.rack,
            )
            for broker in reachable(image, context.listener_name)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def reachable(image: ClusterImage, listener: str) -> list[BrokerImage]:
    """The live brokers with an endpoint on the client's listener."""
    return [broker for broker in image.brokers.values() if listener in broker.endpoints]
