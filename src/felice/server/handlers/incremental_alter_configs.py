"""IncrementalAlterConfigs (key 44): sets, deletes, appends to or subtracts from single configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from felice.config import TOPIC_OPTIONS, Option
from felice.config.client_metrics import CLIENT_METRICS_OPTIONS
from felice.controller.config_changes import ConfigChange, apply_changes
from felice.protocol.api import API
from felice.protocol.messages.describe_configs import ResourceType
from felice.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from felice.security.acl import Operation
from felice.server.access.guards import config_permission, items_need
from felice.server.configs import loggers
from felice.server.configs.entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    named_option,
    topic_entries,
)
from felice.server.requests.config_resources import (
    Edit,
    change_broker,
    change_client_metrics,
    change_each,
    change_topic,
    check_logger_broker,
    unsupported,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(API.INCREMENTAL_ALTER_CONFIGS, config_permission(Operation.ALTER_CONFIGS))


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Changes one resource after the other; the response has a result, with its own error, for each."""

    async def change(resource: AlterConfigsResource) -> None:
        await _alter(resource, request.validate_only, context)

    rows = await change_each(request.resources, AlterConfigsResourceResponse, change, context)
    return IncrementalAlterConfigsResponse(responses=rows)


async def _alter(resource: AlterConfigsResource, validate_only: bool, context: RequestContext) -> None:
    name, layers = resource.resource_name, context.services.config_layers
    if resource.resource_type == ResourceType.TOPIC:
        entries = topic_entries(context.services.image.topic_configs.get(name, {}), layers)
        await change_topic(name, _edit(resource, entries, TOPIC_OPTIONS), validate_only, context)
    elif resource.resource_type == ResourceType.BROKER:
        named = [config.name for config in resource.configs]
        options = {key: named_option(key) for key in named}
        edit = _edit(resource, broker_entries(layers), options)
        await change_broker(name, edit, named, validate_only, context)
    elif resource.resource_type == ResourceType.CLIENT_METRICS:
        entries = client_metrics_entries(context.services.image.client_metrics.get(name, {}))
        edit = _edit(resource, entries, CLIENT_METRICS_OPTIONS)
        await change_client_metrics(name, edit, validate_only, context)
    elif resource.resource_type == ResourceType.BROKER_LOGGER:
        check_logger_broker(name, context)
        loggers.change_levels(_changes(resource), validate_only=validate_only)
        context.services.flow.request_log.follow(context.services.config)
    else:
        raise unsupported(resource.resource_type)


def _changes(resource: AlterConfigsResource) -> list[ConfigChange]:
    return [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs]


def _edit(
    resource: AlterConfigsResource, entries: Sequence[ConfigEntry], options: Mapping[str, Option]
) -> Edit:
    changes = _changes(resource)
    effective = {entry.name: entry.value for entry in entries}
    return lambda current: apply_changes(current, effective, changes, options)
