"""ListGroups (key 16): the groups this broker coordinates, by state from version 4, by type from version 5."""

from __future__ import annotations

from felice.protocol.schema import array, int16, int32, request, response, string, struct


@request(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Filters of groups; an empty filter selects all."""

    states_filter: list[str] = array(string, versions="4+")
    types_filter: list[str] = array(string, versions="5+")


@struct
class ListedGroup:
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(versions="4+", ignorable=True)
    group_type: str = string(versions="5+", ignorable=True)


@response(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The selected groups."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
