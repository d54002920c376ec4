"""The indexed authorizer decides as the naive reference below does, which reads like the rules of the documentation."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.security.acl import (
    SUPPORTED_OPERATIONS,
    Acl,
    AclsByResource,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from felice.security.authorizer import Authorizer

PRINCIPALS = ("User:a", "User:b", "Group:a")
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
NAMES = ("a", "ab", "abc", "b", "*", "hardcode")


def reference(
    acls: AclsByResource,
    super_users: frozenset[str],
    allow_if_no_acl: bool,
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> bool:
    """Kafka's rules, one after the other, over all ACLs."""
    if principal in super_users:
        return True
    covering = [
        (resource, acl)
        for resource, rules in acls.items()
        for acl in rules
        if resource.kind is kind
        and (
            name.startswith(resource.name)
            if resource.pattern is PatternType.PREFIXED
            else resource.name in ("*", name)
        )
    ]
    mine = [acl for _, acl in covering if acl.principal in ("User:*", principal) and acl.host in ("*", host)]
    implied_by = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(operation, set())
    if any(acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
        return False
    allowing = {operation, Operation.ALL} | implied_by
    if any(acl.permission is Permission.ALLOW and acl.operation in allowing for acl in mine):
        return True
    return allow_if_no_acl and not covering


KINDS = st.sampled_from((ResourceType.TOPIC, ResourceType.GROUP))
OPERATIONS = st.sampled_from(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.ALTER_CONFIGS,
        Operation.DESCRIBE_CONFIGS,
    )
)
RULES = st.builds(
    Acl,
    st.sampled_from((*PRINCIPALS, "User:*")),
    st.sampled_from((*HOSTS, "*")),
    st.one_of(OPERATIONS, st.just(Operation.ALL)),
    st.sampled_from((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
)
RESOURCES = st.builds(
    ResourcePattern,
    KINDS,
    st.sampled_from(NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
)
ACLS = st.dictionaries(RESOURCES, st.lists(RULES, min_size=1, max_size=4).map(tuple), max_size=6)
QUESTIONS = st.tuples(
    st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), OPERATIONS, KINDS, st.sampled_from(NAMES)
)


@given(
    st.lists(ACLS, min_size=1, max_size=3),
    st.sets(st.sampled_from(PRINCIPALS), max_size=1),
    st.booleans(),
    st.lists(QUESTIONS, min_size=1, max_size=20),
)
@settings(max_examples=500)
def test_the_index_decides_like_the_reference_after_every_change(
    steps: list[AclsByResource],
    super_users: set[str],
    allow: bool,
    questions: list[tuple[str, str, Operation, ResourceType, str]],
) -> None:
    authorizer = Authorizer(super_users, allow_if_no_acl=allow)
    for acls in steps:
        authorizer.follow(acls)
        for question in questions:
            expected = reference(acls, frozenset(super_users), allow, *question)
            # The second answer is the kept one.
            assert authorizer.decide(*question).is_allowed is expected
            assert authorizer.decide(*question).is_allowed is expected


@given(ACLS, st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), OPERATIONS, KINDS)
@settings(max_examples=500)
def test_any_resource_is_allowed_where_some_name_is(
    acls: AclsByResource, principal: str, host: str, operation: Operation, kind: ResourceType
) -> None:
    """Names that occur in no rule are tried too. Rules that allow by implication do not count."""
    authorizer = Authorizer()
    authorizer.follow(acls)
    own = {
        resource: tuple(
            acl
            for acl in rules
            if acl.permission is Permission.DENY or acl.operation in (operation, Operation.ALL)
        )
        for resource, rules in acls.items()
    }
    names = {*NAMES, *(name + "~" for name in NAMES), "~"} - {"*"}
    some = any(reference(own, frozenset(), False, principal, host, operation, kind, name) for name in names)
    assert authorizer.decide_any(principal, host, operation, kind).is_allowed is some


@given(ACLS, st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), KINDS, st.sampled_from(NAMES))
def test_the_bit_field_has_a_bit_for_each_allowed_operation(
    acls: AclsByResource, principal: str, host: str, kind: ResourceType, name: str
) -> None:
    authorizer = Authorizer()
    authorizer.follow(acls)
    bits = authorizer.operations(principal, host, kind, name)
    for operation in SUPPORTED_OPERATIONS[kind]:
        is_set = bool(bits >> operation & 1)
        assert is_set is reference(acls, frozenset(), False, principal, host, operation, kind, name)
