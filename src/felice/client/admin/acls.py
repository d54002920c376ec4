"""Access rules (ACLs): create, find and delete them.

Each function sends one request and returns a result or an error per item; `Admin` retries. A broker without an
authorizer responds with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import total_ordering
from typing import TYPE_CHECKING, ClassVar, TypeVar

from felice.client.admin.enumerations import (
    AclOperation,
    AclPermissionType,
    OrderedEnum,
    ResourcePatternType,
    ResourceType,
)
from felice.client.admin.results import Results, outcome
from felice.client.error import failure
from felice.client.net.cluster import Cluster
from felice.dataclass import dataclass
from felice.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest

E = TypeVar("E", bound=OrderedEnum)


@total_ordering
@dataclass(frozen=True, slots=True)
class AclBinding:
    """An access rule: it allows or denies a principal an operation on a resource from a host. No wildcards.

    The enumerations are also accepted as a name, in any case, or as a number.
    """

    restype: ResourceType
    name: str | None
    resource_pattern_type: ResourcePatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType

    if TYPE_CHECKING:

        def __init__(
            self,
            restype: ResourceType | str | int,
            name: str | None,
            resource_pattern_type: ResourcePatternType | str | int,
            principal: str | None,
            host: str | None,
            operation: AclOperation | str | int,
            permission_type: AclPermissionType | str | int,
        ) -> None: ...

    # A description may have UNKNOWN: what only a newer broker knows.
    _forbidden: ClassVar[tuple[str, ...]] = ("ANY", "MATCH")
    _texts_needed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in ("name", "principal", "host"):
            value = getattr(self, field)
            if value is None and self._texts_needed:
                raise ValueError(f"{field} must not be None")
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{field} must be a string")
        for field, kind in _ENUMERATIONS.items():
            value = getattr(self, field)
            if value is None:
                raise ValueError(f"{field} must not be None")
            chosen = kind.chosen(value)
            if chosen.name in self._forbidden:
                raise ValueError(f"{kind.__name__}.{chosen.name} cannot be used in {type(self).__name__}")
            object.__setattr__(self, field, chosen)

    @property
    def is_complete(self) -> bool:
        """False if a member is UNKNOWN: a newer broker has what this client cannot name."""
        return all(getattr(self, field).name != "UNKNOWN" for field in _ENUMERATIONS)

    @property
    def _fields(self) -> tuple[object, ...]:
        return (
            self.restype,
            self.name,
            self.resource_pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )

    def __eq__(self, other: object) -> bool:
        return self._fields == other._fields if isinstance(other, AclBinding) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._fields < other._fields if isinstance(other, AclBinding) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._fields))})"


_ENUMERATIONS: dict[str, type[OrderedEnum]] = {
    "restype": ResourceType,
    "resource_pattern_type": ResourcePatternType,
    "operation": AclOperation,
    "permission_type": AclPermissionType,
}


class AclBindingFilter(AclBinding):
    """Selects access rules: None and the ANY members match everything."""

    __slots__ = ()
    _forbidden: ClassVar[tuple[str, ...]] = ("UNKNOWN",)
    _texts_needed: ClassVar[bool] = False


async def create_acls(cluster: Cluster, rules: Iterable[AclBinding]) -> Results:
    """Create rules. Returns None or the error by rule."""
    wanted = list(rules)
    creations = [
        AclCreation(
            resource_type=rule.restype.value,
            resource_name=rule.name or "",
            resource_pattern_type=rule.resource_pattern_type.value,
            principal=rule.principal or "",
            host=rule.host or "",
            operation=rule.operation.value,
            permission_type=rule.permission_type.value,
        )
        for rule in wanted
    ]
    response = await cluster.call_controller(CreateAclsRequest(creations=creations))
    return {
        rule: outcome(row.error_code, row.error_message, str(rule.name))
        for rule, row in zip(wanted, response.results, strict=True)
    }


async def describe_acls(cluster: Cluster, wanted: AclBindingFilter) -> list[AclBinding]:
    """Return the rules that match the filter."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.restype.value,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.resource_pattern_type.value,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation.value,
        permission_type=wanted.permission_type.value,
    )
    response = await cluster.call_any(request)
    if response.error_code:
        raise failure(response.error_code, response.error_message)
    return [
        _rule(resource.resource_type, resource.resource_name, resource.pattern_type, row)
        for resource in response.resources
        for row in resource.acls
    ]


async def delete_acls(cluster: Cluster, filters: Iterable[AclBindingFilter]) -> Results:
    """Delete matching rules. Returns the deleted rules or the error by filter."""
    wanted = list(filters)
    rows = [
        DeleteAclsFilter(
            resource_type_filter=chosen.restype.value,
            resource_name_filter=chosen.name,
            pattern_type_filter=chosen.resource_pattern_type.value,
            principal_filter=chosen.principal,
            host_filter=chosen.host,
            operation=chosen.operation.value,
            permission_type=chosen.permission_type.value,
        )
        for chosen in wanted
    ]
    response = await cluster.call_controller(DeleteAclsRequest(filters=rows))
    return {
        chosen: outcome(
            row.error_code,
            row.error_message,
            str(chosen.name),
            [_rule(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in row.matching_acls],
        )
        for chosen, row in zip(wanted, response.filter_results, strict=True)
    }


def _rule(resource_type: int, name: str, pattern_type: int, row: AclDescription) -> AclBinding:
    return AclBinding(
        _known(ResourceType, resource_type),
        name,
        _known(ResourcePatternType, pattern_type),
        row.principal,
        row.host,
        _known(AclOperation, row.operation),
        _known(AclPermissionType, row.permission_type),
    )


def _known(kind: type[E], number: int) -> E:
    """The member with this number; UNKNOWN for a number that a newer broker has."""
    return next((member for member in kind if member.value == number), kind["UNKNOWN"])
