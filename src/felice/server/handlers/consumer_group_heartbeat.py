"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, reports its partitions, or leaves (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from felice.controller.features import GROUP_VERSION
from felice.coordinator.group.consumer.answers import error_response
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import Handle, all_of, codes_of, permission, request_needs
from felice.server.requests.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_Handle: TypeAlias = "Handle[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]"


def _describes_topics(handle: _Handle) -> _Handle:
    """A member must see every topic that it names; topics that its regular expression matches are left out instead."""
    check = permission(Operation.DESCRIBE, ResourceType.TOPIC)(str)

    async def guarded(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse:
        codes = await codes_of(request.subscribed_topic_names, check, context)
        refused = next((code for code in codes if code != ErrorCode.NONE), None)
        return await handle(request, context) if refused is None else error_response(refused)

    return guarded


def _is_enabled(context: RequestContext) -> bool:
    """The protocol is served while the feature `group.version` is finalized at level 1 or higher."""
    return context.services.image.features.get(GROUP_VERSION, 0) >= 1


def _needs_feature(handle: _Handle) -> _Handle:
    """As in Kafka, a missing feature is reported before a missing permission."""

    async def guarded(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse:
        return await handle(request, context) if _is_enabled(context) else _disabled()

    return guarded


def _disabled() -> ConsumerGroupHeartbeatResponse:
    return error_response(ErrorCode.UNSUPPORTED_VERSION)


guard = all_of(
    _needs_feature,
    request_needs(API.CONSUMER_GROUP_HEARTBEAT, permission(Operation.READ, ResourceType.GROUP)),
    _describes_topics,
)


async def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Passes the request to the group's coordinator."""
    if not _is_enabled(context):  # without an authorizer no guard has run
        return _disabled()
    services = context.services
    may_describe = None
    if services.security.access.is_enabled:
        access = context.access

        def may_describe(topic: str) -> bool:
            return access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    return await services.coordinators.groups.consumer_heartbeat(request, client_of(context), may_describe)
