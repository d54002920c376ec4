"""Produce (key 0): appends one batch to each of some partitions.

Partitions succeed or fail separately. With acks=1 the response is sent when the leader has the batches, with acks=-1
when they are committed. With acks=0 there is no response; after an error the connection is closed, because nothing else
could tell the client.
Small batches are validated on the event loop. Large ones are validated on threads, and each is appended before the
next is validated. More than `MAX_PARTITIONS_WITHOUT_PAUSE` batches are appended with pauses. Meanwhile the connection's
next requests wait: batches of one producer must be appended in their order.
A transaction's coordinator is asked before its batches are validated, so a request that waits for it keeps no batch
that was rebuilt for its topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from felice.controller.topic_names import INTERNAL_TOPICS
from felice.coordinator.transaction.metadata import V1, V2
from felice.coordinator.transaction.shard import Identity
from felice.dataclass import dataclass
from felice.log.answers import AppendInfo
from felice.protocol.api import API
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
from felice.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    Attributes,
    BatchHeader,
    has_transactional_flag,
)
from felice.records.validate import (
    INLINE_MAX_BYTES,
    ProduceRules,
    Validated,
    Verdict,
    only_batch,
)
from felice.replication.partition import ACKS_ALL, Partition
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import Handle, all_of, checked_by, items_need, permission, request_needs
from felice.server.context import NO_REPLY, CloseConnection, NoReply
from felice.server.fetching.leaders import endpoint_of
from felice.server.flow.pace import held, paced
from felice.server.writes.admission import Agreement, Flow, QueuedWrite

if TYPE_CHECKING:
    from felice.server.context import RequestContext
    from felice.server.security.access_control import Access

# Kafka's own admin client may write to internal topics.
_ADMIN_CLIENT = "__admin_client"
_ZSTD_FROM, _LEADER_HINTS_FROM, _ABORTABLE_FROM, _ADDS_FROM, _TOPIC_IDS_FROM = 7, 10, 11, 12, 13
_LOW_ATTRIBUTES = ATTRIBUTES_POSITION + 1
# Plain integers, because every batch is compared with them.
_CODEC_BITS, _TRANSACTIONAL_BIT = int(Attributes.CODEC_MASK), int(Attributes.TRANSACTIONAL)
_NO_DEADLINE_S = 3600.0
# The compressed batches of one request are validated on the event loop for this long; threads validate the rest.
_VALIDATION_ON_LOOP_S = 0.010
# The batches of requests with more partitions are appended with pauses: the first batch of a partition creates files,
# which takes about half a millisecond.
MAX_PARTITIONS_WITHOUT_PAUSE = 100

# For these errors of the coordinator a client gets NOT_ENOUGH_REPLICAS, on which clients of every version retry. From
# version 12 it gets CONCURRENT_TRANSACTIONS itself.
_COORDINATOR_TROUBLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

# With these errors, the partition's row of Kafka's response has no log start offset (-1).
_WITHOUT_LOG_START = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

ProduceAnswer: TypeAlias = ProduceResponse | NoReply
_Pending: TypeAlias = list[tuple[PartitionProduceResponse, Partition, AppendInfo]]
_Appended: TypeAlias = tuple[ProduceResponse, _Pending]
"""The response, and the rows of this response that wait for an acknowledgement."""


@dataclass(slots=True)
class _Known:
    """Results of checks before the append, by the `id` of the batch's part of the request."""

    # The results of validation, of compressed and large batches.
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    # Of transactional batches.
    headers: dict[int, BatchHeader] = field(default_factory=dict)
    # Number of partitions in the request.
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class _LargeBatch:
    key: int
    records: Buffer
    rules: ProduceRules


_Writes: TypeAlias = dict[tuple[int, int], dict[TopicPartition, Partition]]
"""The partitions here to which each producer id and epoch write. A client's request has only one."""
_NO_TRANSACTION = Agreement()


