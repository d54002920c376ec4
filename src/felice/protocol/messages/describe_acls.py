"""DescribeAcls (key 29): the access rules that match a filter."""

from __future__ import annotations

from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct

LITERAL = 3
"""The pattern type of a name that stands for itself."""


@request(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """A filter; None matches any name, principal or host."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@struct
class AclDescription:
    """One rule for a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource:
    """A resource and its rules."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


@response(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The rules that match, by resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
