"""Access rules (ACLs) as values: operations, resources, patterns, and filters of rules.

Keeps true: the numbers are those of Kafka's protocol, the names those of Kafka's stored ACLs (`DescribeConfigs`).
            `matches` of a filter selects the rules that DescribeAcls and DeleteAcls select.
Leaves:     whether a request is allowed to `authorizer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from felice.dataclass import dataclass

ANY_NAME = "*"
ANY_HOST = "*"
ANY_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a cluster resource."""


class _Named(IntEnum):
    """An enumeration whose members have a name in Kafka's JSON."""

    @property
    def text(self) -> str:
        """The name in stored ACLs, such as `DescribeConfigs`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Operation(_Named):
    """What a client does with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(_Named):
    """The kind of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """How the name of a rule's resource is meant. ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Named):
    """Whether a rule allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that exist for each type of resource, without ALL."""


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that a rule is about: one name, every name (`*`), or every name with a prefix."""

    kind: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether the rule applies to the resource of this name. In a prefix, `*` is a plain character."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def __str__(self) -> str:
        return f"{self.kind.text}:{self.pattern.name}:{self.name}"


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule of a resource: a principal, from a host, may or may not do an operation."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return f"{self.permission.name} {self.principal} from {self.host} {self.operation.name}"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """A rule with the resources that it is about."""

    resource: ResourcePattern
    acl: Acl


AclsByResource = Mapping[ResourcePattern, tuple[Acl, ...]]
"""All rules of a cluster."""


def host_matches(rule_host: str, host: str) -> bool:
    """Whether a rule's host is the client's. A rule whose host contains `/` is for an IP network (not in Kafka)."""
    if rule_host in (ANY_HOST, host):
        return True
    return "/" in rule_host and _is_in_network(rule_host, host)


@lru_cache(maxsize=4096)
def _is_in_network(network: str, host: str) -> bool:
    try:
        return ip_address(host) in parse_network(network)
    except ValueError:
        return False


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Parses an IP network such as `10.1.0.0/16`. Raises `ValueError`."""
    return ip_network(text, strict=False)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects rules. None and ANY select everything."""

    kind: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def selected(self, acls: AclsByResource) -> dict[ResourcePattern, tuple[Acl, ...]]:
        """The selected rules, by resource."""
        found = {}
        for resource in self._resources(acls):
            rules = tuple(acl for acl in acls[resource] if self._selects_rule(acl))
            if rules:
                found[resource] = rules
        return found

    def _resources(self, acls: AclsByResource) -> Iterable[ResourcePattern]:
        names_one = self.name is not None and self.kind is not ResourceType.ANY
        if names_one and self.pattern in (PatternType.LITERAL, PatternType.PREFIXED):
            exact = ResourcePattern(self.kind, self.name or "", self.pattern)
            return (exact,) if exact in acls else ()
        return (resource for resource in acls if self._selects_resource(resource))

    def _selects_resource(self, resource: ResourcePattern) -> bool:
        if self.kind not in (ResourceType.ANY, resource.kind):
            return False
        if self.pattern is PatternType.MATCH:
            return self.name is None or resource.covers(self.name)
        if self.pattern not in (PatternType.ANY, resource.pattern):
            return False
        return self.name in (None, resource.name)

    def _selects_rule(self, acl: Acl) -> bool:
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )
