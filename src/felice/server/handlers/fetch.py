"""Fetch (key 1): record batches from some offset on.

The response is sent at once if there are `min_bytes` of records, if a partition has an error, or if the session has no
partitions. Otherwise it waits for `min_bytes`, at most for `max_wait_ms`; this is also true of an incremental request
that names no partition. The first partition with records returns at least one whole batch, however small the limits
are (KIP-74); later partitions share the rest of `max_bytes`.

A follower (`replica_state`) reads to the end of the log, from the leader only. The offset that it requests tells the
leader what the follower has. A consumer of version 11 or later may read from any replica; with
`replica.selector.class` it is redirected to a replica in its rack (KIP-392).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from felice.protocol.errors import ApiError
from felice.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType
from felice.server.fetching.fetch_alarm import FetchAlarm
from felice.server.fetching.fetch_rows import FetchRows
from felice.server.fetching.fetch_sessions import FetchedPartition, FetchPlan
from felice.server.fetching.finding import PartitionFinder, TopicRef
from felice.server.fetching.followers import FollowerFinder, FollowerRows
from felice.server.fetching.leaders import Leaders
from felice.server.fetching.partition_reads import PartitionReads
from felice.server.flow.pace import for_each
from felice.server.security.access_control import in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_ENDPOINTS_FROM = 16
_Reads: TypeAlias = PartitionReads[FetchedPartition, PartitionData]

guard = in_handler  # READ of each topic; CLUSTER_ACTION for followers


async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Reads at once, and waits if the request needs more bytes."""
    services = context.services
    try:
        plan = services.fetching.sessions.open(request, context.version, context.now_ms)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    leaders = Leaders(services.watcher, context)
    replica_id = request.replica_state.replica_id if request.replica_state else request.replica_id
    max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
    if replica_id >= 0:
        finder, rows = await _of_follower(replica_id, request, plan, leaders, context)
    else:
        finder, rows = _of_consumer(request, leaders, context)
        if services.quotas.are_set:
            allowed = services.quotas.max_fetch_bytes(context.principal.name, context.client_id or "")
            max_bytes = min(max_bytes, allowed)
    reads: _Reads = PartitionReads(
        plan.partitions,
        finder,
        rows,
        lambda: plan.is_empty or services.lifecycle.is_stopping,
        services.env.clock,
        min_bytes=request.min_bytes,
        max_bytes=max_bytes,
    )
    await reads.read_all()
    if request.max_wait_ms > 0 and not reads.is_enough():
        await _wait(reads, plan, request.max_wait_ms, context)
    response = FetchResponse(session_id=plan.session_id, responses=await _topics(reads, plan, rows, context))
    if rows.throttled_bytes:
        services.fetching.throttle.record(rows.throttled_bytes, services.env.clock.monotonic())
    if context.version >= _ENDPOINTS_FROM:
        response.node_endpoints = leaders.endpoints()
    return response


def _of_consumer(
    request: FetchRequest, leaders: Leaders, context: RequestContext
) -> tuple[PartitionFinder, FetchRows]:
    services = context.services
    access = context.access if services.security.access.is_enabled else None
    finder = PartitionFinder(services.partitions, services.watcher, access)
    return finder, FetchRows(request, context.version, finder, leaders, services.settings)


async def _of_follower(
    replica_id: int, request: FetchRequest, plan: FetchPlan, leaders: Leaders, context: RequestContext
) -> tuple[PartitionFinder, FetchRows]:
    """Records the follower's offsets before its partitions are read."""
    services = context.services
    is_allowed = not services.security.access.is_enabled or context.access.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    epoch = request.replica_state.replica_epoch if request.replica_state else -1
    clock = services.env.clock
    finder = FollowerFinder(
        services.partitions, services.watcher, replica_id, epoch, clock, is_allowed=is_allowed
    )
    await finder.record_offsets(plan, services.image_follower.check_session)
    return finder, FollowerRows(
        request,
        context.version,
        finder,
        leaders,
        services.settings,
        session=plan.session,
        broker_id=services.broker_id,
        throttle=services.fetching.throttle,
        clock=clock,
    )


async def _wait(reads: _Reads, plan: FetchPlan, max_wait_ms: int, context: RequestContext) -> None:
    """Waits for changes of the partitions that were read, and of the idle partitions of the session."""
    alarm: FetchAlarm[FetchedPartition] = FetchAlarm(asyncio.get_running_loop())
    plan.call_on_wake(alarm.wake, reads.rows)
    try:
        await reads.wait(alarm, context.services.flow.wakeups, max_wait_ms)
    finally:
        plan.end_calls(alarm.wake)


async def _topics(
    reads: _Reads, plan: FetchPlan, rows: FetchRows, context: RequestContext
) -> list[FetchableTopicResponse]:
    """The rows that the response must have, by topic."""
    topics: dict[TopicRef, FetchableTopicResponse] = {}

    def add(served: tuple[FetchedPartition, PartitionData]) -> None:
        asked, row = served
        if not row.error_code:
            rows.served(asked, reads.read_at[asked][0], row)
        if plan.reports(asked, row):
            topic = topics.get(asked.topic)
            if topic is None:
                topic = topics[asked.topic] = _topic_row(asked.topic)
            topic.partitions.append(row)

    await for_each(list(reads.rows.items()), add, context.services.env.clock)
    return list(topics.values())


def _topic_row(topic: TopicRef) -> FetchableTopicResponse:
    if isinstance(topic, UUID):
        return FetchableTopicResponse(topic_id=topic)
    return FetchableTopicResponse(topic=topic)
