"""DeleteAcls (key 31): each filter has its own result, with the ACLs that it selected and that were deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.controller.acl_changes import Outcomes
from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from felice.security.acl import Acl, Operation, ResourcePattern
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced
from felice.server.requests.acl_requests import check_authorizer, filter_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

Selected = dict[ResourcePattern, tuple[Acl, ...]]

guard = request_needs(API.DELETE_ACLS, cluster_permission(Operation.ALTER))


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Selects with every filter before anything is deleted: an ACL that two filters select is in both results."""
    selections: list[Selected | ApiError] = []
    async for wanted in paced(request.filters, context.services.env.clock):
        try:
            check_authorizer(context)
            selections.append(_selected(wanted, context))
        except ApiError as error:
            selections.append(error)
    rules: dict[ResourcePattern, dict[Acl, None]] = {}
    for selection in selections:
        if isinstance(selection, dict):
            for resource, acls in selection.items():
                rules.setdefault(resource, {}).update(dict.fromkeys(acls))
    outcomes = await context.services.changes.acls.delete(rules)
    return DeleteAclsResponse(filter_results=[_result(selection, outcomes) for selection in selections])


def _selected(wanted: DeleteAclsFilter, context: RequestContext) -> Selected:
    return context.services.changes.acls.selected(
        filter_of(
            wanted,
            kind=wanted.resource_type_filter,
            name=wanted.resource_name_filter,
            pattern=wanted.pattern_type_filter,
        )
    )


def _result(selection: Selected | ApiError, outcomes: Outcomes) -> DeleteAclsFilterResult:
    if isinstance(selection, ApiError):
        return DeleteAclsFilterResult(error_code=selection.code, error_message=selection.message)
    rows = [
        _matching(resource, acl, outcomes[resource]) for resource, acls in selection.items() for acl in acls
    ]
    return DeleteAclsFilterResult(error_message=None, matching_acls=rows)


def _matching(resource: ResourcePattern, acl: Acl, fault: ApiError | None) -> DeleteAclsMatchingAcl:
    row = DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=resource.kind,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    if fault is not None:
        row.error_code, row.error_message = fault.code, fault.message
    return row
