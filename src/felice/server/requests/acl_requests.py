"""Reads the ACLs and filters of requests, and refuses those that Kafka refuses."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from felice.config import shortened
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.create_acls import AclCreation
from felice.protocol.messages.describe_acls import DescribeAclsRequest
from felice.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    parse_network,
)

if TYPE_CHECKING:
    from felice.server.context import RequestContext

E = TypeVar("E", bound=IntEnum)


class _Filter(Protocol):
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def check_authorizer(context: RequestContext, message: str = "No Authorizer is configured.") -> None:
    """Raises `ApiError` if the broker has no authorizer. The messages are Kafka's."""
    if not context.services.security.access.is_enabled:
        raise ApiError(ErrorCode.SECURITY_DISABLED, message)


def filter_of(row: _Filter, *, kind: int, name: str | None, pattern: int) -> AclFilter:
    """Reads a filter. Raises `ApiError` for an unknown enumeration value."""
    return AclFilter(
        _known(ResourceType, kind),
        name,
        _known(PatternType, pattern),
        row.principal_filter,
        row.host_filter,
        _known(Operation, row.operation),
        _known(Permission, row.permission_type),
    )


def selects_nothing(row: DescribeAclsRequest) -> bool:
    """Whether a filter has a value that no ACL has; a later Kafka may have it. DescribeAcls does not refuse it."""
    values = (
        (ResourceType, row.resource_type_filter),
        (PatternType, row.pattern_type_filter),
        (Operation, row.operation),
        (Permission, row.permission_type),
    )
    return 0 not in [value for _, value in values] and any(value not in set(kind) for kind, value in values)


def binding_of(row: AclCreation) -> AclBinding:
    """Reads an ACL to create. Raises `ApiError` if it is invalid."""
    kind, pattern = _single(ResourceType, row.resource_type), _pattern(row.resource_pattern_type)
    name = row.resource_name
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    if "/" in name or "\0" in name or name in (".", ".."):
        raise _invalid(f"the metadata store cannot hold the resource name {shortened(name)}")
    if ":" not in row.principal:
        raise _invalid(
            f"Could not parse principal from `{shortened(row.principal)}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    _check_host(row.host)
    acl = Acl(
        row.principal,
        row.host,
        _single(Operation, row.operation),
        _single(Permission, row.permission_type),
    )
    return AclBinding(ResourcePattern(kind, name, pattern), acl)


def _check_host(host: str) -> None:
    if "/" not in host:
        return
    try:
        parse_network(host)
    except ValueError as error:
        raise _invalid(f"the host {shortened(host)} is not an IP network: {error}") from None


def _pattern(value: int) -> PatternType:
    found = _single(PatternType, value)
    if found is PatternType.MATCH:
        raise _invalid("an ACL cannot have the pattern type MATCH")
    return found


def _single(kind: type[E], value: int) -> E:
    found = _known(kind, value)
    if found.name == "ANY":
        raise _invalid(f"an ACL cannot have ANY as its {kind.__name__}")
    return found


def _known(kind: type[E], value: int) -> E:
    try:
        found = kind(value)
    except ValueError:
        found = kind(0)
    if found.name == "UNKNOWN":
        raise _invalid(f"{value} is no {kind.__name__}")
    return found


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
