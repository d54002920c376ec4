"""ListConfigResources (key 74): the resources with configurations: topics, brokers, client metrics and groups.

Version 0 requests the client metrics only. A group is listed if it has configurations of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_configs import ResourceType
from felice.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.requests.named_resources import NAMED_RESOURCES

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.LIST_CONFIG_RESOURCES, cluster_permission(Operation.DESCRIBE_CONFIGS))


async def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    """Names the resources of the requested types; UNSUPPORTED_VERSION for a type that Kafka does not define."""
    known = [int(kind) for kind in ResourceType]
    wanted = [int(ResourceType.CLIENT_METRICS)] if context.version == 0 else request.resource_types or known
    if any(kind not in known for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in _names(kind, context)
        ]
    )


def _names(kind: int, context: RequestContext) -> list[str]:
    image = context.services.image
    if kind == ResourceType.TOPIC:
        return sorted(image.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(NAMED_RESOURCES[kind].configs(image))
