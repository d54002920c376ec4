"""DescribeAcls (key 29): the ACLs that a filter selects, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from felice.security.acl import Acl, Operation, ResourcePattern
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.requests.acl_requests import check_authorizer, filter_of, selects_nothing
from felice.server.requests.large_answers import each_alone

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.DESCRIBE_ACLS, cluster_permission(Operation.DESCRIBE))


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Returns the selected ACLs in the order of their resources."""
    try:
        check_authorizer(context, "No Authorizer is configured on the broker")
        if selects_nothing(request):
            return DescribeAclsResponse(error_message=None)
        selected = context.services.changes.acls.selected(
            filter_of(
                request,
                kind=request.resource_type_filter,
                name=request.resource_name_filter,
                pattern=request.pattern_type_filter,
            )
        )
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    rows = await each_alone(
        sorted(selected, key=_sort_key),
        lambda resource: _described(resource, selected[resource]),
        context,
    )
    return DescribeAclsResponse(resources=rows)


def _described(resource: ResourcePattern, acls: tuple[Acl, ...]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        acls=[
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ],
    )


def _sort_key(resource: ResourcePattern) -> tuple[int, int, str]:
    return resource.kind, resource.pattern, resource.name