def _transactional_rights(request: ProduceRequest, context: RequestContext, access: Access) -> ErrorCode:
    batches = (data.records for topic in request.topic_data for data in topic.partition_data)
    if not any(records is not None and has_transactional_flag(records) for records in batches):
        return ErrorCode.NONE
    name = request.transactional_id
    if name is not None and access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


_REFUSED = {"base_offset": -1, "error_message": None}
_with_rights = all_of(
    request_needs(API.PRODUCE, checked_by(_transactional_rights), fields=_REFUSED),
    items_need(API.PRODUCE, permission(Operation.WRITE, ResourceType.TOPIC), fields=_REFUSED),
)


def guard(handle: Handle[ProduceRequest, ProduceAnswer]) -> Handle[ProduceRequest, ProduceAnswer]:
    """With acks=0 a client gets no response, so the broker closes the connection of a refused request."""

    async def answered(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        answer = await handle(request, context)
        return ProduceResponse() if isinstance(answer, NoReply) else answer

    checked = _with_rights(answered)

    async def guarded(request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
        answer = await checked(request, context)
        if request.acks != 0:
            return answer
        if answer.responses:
            raise CloseConnection("produce with acks=0 was not authorised")
        return NO_REPLY

    return guarded


async def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | NoReply:
    """Appends at once. If the request is large, or needs an answer of its transaction coordinator, appends later.

    NO_REPLY for acks=0.
    """
    if request.transactional_id is None:
        return await _write(request, context, _Known(), _NO_TRANSACTION)
    known, writes = _Known(), _Writes()
    batches = _batches(request, context)
    if sum(len(topic.partition_data) for topic in request.topic_data) > MAX_PARTITIONS_WITHOUT_PAUSE:
        with held(context.session):
            async for topic, data in paced(batches, context.services.env.clock):
                _note_writer(topic, data, context, known, writes)
    else:
        for topic, data in batches:
            _note_writer(topic, data, context, known, writes)
    return await _write_transaction(request, context, known, writes)


def _batches(request: ProduceRequest, context: RequestContext) -> Iterator[tuple[str, PartitionProduceData]]:
    """The name of the topic, and the batch, for each partition of the request."""
    for topic in request.topic_data:
        name = _name_of(topic, context)
        for data in topic.partition_data:
            yield name, data


async def _write_transaction(
    request: ProduceRequest, context: RequestContext, known: _Known, writes: _Writes
) -> ProduceAnswer:
    if len(writes) != 1:
        several = (where for partitions in writes.values() for where in partitions)
        refusals = dict.fromkeys(several, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return await _write(request, context, known, Agreement(refusals=refusals))
    (((producer_id, epoch), partitions),) = writes.items()
    who = Identity(request.transactional_id or "", producer_id, epoch)
    flow = Flow(adds=context.version >= _ADDS_FROM, knows_abortable=context.version >= _ABORTABLE_FROM)
    queued = context.services.coordinators.admission.enter(who, list(partitions.values()), flow)
    if queued is None:
        return await _write(request, context, known, Agreement(who, partitions))
    return await queued.run(_write_in_turn(queued, request, context, known, who, partitions))


async def _write_in_turn(
    queued: QueuedWrite,
    request: ProduceRequest,
    context: RequestContext,
    known: _Known,
    who: Identity,
    partitions: Mapping[TopicPartition, Partition],
) -> ProduceAnswer:
    async with queued as refusals:
        agreement = Agreement(who, partitions, refusals)
        large = _validate_small(request, context, known)
        if large or known.partitions > MAX_PARTITIONS_WITHOUT_PAUSE:
            appended = await _append_in_steps(request, context, agreement, known, large)
        else:
            appended = _append(request, context, agreement, known)
    # The producer's next request is appended while this one is replicated.
    return await _answered(appended, request, context)


async def _write(
    request: ProduceRequest, context: RequestContext, known: _Known, agreement: Agreement
) -> ProduceAnswer:
    large = _validate_small(request, context, known)
    if not large and known.partitions <= MAX_PARTITIONS_WITHOUT_PAUSE:
        appended = _append(request, context, agreement, known)
    else:
        with held(context.session):
            appended = await _append_in_steps(request, context, agreement, known, large)
    return await _answered(appended, request, context)


def _validate_small(request: ProduceRequest, context: RequestContext, known: _Known) -> list[_LargeBatch]:
    """Validates compressed batches; returns the batches that would hold the event loop too long.

    It returns large batches and the compressed batches after them. It returns the rest of the request, too, once small
    compressed batches have taken `_VALIDATION_ON_LOOP_S`, or uncompressed and rebuilt batches together exceed
    `INLINE_MAX_BYTES`. The log validates the other uncompressed batches when it appends them.
    """
    large: list[_LargeBatch] = []
    deadline: float | None = None
    left_bytes, now_ms = INLINE_MAX_BYTES, 0
    for topic in request.topic_data:
        known.partitions += len(topic.partition_data)
        name = topic.name or _name_of(topic, context)
        for data in topic.partition_data:
            records = data.records
            if records is None:
                continue
            if len(records) < HEADER_SIZE or not records[_LOW_ATTRIBUTES] & _CODEC_BITS:
                left_bytes -= len(records)
                if left_bytes >= 0:
                    continue
            partition = context.services.partitions.get(name, data.index)
            if partition is None or not partition.is_leader:
                continue  # `append` refuses it
            rules, zstd_allowed = partition.log.produce_rules, context.version >= _ZSTD_FROM
            verdict = None
            now_s = context.services.env.clock.monotonic()
            if deadline is None:
                deadline, now_ms = now_s + _VALIDATION_ON_LOOP_S, context.now_ms
            if not large and left_bytes >= 0 and now_s < deadline:
                verdict = context.services.batch_validation.validate_small(
                    records, rules, now_ms=now_ms, zstd_allowed=zstd_allowed
                )
            if verdict is None:
                large.append(_LargeBatch(id(data), records, rules))
                continue
            known.verdicts[id(data)] = verdict
            if isinstance(verdict, Validated) and isinstance(verdict.records, bytearray):
                left_bytes -= len(verdict.records)  # rebuilt: it takes memory beside the request
    return large


async def _validated(batch: _LargeBatch, context: RequestContext) -> Verdict:
    return await context.services.batch_validation.validate_large(
        batch.records, batch.rules, now_ms=context.now_ms, zstd_allowed=context.version >= _ZSTD_FROM
    )


def _append(
    request: ProduceRequest, context: RequestContext, agreement: Agreement, known: _Known
) -> _Appended:
    pending: _Pending = []
    response = ProduceResponse()
    now_ms = context.now_ms
    # Plain loops: a comprehension is a call of its own.
    for topic in request.topic_data:
        name = topic.name or _name_of(topic, context)
        rows: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            rows.append(_row(name, data, request, context, agreement, known, pending, now_ms))
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        response.responses.append(answered)
    return response, pending


async def _append_in_steps(
    request: ProduceRequest,
    context: RequestContext,
    agreement: Agreement,
    known: _Known,
    large: list[_LargeBatch],
) -> _Appended:
    """Appends large batches, or many batches, in the order of the request, with pauses.

    Each batch is appended as soon as it is validated. So a request that waits for a thread keeps no batch that was
    rebuilt for its topic, and the threads bound the memory of all requests together.
    """
    pending: _Pending = []
    to_validate = {batch.key: batch for batch in large}
    topics = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id) for topic in request.topic_data]
    items = (
        (answered, name, data)
        for answered, topic in zip(topics, request.topic_data, strict=True)
        for name in (_name_of(topic, context),)
        for data in topic.partition_data
    )
    agreement.watch_markers()
    async for answered, name, data in paced(items, context.services.env.clock):
        if (batch := to_validate.pop(id(data), None)) is not None:
            known.verdicts[id(data)] = await _validated(batch, context)
        # The process may have been suspended meanwhile, and other brokers may lead the partitions now.
        context.services.image_follower.check_session()
        row = _row(name, data, request, context, agreement, known, pending, context.now_ms)
        answered.partition_responses.append(row)
        known.verdicts.pop(id(data), None)
    return ProduceResponse(responses=topics), pending


async def _answered(appended: _Appended, request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
    """The answer, when the batches that were appended are acknowledged."""
    response, pending = appended
    if request.acks == 0:
        _close_on_error(response)
        return NO_REPLY
    if context.version >= _LEADER_HINTS_FROM:
        _name_leaders(response, context)
    if pending:
        timeout_s = request.timeout_ms / 1000 if request.acks == ACKS_ALL else _NO_DEADLINE_S
        await _wait_acknowledged(pending, request.acks, timeout_s, context)
    return response


def _row(
    topic: str,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: RequestContext,
    agreement: Agreement,
    known: _Known,
    pending: _Pending,
    now_ms: int,
) -> PartitionProduceResponse:
    try:
        is_transactional = _check(topic, data, request, context)
        assert data.records is not None  # or `_check` raises
        partition = context.services.partitions.find(topic, data.index)
        if is_transactional and (verdict := agreement.verdict(TopicPartition(topic, data.index))):
            raise _not_in_transaction(verdict, context)
    except ApiError as error:
        return _failed(data.index, _earlier_fault(topic, data, context) or error)
    key = id(data)
    try:
        info = partition.append(
            data.records,
            required_acks=request.acks,
            now_ms=now_ms,
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
    """Checks that depend on the request and not on the partition. Returns whether the batch is in a transaction."""
    if request.acks not in (-1, 0, 1):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {topic}")
    records = data.records
    if records is None or len(records) <= _LOW_ATTRIBUTES:
        raise ApiError(ErrorCode.INVALID_RECORD, "the request has no record batch for this partition")
    is_transactional = records[_LOW_ATTRIBUTES] & _TRANSACTIONAL_BIT != 0 and has_transactional_flag(records)
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
    """The topic's name; empty for an unknown topic id."""
    return topic.name or context.services.image.topic_names.get(topic.topic_id, "")


def _note_writer(
    topic: str, data: PartitionProduceData, context: RequestContext, known: _Known, writes: _Writes
) -> None:
    """Adds the partition to the writes of the batch's producer. The header is not parsed again for the append."""
    where = TopicPartition(topic, data.index)
    partition = context.services.partitions.get(*where)
    if partition is None or data.records is None or not has_transactional_flag(data.records):
        return
    try:
        header = only_batch(data.records, zstd_allowed=context.version >= _ZSTD_FROM)
    except ApiError:
        return  # refused before the transaction gains a partition
    known.headers[id(data)] = header
    writes.setdefault((header.producer_id, header.producer_epoch), {})[where] = partition


def _not_in_transaction(verdict: ErrorCode, context: RequestContext) -> ApiError:
    is_concurrent = verdict == ErrorCode.CONCURRENT_TRANSACTIONS
    if verdict in _COORDINATOR_TROUBLE and not (is_concurrent and context.version >= _ADDS_FROM):
        verdict = ErrorCode.NOT_ENOUGH_REPLICAS
    return ApiError(verdict, "the partition is not in the producer's transaction")


async def _wait_acknowledged(pending: _Pending, acks: int, timeout_s: float, context: RequestContext) -> None:
    clock = context.services.env.clock
    deadline = clock.monotonic() + timeout_s
    for row, partition, info in pending:
        try:
            await partition.wait_acknowledged(info, acks, max(0.0, deadline - clock.monotonic()))
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
            row.base_offset = row.log_append_time_ms = row.log_start_offset = -1


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
    """Adds the current leaders to the errors of partitions that this broker does not lead (KIP-951)."""
    named: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            image = context.services.image
            name = topic.name or image.topic_names.get(topic.topic_id, "")
            known = image.partition(name, row.index)
            leader = image.brokers.get(known.leader) if known else None
            endpoint = endpoint_of(leader, context.listener_name) if leader else None
            if known and endpoint:
                row.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
                named[endpoint.node_id] = endpoint
    response.node_endpoints = list(named.values())
