"""DeleteGroups (key 42): deletes groups that have no members, with their offsets."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, request, response, string, struct


@request(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Groups by id."""

    groups_names: list[str] = array(string)


@struct
class DeletableGroupResult:
    """The result for one group."""

    group_id: str = string()
    error_code: int = int16()


@response(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """Results, by group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
