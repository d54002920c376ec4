"""DescribeAcls (key 29): there is no authorizer, so there are no ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """SECURITY_DISABLED, as from a Kafka broker without an authorizer."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
