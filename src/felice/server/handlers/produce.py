"""Produce (key 0): appends one batch to each of some partitions.

Every partition stands alone: one that fails does not stop the others. acks=1 answers when the
leader has the batch, acks=-1 when it is committed; acks=0 gets no answer, and where something
failed its connection is closed, which is the only way to tell.
Small batches are validated on the event loop. Large ones are validated on threads, and each is appended before the
next is validated; those of a transaction are appended together. Meanwhile the connection's next requests wait: batches
of one producer must be appended in their order.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.coordinator.transaction.metadata import V1, V2
from felice.coordinator.transaction.shard import Identity
from felice.log.answers import AppendInfo
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
from felice.protocol.primitives import Buffer
from felice.protocol.topic_partition import TopicPartition
from felice.records.batch import ATTRIBUTES_POSITION, BatchHeader, has_transactional_flag
from felice.records.errors import BatchTooLarge
from felice.records.validate import (
    INLINE_MAX_BYTES,
    ProduceRules,
    Validated,
    Verdict,
    is_compressed,
    only_batch,
)
from felice.replication.partition import ACKS_ALL, Partition
from felice.server.admission import Flow, PartitionErrors, QueuedWrite
from felice.server.context import NO_REPLY, CloseConnection, NoReply
from felice.server.pace import MAX_ITEMS_WITHOUT_PAUSE, paced

if TYPE_CHECKING:
    from felice.server.context import RequestContext

# Kafka's own admin client may write to internal topics.
_ADMIN_CLIENT = "__admin_client"
_ZSTD_FROM, _LEADER_HINTS_FROM, _ABORTABLE_FROM, _ADDS_FROM, _TOPIC_IDS_FROM = 7, 10, 11, 12, 13
_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
_NO_DEADLINE_S = 3600.0
# For so long the compressed batches of one request are validated on the event loop; the others go to threads.
_VALIDATION_ON_LOOP_S = 0.010

# What makes an old client try again; it might not understand what really happened.
_COORDINATOR_TROUBLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

# PartitionErrors that Kafka answers without the log's start.
_WITHOUT_LOG_START = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

ProduceAnswer: TypeAlias = ProduceResponse | NoReply
_Pending: TypeAlias = list[tuple[PartitionProduceResponse, Partition, AppendInfo]]


@dataclass(slots=True)
class _Known:
    """What was found out about batches before they are appended, by the `id` of their part of the request."""

    # Of compressed and large batches.
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    # Of transactional batches without a verdict.
    headers: dict[int, BatchHeader] = field(default_factory=dict)
    # Of batches that are stored in another form than the producer's, and so take memory beside the request.
    rebuilt_bytes: int = 0
    # Number of partitions in the request.
    partitions: int = 0

    def add(self, key: int, verdict: Verdict, max_rebuilt_bytes: int) -> None:
        if isinstance(verdict, Validated) and isinstance(verdict.records, bytearray):
            self.rebuilt_bytes += len(verdict.records)
            if self.rebuilt_bytes > max_rebuilt_bytes:
                reason = f"the request's batches, rebuilt for their topics, exceed {max_rebuilt_bytes} bytes"
                verdict = BatchTooLarge(reason)
        self.verdicts[key] = verdict


@dataclass(frozen=True, slots=True)
class _LargeBatch:
    key: int
    records: Buffer
    rules: ProduceRules


def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | NoReply | Awaitable[ProduceAnswer]:
    """Appends at once, or in an awaitable after threads validated the large batches. NO_REPLY for acks=0."""
    known = _Known()
    large = _validate_small(request, context, known)
    has_many = known.partitions > MAX_ITEMS_WITHOUT_PAUSE
    if not large and (not has_many or request.transactional_id is not None):
        return _write(request, context, known)
    context.session.hold()
    if request.transactional_id is not None:
        return _write_later(request, context, known, large)
    return _append_in_steps(request, context, known, {batch.key: batch for batch in large})


def _validate_small(request: ProduceRequest, context: RequestContext, known: _Known) -> list[_LargeBatch]:
    """Validates compressed batches; returns the batches that would hold the event loop too long.

    Those are the large batches and compressed ones behind them, in a request with many small compressed ones all that
    follow after some milliseconds, and in a request with many uncompressed ones all that follow after some megabytes.
    The log validates the other uncompressed batches when it appends them.
    """
    large: list[_LargeBatch] = []
    deadline: float | None = None
    left_bytes = INLINE_MAX_BYTES
    for topic in request.topic_data:
        known.partitions += len(topic.partition_data)
        for data in topic.partition_data:
            if data.records is None:
                continue
            if not is_compressed(data.records):
                left_bytes -= len(data.records)
                if left_bytes >= 0:
                    continue
            partition = context.services.partitions.get(_name_of(topic, context), data.index)
            if partition is None or not partition.is_leader:
                continue  # `append` refuses it
            rules, zstd_allowed = partition.log.produce_rules, context.version >= _ZSTD_FROM
            verdict = None
            now_s = context.services.env.clock.monotonic()
            deadline = now_s + _VALIDATION_ON_LOOP_S if deadline is None else deadline
            if not large and left_bytes >= 0 and now_s < deadline:
                verdict = context.services.batch_validation.validate_small(
                    data.records, rules, now_ms=context.now_ms, zstd_allowed=zstd_allowed
                )
            if verdict is None:
                large.append(_LargeBatch(id(data), data.records, rules))
            else:
                known.add(id(data), verdict, _max_rebuilt_bytes(context))
    return large


def _max_rebuilt_bytes(context: RequestContext) -> int:
    return context.services.config.felice_batch_max_decompressed_bytes


async def _write_later(
    request: ProduceRequest, context: RequestContext, known: _Known, large: list[_LargeBatch]
) -> ProduceAnswer:
    """Writes a transaction's batches after all of them were validated, because they are admitted together."""
    try:
        for batch in large:
            known.add(batch.key, await _validated(batch, context), _max_rebuilt_bytes(context))
        # The process may have been suspended meanwhile, and others may lead.
        context.services.image_follower.check_session()
        answer = _write(request, context, known)
    finally:
        context.session.release()
    return await answer if isinstance(answer, Awaitable) else answer


