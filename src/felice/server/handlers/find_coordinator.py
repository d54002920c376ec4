"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id (from version 4 several).

The first request creates the internal topic of the coordinator. Until the topic has leaders the error is
COORDINATOR_NOT_AVAILABLE, and clients retry. If the topic cannot be created, as on a full disk, the message has the
reason. Felice has no other types of coordinators: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    TRANSACTION_KEY_TYPE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from felice.security.acl import Operation, ResourceType
from felice.server.access.guards import Guard, Handle, by_version, items_need, permission, request_needs
from felice.server.flow.pace import each

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_MANY_KEYS_SINCE = 4
_NO_NODE = -1

_NOWHERE = {"node_id": _NO_NODE, "port": _NO_NODE}


def _describes(kind: ResourceType) -> Guard[FindCoordinatorRequest, FindCoordinatorResponse]:
    key = permission(Operation.DESCRIBE, kind, _key)
    return by_version(
        _MANY_KEYS_SINCE,
        items_need(API.FIND_COORDINATOR, permission(Operation.DESCRIBE, kind), fields=_NOWHERE),
        request_needs(API.FIND_COORDINATOR, key, fields=_NOWHERE),
    )


def _key(request: FindCoordinatorRequest, context: RequestContext) -> str:
    return request.key


def guard(
    handle: Handle[FindCoordinatorRequest, FindCoordinatorResponse],
) -> Handle[FindCoordinatorRequest, FindCoordinatorResponse]:
    """Other types of keys have no coordinator, so they need no permission."""
    guarded = {
        GROUP_KEY_TYPE: _describes(ResourceType.GROUP)(handle),
        TRANSACTION_KEY_TYPE: _describes(ResourceType.TRANSACTIONAL_ID)(handle),
    }
    return lambda request, context: guarded.get(request.key_type, handle)(request, context)


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Looks up each key; before version 4 the response has the fields of its single key."""
    if context.version >= _MANY_KEYS_SINCE:
        found = await each(
            request.coordinator_keys,
            lambda key: _find(request.key_type, key, context),
            context.services.env.clock,
        )
        return FindCoordinatorResponse(coordinators=found)
    one = _find(request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(key_type: int, key: str, context: RequestContext) -> Coordinator:
    if key_type not in (GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE):
        message = f"This broker has no coordinators of type {key_type}."
        return _not_found(key, ErrorCode.INVALID_REQUEST, message)
    services = context.services
    is_group = key_type == GROUP_KEY_TYPE
    node_id = (services.coordinators.groups if is_group else services.coordinators.transactions).leader_of(
        key
    )
    node = services.image.brokers.get(node_id)
    endpoint = None if node is None else node.endpoints.get(context.listener_name)
    if endpoint is None:
        topic = CONSUMER_OFFSETS if is_group else TRANSACTION_STATE
        fault = services.topics.auto.fault_of(topic)
        message = ErrorCode.COORDINATOR_NOT_AVAILABLE.message if fault is None else f"{topic}: {fault}"
        return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    return Coordinator(
        key=key, node_id=node_id, host=endpoint.host, port=endpoint.port, error_message=_no_error(context)
    )


def _no_error(context: RequestContext) -> str | None:
    """The message of a success: as in Kafka `NONE` in versions 1 to 3, and empty from version 4."""
    return "" if context.version >= _MANY_KEYS_SINCE else "NONE"


def _not_found(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=_NO_NODE, host="", port=_NO_NODE, error_code=error, error_message=message
    )
