"""Produce (key 0): appends one batch to each of some partitions.

Every partition stands alone: one that fails does not stop the others. acks=1 answers when the
leader has the batch, acks=-1 when it is committed; acks=0 gets no answer, and where something
failed its connection is closed, which is the only way to tell.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.coordinator.transaction.shard import Identity
from felice.log.log import AppendInfo
from felice.metadata.image import ZERO_UUID
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from felice.records.batch import ATTRIBUTES_POSITION, BatchHeader
from felice.replication.partition import ACKS_ALL, NO_EPOCH, Partition
from felice.server.context import NO_REPLY, CloseConnection
from felice.server.transactions import as_produce_error, check_first_write

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# Kafka's own admin client may write to internal topics.
_ADMIN_CLIENT = "__admin_client"
_ZSTD_FROM, _LEADER_HINTS_FROM, _ABORTABLE_FROM = 7, 10, 11
_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
_TRANSACTIONAL = 0x10
_NO_DEADLINE_S = 3600.0

_Pending: TypeAlias = list[tuple[PartitionProduceResponse, Partition, AppendInfo]]


def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse] | Any:
    pending: _Pending = []
    response = ProduceResponse(
        responses=[_topic(topic, request, context, pending) for topic in request.topic_data]
    )
    if request.acks == 0:
        _close_on_error(response)
        return NO_REPLY
    if context.version >= _LEADER_HINTS_FROM:
        _name_leaders(response, context)
    if not pending:
        return response
    timeout_s = request.timeout_ms / 1000 if request.acks == ACKS_ALL else _NO_DEADLINE_S
    return _acknowledged(response, pending, request.acks, timeout_s, context)


def _topic(
    topic: TopicProduceData, request: ProduceRequest, context: RequestContext, pending: _Pending
) -> TopicProduceResponse:
    name = topic.name
    if topic.topic_id != ZERO_UUID:
        name = context.broker.image.topic_names.get(topic.topic_id, "")
    rows = []
    for data in topic.partition_data:
        try:
            if not name:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            rows.append(_partition(name, data, request, context, pending))
        except ApiError as error:
            rows.append(_failed(data.index, error))
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)


def _partition(
    topic: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    pending: _Pending,
) -> PartitionProduceResponse:
    is_transactional = _check(topic, data, request, context)
    partition = context.broker.partitions.find(topic, data.index)
    if is_transactional:
        _check_transaction(partition, data, request, context)
    info = partition.append(
        data.records,
        required_acks=request.acks,
        now_ms=context.now_ms,
        zstd_allowed=context.version >= _ZSTD_FROM,
    )
    row = PartitionProduceResponse(
        index=data.index,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
    if not partition.is_acknowledged(info, request.acks):
        pending.append((row, partition, info))
    return row


def _check(topic: str, data: PartitionProduceData, request: ProduceRequest, context: RequestContext) -> bool:
    """What depends on the request rather than on the partition; whether the batch is in a transaction."""
    if request.acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {topic}")
    if data.records is None or len(data.records) <= _LOW_ATTRIBUTES:
        raise ApiError(ErrorCode.INVALID_RECORD, "the request has no record batch for this partition")
    is_transactional = bool(data.records[_LOW_ATTRIBUTES] & _TRANSACTIONAL)
    if is_transactional and request.transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records need an id")
    return is_transactional


def _check_transaction(
    partition: Partition, data: PartitionProduceData, request: ProduceRequest, context: RequestContext
) -> None:
    """KIP-890, part 1. From version 12 a partition would be added here (part 2), but only under the feature
    transaction.version 2, which is not offered: clients keep to version 11 in transactions.
    """
    assert data.records is not None
    header = BatchHeader.parse(data.records)
    who = Identity(request.transactional_id or "", header.producer_id, header.producer_epoch)
    partition.check_leader(NO_EPOCH)
    error = check_first_write(
        context.broker, who, partition, knows_abortable=context.version >= _ABORTABLE_FROM
    )
    if error != ErrorCode.NONE:
        raise ApiError(as_produce_error(error), "the partition is not in the producer's transaction")


async def _acknowledged(
    response: ProduceResponse, pending: _Pending, acks: int, timeout_s: float, context: RequestContext
) -> ProduceResponse:
    clock = context.broker.env.clock
    deadline = clock.monotonic() + timeout_s
    for row, partition, info in pending:
        try:
            await partition.wait_acknowledged(info, acks, max(0.0, deadline - clock.monotonic()))
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
            row.base_offset = row.log_append_time_ms = row.log_start_offset = -1
    return response


def _failed(index: int, error: ApiError) -> PartitionProduceResponse:
    faults = getattr(error, "record_errors", ())
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=message)
            for place, message in faults
        ],
        error_message=error.message,
    )


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                raise CloseConnection(
                    f"produce with acks=0 to {topic.name}-{row.index} failed: {row.error_message}"
                )


def _name_leaders(response: ProduceResponse, context: RequestContext) -> None:
    """KIP-951: a client that came to the wrong broker learns the right one with its refusal."""
    image = context.broker.image
    named: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            name = topic.name or image.topic_names.get(topic.topic_id, "")
            known = image.partition(name, row.index)
            leader = image.brokers.get(known.leader) if known else None
            endpoint = leader.endpoints.get(context.listener_name) if leader else None
            if known and leader and endpoint:
                row.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
                named[leader.broker_id] = NodeEndpoint(
                    node_id=leader.broker_id, host=endpoint.host, port=endpoint.port, rack=leader.rack
                )
    response.node_endpoints = list(named.values())
