"""Decides whether a principal may do an operation on a resource. Pure.

Keeps true: Kafka's precedence. A super user may do everything; else a rule that denies wins over every rule that
            allows; a resource without any rule is open to all only with `allow.everyone.if.no.acl.found`.
            Allow of READ, WRITE, DELETE or ALTER also allows DESCRIBE, and ALTER_CONFIGS also DESCRIBE_CONFIGS. A
            rule that denies implies nothing.
            A decision that is kept equals the decision that would be made now: a change of rules drops them all.
How:        rules are indexed by resource, below that by principal. The rules of a name are those of the name itself,
            of `*`, and of each of its prefixes whose length is that of some rule: the cost depends on the number of
            different lengths, not on the number of rules. Only `decide_any` visits every rule of its resource type.
            Decisions are kept for each principal and host, except those about very long names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from felice.dataclass import dataclass
from felice.security.acl import (
    ANY_NAME,
    ANY_PRINCIPAL,
    SUPPORTED_OPERATIONS,
    Acl,
    AclsByResource,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    host_matches,
)

MAX_KEPT_DECISIONS = 100_000
"""All kept decisions are dropped at this number: a client may ask about any number of names."""
MAX_KEPT_NAME_LENGTH = 249
"""Decisions about names with more characters are not kept, because a client may send names of 32 KiB. No topic has a
longer name.
"""

_IMPLIES_DESCRIBE = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_IMPLIES_DESCRIBE_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the operation is allowed, and the rule that decided it, as the audit log names it."""

    is_allowed: bool
    reason: str


_SUPER_USER = Decision(True, "SuperUser")
_NO_ACLS_ALLOWED = Decision(True, "NoAclFoundAllow")
_DEFAULT_DENY = Decision(False, "DefaultDeny")


class _ResourceRules:
    """The rules of one resource pattern, by principal."""

    __slots__ = ("by_principal",)

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.by_principal: dict[str, list[Acl]] = {}
        for acl in acls:
            self.by_principal.setdefault(acl.principal, []).append(acl)

    def of(self, principal: str, host: str) -> Iterator[Acl]:
        """The rules for a principal that connects from a host."""
        for known in (principal, ANY_PRINCIPAL) if principal != ANY_PRINCIPAL else (principal,):
            for acl in self.by_principal.get(known, ()):
                if host_matches(acl.host, host):
                    yield acl


@dataclass(slots=True)
class _TypeRules:
    """The rules of one type of resource."""

    literal: dict[str, _ResourceRules] = field(default_factory=dict)
    prefixed: dict[str, _ResourceRules] = field(default_factory=dict)
    prefix_lengths: Counter[int] = field(default_factory=Counter)
    """How many prefixes have each length."""

    def put(self, resource: ResourcePattern, acls: tuple[Acl, ...] | None) -> None:
        """Replaces the rules of one pattern; None removes the pattern."""
        is_prefixed = resource.pattern is PatternType.PREFIXED
        rules = self.prefixed if is_prefixed else self.literal
        was_known = rules.pop(resource.name, None) is not None
        if acls is not None:
            rules[resource.name] = _ResourceRules(acls)
        if is_prefixed:
            self._count(len(resource.name), (acls is not None) - was_known)

    def _count(self, length: int, change: int) -> None:
        self.prefix_lengths[length] += change
        if not self.prefix_lengths[length]:
            del self.prefix_lengths[length]

    def about(self, name: str) -> Iterator[tuple[str, PatternType, _ResourceRules]]:
        """Every pattern that covers this name, with its rules."""
        for literal in (name, ANY_NAME) if name != ANY_NAME else (name,):
            if (rules := self.literal.get(literal)) is not None:
                yield literal, PatternType.LITERAL, rules
        for length in self.prefix_lengths:
            if length <= len(name) and (rules := self.prefixed.get(name[:length])) is not None:
                yield name[:length], PatternType.PREFIXED, rules


_Question = tuple[Operation, ResourceType, str | None]
"""An operation on a resource by its name, or on any resource of the type (None)."""


