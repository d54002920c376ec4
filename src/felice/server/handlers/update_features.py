"""UpdateFeatures (key 57): finalizes new levels of features: all requested ones or none.

As in Kafka 4, the response has the first error. Versions 0 and 1 list the features if there is no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.features import FeatureChange, UpgradeType
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_UPGRADE_TYPE_SINCE = 1


async def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Finalizes the levels in the metadata store; with `validate_only` it only checks them."""
    try:
        changes = [_change(update, context.version) for update in request.feature_updates]
        _check_distinct(changes)
        await context.services.cluster_admin.update_features(changes, validate_only=request.validate_only)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=change.feature) for change in changes]
    )


def _change(update: FeatureUpdateKey, version: int) -> FeatureChange:
    upgrade_type = update.upgrade_type
    if version < _UPGRADE_TYPE_SINCE:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return FeatureChange(update.feature, update.max_version_level, upgrade_type)


def _check_distinct(changes: list[FeatureChange]) -> None:
    if len({change.feature for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a feature is named twice")
