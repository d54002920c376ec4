"""DescribeConfigs (key 32): the configs of topics, brokers and other resources, with the source of each value.

From version 3 the response has types and documentation.
"""

from __future__ import annotations

from enum import IntEnum

from felice.protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct


class ResourceType(IntEnum):
    """The kind of resource that has the configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@struct
class DescribeConfigsResource:
    """A resource. `configuration_keys` None requests all its configs."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


@request(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """The resources whose configs are requested."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(versions="1+")
    include_documentation: bool = boolean(versions="3+")


@struct
class DescribeConfigsSynonym:
    """One source of the value. The strongest comes first."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


@struct
class DescribeConfigsResourceResult:
    """One config; the value of a sensitive one is None."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(versions="1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, versions="1+", ignorable=True)
    config_type: int = int8(versions="3+", ignorable=True)
    documentation: str | None = string(versions="3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult:
    """The configs of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@response(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """Results, by resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
