"""DescribeClientQuotas (key 48): the quotas of the entities that match a filter."""

from __future__ import annotations

from enum import IntEnum

from felice.protocol.schema import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    struct,
)


class MatchType(IntEnum):
    """Which names of an entity type a component of the filter matches."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""


@struct
class ComponentData:
    """A part of the filter: an entity type, and its names."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@request(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """A filter; `strict` excludes entities of further types."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct
class EntityData:
    """A part of an entity; the default has no name."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class ValueData:
    """A quota."""

    key: str = string()
    value: float = float64()


@struct
class EntryData:
    """An entity and its quotas."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@response(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The entities that match; null with an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
