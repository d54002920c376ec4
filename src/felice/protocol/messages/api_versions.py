"""ApiVersions (key 18): which APIs a broker offers, in which versions.

It is the first request on a connection. A broker answers an unknown version of it in version 0, with error 35 and the
row of ApiVersions, so that the client can ask again (KIP-511). The header of the response is always version 0.
"""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int16, int32, int64, request, response, string, struct


@request(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Clients of version 4 accept features whose minimum version is 0."""

    client_software_name: str = string(versions="3+", ignorable=True)
    client_software_version: str = string(versions="3+", ignorable=True)


@struct
class ApiVersion:
    """One API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    """A feature that the broker supports. Below version 4, features with minimum 0 must be left out."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct
class FinalizedFeatureKey:
    """A finalized feature level of the cluster."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@response(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """Features mean nothing unless `finalized_features_epoch` is 0 or more."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, versions="3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64(versions="3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, versions="3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean(versions="3+", tag=3, ignorable=True)
