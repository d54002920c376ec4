"""AlterClientQuotas (key 49): sets and removes quotas of users, clients and addresses."""

from __future__ import annotations

from felice.protocol.messages.describe_client_quotas import EntityData
from felice.protocol.schema import array, boolean, float64, int16, int32, request, response, string, struct


@struct
class OpData:
    """A change of one quota."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class EntryData:
    """An entity, and the changes of its quotas."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@request(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Changes by entity; each entity succeeds or fails alone."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@struct
class AlteredEntry:
    """The result for one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


@response(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The results in the order of the request."""

    throttle_time_ms: int = int32()
    entries: list[AlteredEntry] = array(AlteredEntry)
