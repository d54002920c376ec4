"""Metadata (key 3): brokers, topics, partitions and their leaders.

Naming a topic that does not exist may create it. The answer does not wait for that: the client hears
UNKNOWN_TOPIC_OR_PARTITION, as from Kafka, and asks again until the topic is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

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
from felice.server.operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# From this version a topic may be asked for by its id, with name None.
_ASK_BY_ID_FROM = 12


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describes all topics or the requested ones, and starts the automatic creation of missing ones."""
    topics = request.topics
    if topics and context.version < _ASK_BY_ID_FROM and any(map(_is_without_name, topics)):
        return _refused(topics)
    if topics is None or (context.version == 0 and not topics):
        image = context.services.image
        operations = _operations(request)
        return _answer(
            request, context, [_described(topic, context, operations) for topic in image.topics.values()]
        )
    for name in _to_create(request, topics, context):
        context.services.auto_topics.ensure(name)
    return _answer(request, context, _asked(topics, context, _operations(request)))


def _operations(request: MetadataRequest) -> int:
    """What the row of a topic says about authorised operations."""
    return ALL_TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_NOT_REQUESTED


def _is_without_name(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_UUID


def _refused(topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """Versions that carry ids, but may not be asked with them."""
    rows = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
        )
        for topic in topics
    ]
    return MetadataResponse(topics=rows, controller_id=-1)


def _to_create(
    request: MetadataRequest, topics: Sequence[MetadataRequestTopic], context: RequestContext
) -> list[str]:
    services = context.services
    if not (request.allow_auto_topic_creation and services.config.auto_create_topics_enable):
        return []
    names = dict.fromkeys(topic.name for topic in topics if topic.name and topic.topic_id == ZERO_UUID)
    existing = services.image.topics
    missing = (name for name in names if name not in existing and _may_be_created(name))
    at_once = services.config.felice_auto_create_topics_max_at_once
    return list(islice(missing, max(0, at_once - services.auto_topics.under_way)))


def _may_be_created(name: str) -> bool:
    """Internal topics are their coordinator's to create; only that of the groups is built."""
    is_foreign = name in topic_names.INTERNAL_TOPICS and name != topic_names.CONSUMER_OFFSETS
    return not is_foreign and topic_names.fault_of(name) is None


def _asked(
    topics: Sequence[MetadataRequestTopic], context: RequestContext, operations: int
) -> list[MetadataResponseTopic]:
    seen: dict[tuple[object, object], MetadataResponseTopic] = {}
    for topic in topics:
        key = (topic.name, topic.topic_id)
        if key not in seen:
            seen[key] = _one(topic, context, operations)
    return list(seen.values())


def _one(topic: MetadataRequestTopic, context: RequestContext, operations: int) -> MetadataResponseTopic:
    image = context.services.image
    asks_by_id = topic.topic_id != ZERO_UUID
    if asks_by_id:
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id
            )
        return _described(found, context, operations)
    name = topic.name or ""
    known = image.topics.get(name)
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


def _described(topic: TopicImage, context: RequestContext, operations: int) -> MetadataResponseTopic:
    def build() -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in topic_names.INTERNAL_TOPICS,
            partitions=[_partition(partition, context) for partition in topic.partitions],
            topic_authorized_operations=operations,
        )

    services, key = context.services, (context.listener_name, operations)
    return services.topic_rows.row(services.image, topic, MetadataResponse, context.version, key, build)


def _partition(partition: PartitionImage, context: RequestContext) -> MetadataResponsePartition:
    image = context.services.image
    fault = leader_fault(partition, image, context.listener_name, context.version >= 6)
    return MetadataResponsePartition(
        error_code=fault,
        partition_index=partition.partition,
        # One that cannot be reached is not named: the row of its address is missing, too.
        leader_id=NO_LEADER if fault else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[replica for replica in partition.replicas if replica not in image.brokers],
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
    request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = context.services.image
    response = MetadataResponse(
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
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    return response


def reachable(image: ClusterImage, listener: str) -> list[BrokerImage]:
    """The live brokers that can be reached the way the client came."""
    return [broker for broker in image.brokers.values() if listener in broker.endpoints]
