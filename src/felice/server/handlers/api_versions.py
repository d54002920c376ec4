"""ApiVersions (key 18): the APIs and versions that this broker offers.

The broker answers it before any other request of a connection, and even in versions that it does not know (KIP-511):
then in version 0, with error 35 and only the row of ApiVersions. APIs without a handler are not offered. The finalized
features of the cluster tell clients which version of transactions to use.

The APIs of client telemetry are offered only by a broker that serves metrics, because nothing could read the metrics
that clients push to another one. Like Apache Kafka without a plugin for them, it answers these APIs all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from felice.controller import features
from felice.protocol.api import API, API_VERSIONS_KEY, Api
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from felice.server.security.access_control import open_to_all

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_BEARS_MINIMUM_0 = 4
_TELEMETRY = (API.GET_TELEMETRY_SUBSCRIPTIONS.key, API.PUSH_TELEMETRY.key)
# Log lines and metrics name the software of every connection, and a client may send 64 KiB.
_MAX_SHOWN_SOFTWARE = 256
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

guard = open_to_all


async def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """INVALID_REQUEST if the client's software name or version has characters that Kafka does not allow (KIP-511)."""
    name, version = request.client_software_name, request.client_software_version
    if context.version >= 3 and not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.session.client_software = f"{name} {version}".strip()[:_MAX_SHOWN_SOFTWARE]
    image = context.services.image
    left_out = () if context.services.config.felice_metrics_listener else _TELEMETRY
    return ApiVersionsResponse(
        api_keys=[row for row in _offered(context.services.apis) if row.api_key not in left_out],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in features.SUPPORTED.items()
            if lowest > 0 or context.version >= _BEARS_MINIMUM_0
        ],
        finalized_features_epoch=image.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
        ],
    )


def unsupported_version(apis: Mapping[int, Api]) -> ApiVersionsResponse:
    """The response to an ApiVersions request of an unknown version: error 35 and the row of ApiVersions."""
    rows = [row for row in _offered(apis) if row.api_key == API_VERSIONS_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)


def _offered(apis: Mapping[int, Api]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.advertised.min, max_version=api.advertised.max)
        for _, api in sorted(apis.items())
    ]
