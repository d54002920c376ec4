"""The versions that brokers support: their APIs, their features, and the cluster's finalized feature levels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from felice.client.admin.model import ApiVersionRange, FeatureMetadata, FeatureUpdate, Node, UpgradeType
from felice.client.admin.topics import nodes_of
from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.net.cluster import Cluster
from felice.client.net.wire import ByVersion, api_versions_request
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersion
from felice.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


async def describe_features(cluster: Cluster) -> FeatureMetadata:
    """Return supported and finalized feature levels."""
    response = await cluster.call_any(api_versions_request())
    settled = response.finalized_features if response.finalized_features_epoch >= 0 else []
    return FeatureMetadata(
        supported={row.name: (row.min_version, row.max_version) for row in response.supported_features},
        finalized={row.name: row.max_version_level for row in settled},
        epoch=response.finalized_features_epoch,
    )


async def api_versions(cluster: Cluster) -> dict[Node, list[ApiVersionRange] | KafkaException]:
    """Return the APIs of each broker, or its error. Asks all at once, because a broker may take long to fail."""
    await cluster.refresh([])
    nodes = [node for _, node in sorted(nodes_of(cluster.topology.describe([])).items())]
    return dict(zip(nodes, await asyncio.gather(*(_offered(cluster, node) for node in nodes)), strict=True))


async def _offered(cluster: Cluster, node: Node) -> list[ApiVersionRange] | KafkaException:
    try:
        response = await cluster.call(node.id, api_versions_request())
    except KafkaException as error:
        return error
    if response.error_code:
        return failure(response.error_code, f"broker {node.id}")
    return [_range(row) for row in sorted(response.api_keys, key=lambda row: int(row.api_key))]


def _range(row: ApiVersion) -> ApiVersionRange:
    api = API.by_key.get(row.api_key)
    if api is None:
        return ApiVersionRange(row.api_key, None, row.min_version, row.max_version, None)
    usable = None
    if row.min_version <= api.accepted[-1] and row.max_version >= api.accepted[0]:
        usable = min(api.accepted[-1], row.max_version)
    return ApiVersionRange(row.api_key, api.name, row.min_version, row.max_version, usable)


async def update_features(
    cluster: Cluster, updates: Iterable[FeatureUpdate], validate_only: bool, timeout_ms: int
) -> None:
    """Change finalized levels: all of them; or raises the first error and changes none."""
    wanted = list(updates)

    def build(version: int) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(
            timeout_ms=timeout_ms,
            feature_updates=[_change(update, version) for update in wanted],
            validate_only=validate_only,
        )

    request = ByVersion(UpdateFeaturesRequest, build)
    response: UpdateFeaturesResponse = await cluster.call_controller(request)
    rows = [(response.error_code, response.error_message)]
    rows += [(row.error_code, row.error_message) for row in response.results]
    for code, message in rows:
        if code != ErrorCode.NONE:
            # The controller's message is passed on unchanged: it names the feature.
            error = error_of(code)
            raise KafkaException(KafkaError(code, message or error.str(), retriable=error.retriable()))


def _change(update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    change = FeatureUpdateKey(feature=update.feature, max_version_level=update.level)
    if version == 0:
        change.allow_downgrade = update.kind is not UpgradeType.UPGRADE
    else:
        change.upgrade_type = update.kind.value
    return change
