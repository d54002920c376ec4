"""CreateAcls (key 30): each ACL has its own result. The response is sent when this broker obeys the ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from felice.security.acl import AclBinding, Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced
from felice.server.requests.acl_requests import binding_of, check_authorizer

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.CREATE_ACLS, cluster_permission(Operation.ALTER))


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Creates the valid ACLs."""
    wanted: list[AclBinding | ApiError] = []
    async for creation in paced(request.creations, context.services.env.clock):
        try:
            check_authorizer(context)
            wanted.append(binding_of(creation))
        except ApiError as error:
            wanted.append(error)
    outcomes = await context.services.changes.acls.create(
        binding for binding in wanted if isinstance(binding, AclBinding)
    )
    faults = [one if isinstance(one, ApiError) else outcomes[one.resource] for one in wanted]
    return CreateAclsResponse(results=[_row(fault) for fault in faults])


def _row(fault: ApiError | None) -> AclCreationResult:
    if fault is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=fault.code, error_message=fault.message)
