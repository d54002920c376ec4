"""CreateAcls (key 30): new access rules."""

from __future__ import annotations

from felice.protocol.messages.describe_acls import LITERAL
from felice.protocol.schema import array, int8, int16, int32, request, response, string, struct


@struct
class AclCreation:
    """One rule for one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@request(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """The rules."""

    creations: list[AclCreation] = array(AclCreation)


@struct
class AclCreationResult:
    """The result for one rule."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@response(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """Results, in the order of the rules."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
