"""DeleteAcls (key 31): deletes the access rules that match a filter."""

from __future__ import annotations

from felice.protocol.messages.describe_acls import LITERAL
from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct


@struct
class DeleteAclsFilter:
    """None matches any name, principal or host."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@request(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """The filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@struct
class DeleteAclsMatchingAcl:
    """A rule that matched, and whether it was deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DeleteAclsFilterResult:
    """The result for one filter."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@response(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """Results, in the order of the filters."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