async def _validated(batch: _LargeBatch, context: RequestContext) -> Verdict:
    return await context.services.batch_validation.validate_large(
        batch.records, batch.rules, now_ms=context.now_ms, zstd_allowed=context.version >= _ZSTD_FROM
    )


def _write(
    request: ProduceRequest, context: RequestContext, known: _Known
) -> ProduceAnswer | Awaitable[ProduceAnswer]:
    if request.transactional_id is None:
        return _append(request, context, {}, known)
    writes = _transactional_writes(request, context, known)
    if len(writes) != 1:
        several = (where for partitions in writes.values() for where in partitions)
        return _append(request, context, dict.fromkeys(several, ErrorCode.INVALID_PRODUCER_ID_MAPPING), known)
    ((who, partitions),) = writes.items()
    flow = Flow(adds=context.version >= _ADDS_FROM, knows_abortable=context.version >= _ABORTABLE_FROM)
    queued = context.services.coordinators.admission.enter(who, list(partitions.values()), flow)
    admitted = dict.fromkeys(partitions, ErrorCode.NONE)
    if queued is None:
        return _append(request, context, admitted, known)
    return queued.run(_append_in_turn(queued, request, context, admitted, known))


async def _append_in_turn(
    queued: QueuedWrite,
    request: ProduceRequest,
    context: RequestContext,
    admitted: PartitionErrors,
    known: _Known,
) -> ProduceAnswer:
    async with queued as refusals:
        answer = _append(request, context, {**admitted, **refusals}, known)
    # The producer's next request is appended while this one is replicated.
    return await answer if isinstance(answer, Awaitable) else answer


def _append(
    request: ProduceRequest, context: RequestContext, verdicts: PartitionErrors, known: _Known
) -> ProduceAnswer | Awaitable[ProduceAnswer]:
    pending: _Pending = []
    response = ProduceResponse()
    # Plain loops: a comprehension is a call of its own.
    for topic in request.topic_data:
        name = topic.name or _name_of(topic, context)
        rows: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            rows.append(_row(name, data, request, context, verdicts, known, pending))
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        response.responses.append(answered)
    return _appended(response, pending, request, context)


async def _append_in_steps(
    request: ProduceRequest, context: RequestContext, known: _Known, large: dict[int, _LargeBatch]
) -> ProduceAnswer:
    """Appends large batches, or thousands of batches, in the order of the request. The connection's next ones wait.

    Each batch is appended as soon as it is validated. So a request that waits for a thread keeps no batch that was
    rebuilt for its topic, and the threads bound the memory of all requests together.
    """
    pending: _Pending = []
    topics = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id) for topic in request.topic_data]
    items = (
        (answered, name, data)
        for answered, topic in zip(topics, request.topic_data, strict=True)
        for name in (_name_of(topic, context),)
        for data in topic.partition_data
    )
    try:
        async for answered, name, data in paced(items, context.services.env.clock):
            if (batch := large.pop(id(data), None)) is not None:
                known.verdicts[id(data)] = await _validated(batch, context)
            # The process may have been suspended meanwhile, and others may lead.
            context.services.image_follower.check_session()
            answered.partition_responses.append(_row(name, data, request, context, {}, known, pending))
            known.verdicts.pop(id(data), None)
        answer = _appended(ProduceResponse(responses=topics), pending, request, context)
    finally:
        context.session.release()
    return await answer if isinstance(answer, Awaitable) else answer


