"""AlterConfigs (key 33): replaces all configs of a resource. IncrementalAlterConfigs changes single ones."""

from __future__ import annotations

from felice.protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct


@struct
class AlterableConfig:
    """One config."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsResource:
    """A resource. Its configs that are not in `configs` get their defaults again."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@request(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """With `validate_only` the broker checks the changes and makes none."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@response(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """Results, by resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
