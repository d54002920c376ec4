"""DescribeConfigs (key 32): the configurations of topics, brokers, groups, client metrics and loggers.

A null or empty list of names requests all configurations; unknown names are left out. A broker returns only its own
configuration. The empty broker id requests the dynamic values that were set for all brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ResourceType,
)
from felice.security.acl import Operation
from felice.server.access.guards import config_permission, items_need
from felice.server.configs import loggers
from felice.server.configs.entries import (
    ConfigEntry,
    broker_entries,
    dynamic_default_entries,
    logger_entries,
    topic_entries,
)
from felice.server.flow.pace import paced
from felice.server.requests.config_resources import (
    check_broker,
    check_logger_broker,
    check_topic,
    unsupported,
)
from felice.server.requests.named_resources import NAMED_RESOURCES

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = items_need(API.DESCRIBE_CONFIGS, config_permission(Operation.DESCRIBE_CONFIGS))


async def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Returns each requested resource once, because a broker has hundreds of configurations."""
    asked = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in request.resources
    }
    results = []
    async for resource in paced(asked.values(), context.services.env.clock):
        results.append(_result(resource, request, context))
    return DescribeConfigsResponse(results=results)


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        entries = _entries(resource, context)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [_row(entry, request) for entry in entries if not wanted or entry.name in wanted]
    return result


def _entries(resource: DescribeConfigsResource, context: RequestContext) -> list[ConfigEntry]:
    services, name = context.services, resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_topic(name, context)
        return topic_entries(services.image.topic_configs.get(name, {}), services.config_layers)
    if resource.resource_type == ResourceType.BROKER:
        if name == "":
            return dynamic_default_entries(services.config_layers)
        check_broker(name, context)
        return broker_entries(services.config_layers)
    if (named := NAMED_RESOURCES.get(resource.resource_type)) is not None:
        return named.described(name, context)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        check_logger_broker(name, context)
        return logger_entries(loggers.levels())
    raise unsupported(resource.resource_type)


def _row(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    row = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.option.kafkas_kind,
        documentation=entry.option.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        row.synonyms = [
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in entry.synonyms
        ]
    return row