def _appended(
    response: ProduceResponse, pending: _Pending, request: ProduceRequest, context: RequestContext
) -> ProduceAnswer | Awaitable[ProduceAnswer]:
    if request.acks == 0:
        _close_on_error(response)
        return NO_REPLY
    if context.version >= _LEADER_HINTS_FROM:
        _name_leaders(response, context)
    if not pending:
        return response
    timeout_s = request.timeout_ms / 1000 if request.acks == ACKS_ALL else _NO_DEADLINE_S
    return _acknowledged(response, pending, request.acks, timeout_s, context)


def _row(
    topic: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    verdicts: PartitionErrors,
    known: _Known,
    pending: _Pending,
) -> PartitionProduceResponse:
    try:
        is_transactional = _check(topic, data, request, context)
        assert data.records is not None  # or `_check` raises
        partition = context.services.partitions.find(topic, data.index)
        if is_transactional:
            # Without a verdict the partition was not here when the coordinator was asked.
            where = TopicPartition(topic, data.index)
            _check_verdict(verdicts.get(where, ErrorCode.NOT_LEADER_OR_FOLLOWER), context)
    except ApiError as error:
        return _failed(data.index, _earlier_fault(topic, data, context) or error)
    key = id(data)
    try:
        info = partition.append(
            data.records,
            required_acks=request.acks,
            now_ms=context.now_ms,
            zstd_allowed=context.version >= _ZSTD_FROM,
            transaction_version=V2 if is_transactional and context.version >= _ADDS_FROM else V1,
            header=known.headers.get(key),
            verdict=known.verdicts.get(key),
        )
    except ApiError as error:
        if (earlier := _earlier_fault(topic, data, context)) is not None:
            return _failed(data.index, earlier)
        has_log_start = error.code not in _WITHOUT_LOG_START
        return _failed(data.index, error, partition.log_start_offset if has_log_start else -1)
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
    is_transactional = has_transactional_flag(data.records)
    if is_transactional and request.transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records need an id")
    return is_transactional


def _earlier_fault(topic: str, data: PartitionProduceData, context: RequestContext) -> ApiError | None:
    """The fault that Kafka finds first: that of the topic, then that of the batch's header."""
    if not topic and context.version >= _TOPIC_IDS_FROM:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if context.services.image.partition(topic, data.index) is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if data.records is not None:
        try:
            only_batch(data.records, zstd_allowed=context.version >= _ZSTD_FROM)
        except ApiError as error:
            return error
    return None


def _name_of(topic: TopicProduceData, context: RequestContext) -> str:
    """Empty where nobody knows the topic's id."""
    return topic.name or context.services.image.topic_names.get(topic.topic_id, "")


def _transactional_writes(
    request: ProduceRequest, context: RequestContext, known: _Known
) -> dict[Identity, dict[TopicPartition, Partition]]:
    """Which transactions write, and to which partitions here. A client's request has only one."""
    found: dict[Identity, dict[TopicPartition, Partition]] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            where = TopicPartition(_name_of(topic, context), data.index)
            partition = context.services.partitions.get(*where)
            if partition is None or data.records is None or not has_transactional_flag(data.records):
                continue
            try:
                header = _header_of(data, context, known)
            except ApiError:
                continue  # refused before the transaction gains a partition
            who = Identity(request.transactional_id or "", header.producer_id, header.producer_epoch)
            found.setdefault(who, {})[where] = partition
    return found


def _header_of(data: PartitionProduceData, context: RequestContext, known: _Known) -> BatchHeader:
    """The header of a batch, which is not parsed again when the batch is appended. Raises `ApiError`."""
    verdict = known.verdicts.get(id(data))
    if isinstance(verdict, Validated):
        return verdict.header
    assert data.records is not None
    header = known.headers[id(data)] = only_batch(data.records, zstd_allowed=context.version >= _ZSTD_FROM)
    return header


def _check_verdict(verdict: ErrorCode, context: RequestContext) -> None:
    if verdict == ErrorCode.NONE:
        return
    is_concurrent = verdict == ErrorCode.CONCURRENT_TRANSACTIONS
    if verdict in _COORDINATOR_TROUBLE and not (is_concurrent and context.version >= _ADDS_FROM):
        verdict = ErrorCode.NOT_ENOUGH_REPLICAS
    raise ApiError(verdict, "the partition is not in the producer's transaction")


async def _acknowledged(
    response: ProduceResponse, pending: _Pending, acks: int, timeout_s: float, context: RequestContext
) -> ProduceResponse:
    clock = context.services.env.clock
    deadline = clock.monotonic() + timeout_s
    for row, partition, info in pending:
        try:
            await partition.wait_acknowledged(info, acks, max(0.0, deadline - clock.monotonic()))
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
            row.base_offset = row.log_append_time_ms = row.log_start_offset = -1
    return response


def _failed(index: int, error: ApiError, log_start_offset: int = -1) -> PartitionProduceResponse:
    faults = getattr(error, "record_errors", ())
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
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
    named: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            image = context.services.image
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
