"""UpdateFeatures (key 57): raises or lowers the finalized feature levels of the cluster.

Version 0 only allows or forbids a downgrade. From version 1 a request has the kind of each change, and `validate_only`.
From version 2 the response has one error for all features.
"""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class FeatureUpdateKey:
    """One feature. `upgrade_type` is 1 for an upgrade, 2 for a downgrade without loss, 3 for any downgrade."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(versions="0")
    upgrade_type: int = int8(versions="1+", default=1)


@request(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """With `validate_only` the broker checks the changes and makes none."""

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(versions="1+")


@struct
class UpdatableFeatureResult:
    """The result for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """One error for the whole request and, up to version 1, one for each feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, versions="0-1", ignorable=True)
