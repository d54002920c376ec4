"""ListConfigResources (key 74): what has configs, by name (KIP-1142).

Version 0 lists the subscriptions of client metrics and nothing else (KIP-1000).
"""

from __future__ import annotations

from felice.protocol.messages.describe_configs import ResourceType
from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct


@request(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Of which types; none means all."""

    resource_types: list[int] = array(int8, versions="1+")


@struct
class ConfigResource:
    """Something that has configs."""

    resource_name: str = string()
    resource_type: int = int8(versions="1+", default=int(ResourceType.CLIENT_METRICS), ignorable=True)


@response(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """What there is."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
