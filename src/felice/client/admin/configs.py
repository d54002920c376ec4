"""Configs of topics, brokers and groups: describe, replace, or change single ones.

Keeps true:  Requests about a broker's own configs go to that broker, because only it knows them. All other requests go
             to any broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from felice.client.admin.enumerations import (
    WIRE_RESOURCE_TYPES,
    AlterConfigOpType,
    ConfigSource,
    ResourceType,
)
from felice.client.admin.model import ConfigEntry, ConfigResource
from felice.client.admin.results import Results, from_each, no_broker, outcome
from felice.client.error import KafkaError, failure
from felice.client.net.cluster import Cluster
from felice.client.net.wire import ByVersion
from felice.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from felice.protocol.messages.describe_configs import (
    ResourceType as WireResourceType,
)
from felice.protocol.messages.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from felice.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from felice.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from felice.protocol.messages.list_config_resources import ListConfigResourcesRequest

R = TypeVar("R")


async def list_config_resources(cluster: Cluster, restype: ResourceType) -> list[str]:
    """Return the names of the resources of a type that have configs."""
    return await names_of_type(cluster, _wire_type(restype, str(restype)))


async def names_of_type(cluster: Cluster, wire_type: int) -> list[str]:
    """Return the names of the resources of a protocol type. Version 0 lists only client metrics."""

    def build(version: int) -> ListConfigResourcesRequest:
        if version == 0 and wire_type != WireResourceType.CLIENT_METRICS:
            raise failure(KafkaError._UNSUPPORTED_FEATURE, "the broker does not list these resources")
        return ListConfigResourcesRequest(resource_types=[wire_type] if version > 0 else [])

    response = await cluster.call_any(ByVersion(ListConfigResourcesRequest, build))
    if response.error_code:
        raise failure(response.error_code)
    return sorted(row.resource_name for row in response.config_resources)


def _wire_type(restype: ResourceType, named: str) -> int:
    """The type's number in the protocol. The error for a type without configs begins with `named`."""
    if restype not in WIRE_RESOURCE_TYPES:
        raise failure(KafkaError._INVALID_ARG, f"{named}: only topics, brokers and groups have configs")
    return WIRE_RESOURCE_TYPES[restype]


def _wire_type_of(resource: ConfigResource) -> int:
    return _wire_type(resource.restype, repr(resource))


async def _per_broker(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    ask: Callable[[int | None, list[ConfigResource]], Awaitable[R]],
    take: Callable[[R, dict[tuple[int, str], ConfigResource]], Results],
) -> Results:
    """Send each resource to the broker responsible for it, and collect the results by resource."""
    routed: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.restype is ResourceType.BROKER and resource.name.isdecimal()
        routed.setdefault(int(resource.name) if own else None, []).append(resource)
    if any(node_id is not None for node_id in routed):
        await cluster.refresh([])

    async def of_one(node_id: int | None, group: list[ConfigResource]) -> Results:
        if node_id is not None and node_id not in cluster.topology.brokers:
            raise no_broker(node_id)
        keys = {(_wire_type_of(resource), resource.name): resource for resource in group}
        return take(await ask(node_id, group), keys)

    return await from_each(routed, of_one)


async def _send(cluster: Cluster, node_id: int | None, request: object) -> Any:
    return await (cluster.call_any(request) if node_id is None else cluster.call(node_id, request))


async def describe_configs(cluster: Cluster, resources: Iterable[ConfigResource]) -> Results:
    """Return `{name: ConfigEntry}` or the error by resource."""

    def ask(node_id: int | None, group: list[ConfigResource]) -> Awaitable[DescribeConfigsResponse]:
        rows = [
            DescribeConfigsResource(
                resource_type=_wire_type_of(resource), resource_name=resource.name, configuration_keys=None
            )
            for resource in group
        ]
        request = DescribeConfigsRequest(resources=rows, include_synonyms=True)
        return _send(cluster, node_id, request)

    def take(response: DescribeConfigsResponse, keys: dict[tuple[int, str], ConfigResource]) -> Results:
        return {
            keys[row.resource_type, row.resource_name]: outcome(
                row.error_code,
                row.error_message,
                row.resource_name,
                {config.name: _entry(config) for config in row.configs},
            )
            for row in response.results
        }

    return await _per_broker(cluster, resources, ask, take)


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple(ConfigEntry(row.name, row.value, row.source, is_synonym=True) for row in config.synonyms)
    return ConfigEntry(
        config.name,
        config.value,
        config.config_source,
        config.read_only,
        config.config_source == ConfigSource.DEFAULT_CONFIG.value,
        config.is_sensitive,
        synonyms={synonym.name: synonym for synonym in synonyms},
        all_synonyms=synonyms,
    )


def _altered(
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
    keys: dict[tuple[int, str], ConfigResource],
) -> Results:
    return {
        keys[row.resource_type, row.resource_name]: outcome(
            row.error_code, row.error_message, row.resource_name
        )
        for row in response.responses
    }


async def alter_configs(
    cluster: Cluster, resources: Iterable[ConfigResource], validate_only: bool
) -> Results:
    """Replace the whole set of configs of each resource: a config that is not named returns to its default."""

    def ask(node_id: int | None, group: list[ConfigResource]) -> Awaitable[AlterConfigsResponse]:
        rows = [
            AlterConfigsResource(
                resource_type=_wire_type_of(resource),
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=name, value=value)
                    for name, value in resource.set_config_dict.items()
                ],
            )
            for resource in group
        ]
        return _send(cluster, node_id, AlterConfigsRequest(resources=rows, validate_only=validate_only))

    return await _per_broker(cluster, resources, ask, _altered)


async def incremental_alter_configs(
    cluster: Cluster, resources: Iterable[ConfigResource], validate_only: bool
) -> Results:
    """Change only the named configs, each by its own operation."""

    def ask(node_id: int | None, group: list[ConfigResource]) -> Awaitable[IncrementalAlterConfigsResponse]:
        rows = [
            IncrementalResource(
                resource_type=_wire_type_of(resource),
                resource_name=resource.name,
                configs=[_change(entry) for entry in resource.incremental_configs],
            )
            for resource in group
        ]
        request = IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)
        return _send(cluster, node_id, request)

    return await _per_broker(cluster, resources, ask, _altered)


def _change(entry: ConfigEntry) -> IncrementalConfig:
    operation = entry.incremental_operation or AlterConfigOpType.SET
    value = None if operation is AlterConfigOpType.DELETE else entry.value
    return IncrementalConfig(name=entry.name, config_operation=operation.value, value=value)
