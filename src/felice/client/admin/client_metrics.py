"""Client metrics resources (KIP-714): list, describe and change them."""

from __future__ import annotations

from collections.abc import Mapping

from felice.client.admin.configs import names_of_type
from felice.client.admin.retries import DEFAULT_TIMEOUT_S, RetryingCalls
from felice.client.arguments import takes_lists
from felice.client.error import failure
from felice.client.net.cluster import Cluster
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ResourceType,
)
from felice.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_SET, _DELETE = 0, 1
_CLIENT_METRICS = int(ResourceType.CLIENT_METRICS)


@takes_lists
class ClientMetricsCalls(RetryingCalls):
    """Client metrics resources, as coroutines."""

    async def list_client_metrics_resources(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[str]:
        """Return the names of the client metrics resources."""
        return await self._ask(timeout_s, names_of_type, _CLIENT_METRICS)

    async def describe_client_metrics(
        self, name: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, str | None]:
        """Return the configurations of a client metrics resource; of an unknown one the defaults."""
        return await self._ask(timeout_s, _describe, name)

    async def alter_client_metrics(
        self, name: str, changes: Mapping[str, str | None], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Set configurations of a client metrics resource; None resets one. A resource without any is deleted."""
        await self._ask(timeout_s, _alter, name, changes)


async def _describe(cluster: Cluster, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(
        resource_type=_CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    response = await cluster.call_any(DescribeConfigsRequest(resources=[resource]))
    (row,) = response.results
    if row.error_code:
        raise failure(row.error_code, row.error_message)
    return {entry.name: entry.value for entry in row.configs}


async def _alter(cluster: Cluster, name: str, changes: Mapping[str, str | None]) -> None:
    configs = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configs=configs)
    response = await cluster.call_any(IncrementalAlterConfigsRequest(resources=[resource]))
    (row,) = response.responses
    if row.error_code:
        raise failure(row.error_code, row.error_message)