class Authorizer:
    """The rules of a cluster, and the decisions that follow from them."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._default = _NO_ACLS_ALLOWED if allow_if_no_acl else _DEFAULT_DENY
        self._acls: AclsByResource = {}
        self._types: dict[ResourceType, _TypeRules] = {kind: _TypeRules() for kind in SUPPORTED_OPERATIONS}
        self._kept: dict[tuple[str, str], dict[_Question, Decision]] = {}
        self._kept_count = 0

    def follow(self, acls: AclsByResource) -> None:
        """Replaces the rules. Only patterns whose rules changed are indexed again."""
        if acls is self._acls:
            return
        old, self._acls = self._acls, acls
        for resource, rules in acls.items():
            if old.get(resource) is not rules:
                self._types[resource.kind].put(resource, rules)
        for resource in old.keys() - acls.keys():
            self._types[resource.kind].put(resource, None)
        self._forget_decisions()

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        """Decides about one resource."""
        return self._answer(principal, host, (operation, kind, name))

    def decide_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> Decision:
        """Decides whether the operation is allowed on at least one resource of a type, under any name."""
        return self._answer(principal, host, (operation, kind, None))

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """The bit field of the allowed operations of a resource."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[kind]
            if self.decide(principal, host, operation, kind, name).is_allowed
        )

    def _answer(self, principal: str, host: str, question: _Question) -> Decision:
        if principal in self._super_users:
            return _SUPER_USER
        # `follow` may change the rules while a thread decides: a decision by the old rules goes to the old cache.
        decisions = self._kept
        kept = decisions.get((principal, host))
        decision = kept.get(question) if kept is not None else None
        if decision is None:
            operation, kind, name = question
            if name is None:
                decision = self._decide_any(principal, host, operation, kind)
            else:
                decision = self._decide(principal, host, operation, kind, name)
            if name is None or len(name) <= MAX_KEPT_NAME_LENGTH:
                if self._kept_count >= MAX_KEPT_DECISIONS:
                    self._forget_decisions()
                else:
                    decisions.setdefault((principal, host), {})[question] = decision
                    self._kept_count += 1
        return decision

    def _forget_decisions(self) -> None:
        self._kept = {}
        self._kept_count = 0

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        allowing = _allowing(operation)
        allowed: Decision | None = None
        has_rules = False
        for covering, pattern, rules in self._types[kind].about(name):
            has_rules = True
            for acl in rules.of(principal, host):
                if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL):
                    return _by_rule(False, acl, kind, covering, pattern)
                if allowed is None and acl.permission is Permission.ALLOW and acl.operation in allowing:
                    allowed = _by_rule(True, acl, kind, covering, pattern)
        if allowed is not None:
            return allowed
        return _DEFAULT_DENY if has_rules else self._default

    def _decide_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> Decision:
        """As in Kafka, only rules for the operation itself or for ALL count."""
        rules = self._types[kind]
        denied = _Names(rules, Permission.DENY, principal, host, operation)
        if ANY_NAME in denied.literal:
            return _DEFAULT_DENY
        if self._default.is_allowed and ANY_NAME not in rules.literal:
            return self._default
        allowed = _Names(rules, Permission.ALLOW, principal, host, operation)
        is_allowed = (
            ANY_NAME in allowed.literal
            or any(name not in denied.literal and not denied.has_prefix_of(name) for name in allowed.literal)
            or any(not denied.has_prefix_of(prefix) for prefix in allowed.prefixed)
        )
        return Decision(True, f"some {kind.text}") if is_allowed else _DEFAULT_DENY


class _Names:
    """The names and prefixes for which a principal has rules of one permission and operation."""

    def __init__(
        self, rules: _TypeRules, permission: Permission, principal: str, host: str, operation: Operation
    ) -> None:
        def is_meant(known: _ResourceRules) -> bool:
            return any(
                acl.permission is permission and acl.operation in (operation, Operation.ALL)
                for acl in known.of(principal, host)
            )

        def names(known: Mapping[str, _ResourceRules]) -> frozenset[str]:
            return frozenset(name for name, found in known.items() if is_meant(found))

        self.literal = names(rules.literal)
        self.prefixed = names(rules.prefixed)

    def has_prefix_of(self, name: str) -> bool:
        return any(name[:end] in self.prefixed for end in range(1, len(name) + 1))


def _allowing(operation: Operation) -> tuple[Operation, ...]:
    """The operations whose permission allows this one."""
    if operation is Operation.DESCRIBE:
        return (*_IMPLIES_DESCRIBE, Operation.ALL)
    if operation is Operation.DESCRIBE_CONFIGS:
        return (*_IMPLIES_DESCRIBE_CONFIGS, Operation.ALL)
    return operation, Operation.ALL


def _by_rule(is_allowed: bool, acl: Acl, kind: ResourceType, name: str, pattern: PatternType) -> Decision:
    return Decision(is_allowed, f"{acl} on {ResourcePattern(kind, name, pattern)}")
