"""AlterConfigs (key 33): replaces all configurations of a resource.

A client may send back the complete result of DescribeConfigs: options that cannot change are ignored if their value is
the one in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from felice.config import BROKER_OPTIONS, Option, Scope, shortened
from felice.config.without_effect import FIXED
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from felice.protocol.messages.describe_configs import ResourceType
from felice.security.acl import Operation
from felice.server.access.guards import config_permission, items_need
from felice.server.configs.entries import ConfigEntry
from felice.server.requests.config_resources import change_each, change_resource
from felice.server.requests.named_resources import Edit

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(API.ALTER_CONFIGS, config_permission(Operation.ALTER_CONFIGS))


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Changes one resource after the other; the response has a result, with its own error, for each."""
    return AlterConfigsResponse(responses=await change_each(request, _replace, context))


async def _replace(resource: AlterConfigsResource, validate_only: bool, context: RequestContext) -> None:
    wanted = _wanted(resource)

    def edit_of(entries: Callable[[], Sequence[ConfigEntry]], options: Mapping[str, Option]) -> Edit:
        if resource.resource_type != ResourceType.BROKER:
            return lambda _: wanted
        in_force = {entry.name: entry.value for entry in entries()}
        new = {key: value for key, value in wanted.items() if not _is_value_in_force(key, value, in_force)}
        return lambda _: new

    await change_resource(resource, edit_of, validate_only, context)


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
