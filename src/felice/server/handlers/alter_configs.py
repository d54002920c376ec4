"""AlterConfigs (key 33): replaces all configurations of a resource.

What DescribeConfigs told may be sent back whole: names that cannot change are passed over when
their value is the one in force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from felice.config import BROKER_OPTIONS, Scope
from felice.metadata.layout import DEFAULT_ENTITY
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from felice.protocol.messages.describe_configs import ResourceType
from felice.server.config_entries import broker_entries
from felice.server.dynamic_config import check_dynamic
from felice.server.handlers.describe_configs import check_broker, check_topic

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        row = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await _replace(resource, request.validate_only, context)
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
        responses.append(row)
    return AlterConfigsResponse(responses=responses)


async def _replace(resource: AlterConfigsResource, validate_only: bool, context: RequestContext) -> None:
    broker, name = context.broker, resource.resource_name
    wanted = _wanted(resource)
    if resource.resource_type == ResourceType.TOPIC:
        check_topic(name, context)
        await broker.controller.change_topic_config(name, lambda _: wanted, validate_only=validate_only)
    elif resource.resource_type == ResourceType.BROKER:
        if name:
            check_broker(name, context)
        in_force = {entry.name: entry.value for entry in broker_entries(broker.config_layers)}

        def change(current: Mapping[str, str]) -> dict[str, str]:
            changed = {key: value for key, value in wanted.items() if not _is_echo(key, value, in_force)}
            check_dynamic(current, changed, broker.static_config, for_all=not name)
            return changed

        await broker.controller.change_broker_config(
            name or DEFAULT_ENTITY, change, validate_only=validate_only
        )
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _wanted(resource: AlterConfigsResource) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for config in resource.configs:
        if config.name in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name} is named twice")
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
        wanted[config.name] = config.value
    return wanted


def _is_echo(name: str, value: str, in_force: Mapping[str, str | None]) -> bool:
    option = BROKER_OPTIONS.get(name)
    return option is not None and option.scope is Scope.READ_ONLY and in_force.get(name) == value
