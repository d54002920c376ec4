"""ListConfigResources (key 74): the names of the resources that have configs (KIP-1142).

Version 0 lists the subscriptions of client metrics and nothing else (KIP-1000).
"""

from __future__ import annotations

from felice.protocol.messages.describe_configs import ResourceType
from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct


@request(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """The requested types of resources; an empty list requests all."""

    resource_types: list[int] = array(int8, versions="1+")


@struct
class ConfigResource:
    """A resource that has configs."""

    resource_name: str = string()
    resource_type: int = int8(versions="1+", default=int(ResourceType.CLIENT_METRICS), ignorable=True)


@response(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
