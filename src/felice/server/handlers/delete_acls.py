"""DeleteAcls (key 31): there is no authorizer, so there are no ACLs to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """SECURITY_DISABLED for every filter."""
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
