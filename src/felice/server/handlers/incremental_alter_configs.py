"""IncrementalAlterConfigs (key 44): sets, deletes, appends to or subtracts from single configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from felice.config import BROKER_OPTIONS, TOPIC_OPTIONS, Option
from felice.controller.config_changes import ConfigChange, apply_changes
from felice.metadata.layout import DEFAULT_ENTITY
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_configs import ResourceType
from felice.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from felice.server.config_entries import broker_entries, topic_entries
from felice.server.dynamic_config import check_dynamic
from felice.server.handlers.describe_configs import check_broker, check_topic

if TYPE_CHECKING:
    from felice.server.context import RequestContext


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        row = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await _alter(resource, request.validate_only, context)
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
        responses.append(row)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(resource: AlterConfigsResource, validate_only: bool, context: RequestContext) -> None:
    broker, name = context.broker, resource.resource_name
    changes = [
        ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
    ]

    def edited(
        current: Mapping[str, str], effective: Mapping[str, str | None], options: Mapping[str, Option]
    ) -> dict[str, str]:
        return apply_changes(current, effective, changes, options)

    if resource.resource_type == ResourceType.TOPIC:
        check_topic(name, context)
        entries = topic_entries(broker.image.topic_configs.get(name, {}), broker.config_layers)
        effective = {entry.name: entry.value for entry in entries}
        await broker.controller.change_topic_config(
            name, lambda current: edited(current, effective, TOPIC_OPTIONS), validate_only=validate_only
        )
    elif resource.resource_type == ResourceType.BROKER:
        if name:
            check_broker(name, context)
        effective = {entry.name: entry.value for entry in broker_entries(broker.config_layers)}

        def change(current: Mapping[str, str]) -> dict[str, str]:
            changed = edited(current, effective, BROKER_OPTIONS)
            check_dynamic(current, changed, broker.static_config, for_all=not name)
            return changed

        await broker.controller.change_broker_config(
            name or DEFAULT_ENTITY, change, validate_only=validate_only
        )
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
