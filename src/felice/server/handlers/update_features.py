"""UpdateFeatures (key 57): finalizes new levels of features: all requested ones or none.

As in Kafka 4, the response has the first error. Versions 0 and 1 list the features if there is no error. Kafka ignores
`allow_downgrade` of version 0, so only version 1 and later can lower a level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.features import FeatureChange
from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.UPDATE_FEATURES, cluster_permission(Operation.ALTER))


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Finalizes the levels in the metadata store; with `validate_only` it only checks them."""
    try:
        # A request of version 0 has no upgrade type: its default is UPGRADE.
        changes = [
            FeatureChange(update.feature, update.max_version_level, update.upgrade_type)
            for update in request.feature_updates
        ]
        _check_distinct(changes)
        await context.services.changes.cluster.update_features(changes, validate_only=request.validate_only)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=change.feature) for change in changes]
    )


def _check_distinct(changes: list[FeatureChange]) -> None:
    if len({change.feature for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a feature is named twice")
