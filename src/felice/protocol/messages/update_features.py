"""UpdateFeatures (key 57): raise or lower the levels that the cluster has settled on.

Version 0 only allows or forbids to lower; version 1 says which kind of change is meant, and can merely ask. From
version 2 one error stands for all features.
"""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class FeatureUpdateKey:
    """One feature. `upgrade_type` is 1 to raise, 2 to lower where nothing is lost, 3 to lower all the same."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(versions="0")
    upgrade_type: int = int8(versions="1+", default=1)


@request(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """With `validate_only` nothing changes."""

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(versions="1+")


@struct
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """An error of the whole, and until version 1 one of each feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, versions="0-1", ignorable=True)
