"""IncrementalAlterConfigs (key 44): sets, deletes, appends to or subtracts from single configs (KIP-339)."""

from __future__ import annotations

from enum import IntEnum

from felice.protocol.messages.alter_configs import (
    AlterConfigsResourceResponse as AlterConfigsResourceResponse,
)
from felice.protocol.schema import array, boolean, int8, int32, request, response, string, struct


class ConfigOperation(IntEnum):
    """Append and subtract are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@struct
class AlterableConfig:
    """One change; DELETE needs no value."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsResource:
    """Changes to one resource; the rest of its configs stay."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@request(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """With `validate_only` the broker checks the changes and makes none."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@response(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """Results, by resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
