"""AlterConfigs (key 33): replaces all configurations of a resource.

A client may send back the complete result of DescribeConfigs: options that cannot change are ignored if their value is
the one in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from felice.config import BROKER_OPTIONS, Scope, shortened
from felice.config.without_effect import FIXED
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from felice.protocol.messages.describe_configs import ResourceType
from felice.security.acl import Operation
from felice.server.access.guards import config_permission, items_need
from felice.server.configs.entries import broker_entries
from felice.server.requests.config_resources import (
    change_broker,
    change_client_metrics,
    change_each,
    change_topic,
    unsupported,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(API.ALTER_CONFIGS, config_permission(Operation.ALTER_CONFIGS))


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Changes one resource after the other; the response has a result, with its own error, for each."""

    async def change(resource: AlterConfigsResource) -> None:
        await _replace(resource, request.validate_only, context)

    rows = await change_each(request.resources, AlterConfigsResourceResponse, change, context)
    return AlterConfigsResponse(responses=rows)


async def _replace(resource: AlterConfigsResource, validate_only: bool, context: RequestContext) -> None:
    name, wanted = resource.resource_name, _wanted(resource)
    if resource.resource_type == ResourceType.TOPIC:
        await change_topic(name, lambda _: wanted, validate_only, context)
    elif resource.resource_type == ResourceType.BROKER:
        in_force = {entry.name: entry.value for entry in broker_entries(context.services.config_layers)}
        new = {key: value for key, value in wanted.items() if not _is_value_in_force(key, value, in_force)}
        await change_broker(name, lambda _: new, wanted, validate_only, context)
    elif resource.resource_type == ResourceType.CLIENT_METRICS:
        await change_client_metrics(name, lambda _: wanted, validate_only, context)
    else:
        raise unsupported(resource.resource_type)


def _wanted(resource: AlterConfigsResource) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for config in resource.configs:
        if config.name in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        if config.value is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {shortened(config.name)}"
            )
        wanted[config.name] = config.value
    return wanted


def _is_value_in_force(name: str, value: str, in_force: Mapping[str, str | None]) -> bool:
    option = BROKER_OPTIONS.get(name) or FIXED.get(name)
    return (
        option is not None
        and option.scope is Scope.READ_ONLY
        and (in_force.get(name) == option.canonical(value))
    )
