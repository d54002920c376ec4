"""DescribeProducers (key 61): the active producers of a partition, from any of its replicas, as in Kafka (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller import topic_names
from felice.log.producers import ProducerState as Known
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from felice.replication.partition import NO_EPOCH
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import items_need, permission
from felice.server.flow.pace import paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def _valid_name(topic: TopicRequest, context: RequestContext) -> str | None:
    """None for an invalid name, which the handler refuses even with all permissions."""
    return None if topic_names.fault_of(topic.name) is not None else topic.name


guard = items_need(API.DESCRIBE_PRODUCERS, permission(Operation.READ, ResourceType.TOPIC, _valid_name))


async def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """Returns each requested partition once, because it may have thousands of producers."""
    asked = dict.fromkeys(
        (topic.name, index) for topic in request.topics for index in topic.partition_indexes
    )
    topics = {topic.name: TopicResponse(name=topic.name) for topic in request.topics}
    async for name, index in paced(asked, context.services.env.clock):
        topics[name].partitions.append(_partition(name, index, context))
    return DescribeProducersResponse(topics=list(topics.values()))


def _partition(topic: str, index: int, context: RequestContext) -> PartitionResponse:
    fault = topic_names.fault_of(topic)
    if fault is not None:
        return PartitionResponse(
            partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=fault
        )
    try:
        partition = context.services.partitions.find(topic, index)
        partition.check_epoch(NO_EPOCH)
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message or None
        )
    producers = [_producer(known) for known in partition.log.producers]
    return PartitionResponse(partition_index=index, active_producers=producers)


def _producer(known: Known) -> ProducerState:
    return ProducerState(
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.last_timestamp,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.current_txn_first_offset,
    )
