"""CreateAcls (key 30): there is no authorizer, so no ACL can be created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """SECURITY_DISABLED for every requested ACL."""
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=[refused] * len(request.creations))
