"""IncrementalAlterConfigs (key 44): sets, deletes, appends to or subtracts from single configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from felice.config import Option
from felice.controller.config_changes import ConfigChange, apply_changes
from felice.protocol.api import API
from felice.protocol.messages.describe_configs import ResourceType
from felice.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from felice.security.acl import Operation
from felice.server.access.guards import config_permission, items_need
from felice.server.configs import loggers
from felice.server.configs.entries import ConfigEntry
from felice.server.requests.config_resources import change_each, change_resource, check_logger_broker
from felice.server.requests.named_resources import Edit

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(API.INCREMENTAL_ALTER_CONFIGS, config_permission(Operation.ALTER_CONFIGS))


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Changes one resource after the other; the response has a result, with its own error, for each."""
    return IncrementalAlterConfigsResponse(responses=await change_each(request, _alter, context))


async def _alter(resource: AlterConfigsResource, validate_only: bool, context: RequestContext) -> None:
    changes = [
        ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
    ]

    def edit_of(entries: Callable[[], Sequence[ConfigEntry]], options: Mapping[str, Option]) -> Edit:
        effective = {entry.name: entry.value for entry in entries()}
        return lambda current: apply_changes(current, effective, changes, options)

    if resource.resource_type == ResourceType.BROKER_LOGGER:
        check_logger_broker(resource.resource_name, context)
        loggers.change_levels(changes, validate_only=validate_only)
        context.services.flow.request_log.follow(context.services.config)
    else:
        await change_resource(resource, edit_of, validate_only, context)
