"""Precedence, implied operations, patterns, hosts and filters of access rules: Kafka's rules, one test each."""

from __future__ import annotations

import pytest

from felice.security import authorizer as module
from felice.security.acl import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from felice.security.authorizer import Authorizer

TOPIC, PREFIXED = ResourceType.TOPIC, PatternType.PREFIXED
HERE, THERE = "10.0.0.1", "10.0.0.2"


def topic(name: str, pattern: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, pattern)


def allow(operation: Operation, principal: str = "User:a", host: str = "*") -> Acl:
    return Acl(principal, host, operation, Permission.ALLOW)


def deny(operation: Operation, principal: str = "User:a", host: str = "*") -> Acl:
    return Acl(principal, host, operation, Permission.DENY)


def allows(
    acls: dict[ResourcePattern, tuple[Acl, ...]],
    operation: Operation,
    name: str = "t",
    *,
    principal: str = "User:a",
    host: str = HERE,
    **options: bool,
) -> bool:
    authorizer = Authorizer(["User:root"], **options)
    authorizer.follow(acls)
    return authorizer.decide(principal, host, operation, TOPIC, name).is_allowed


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_permission_to_use_or_change_a_topic_includes_describe(operation: Operation) -> None:
    assert allows({topic("t"): (allow(operation),)}, Operation.DESCRIBE)
    assert not allows({topic("t"): (allow(operation),)}, Operation.DESCRIBE_CONFIGS)


def test_alter_configs_includes_describe_configs_and_nothing_else() -> None:
    acls = {topic("t"): (allow(Operation.ALTER_CONFIGS),)}
    assert allows(acls, Operation.DESCRIBE_CONFIGS)
    assert not allows(acls, Operation.DESCRIBE)


def test_a_denial_wins_over_all_and_implies_nothing() -> None:
    acls = {topic("t"): (deny(Operation.READ), allow(Operation.ALL))}
    assert not allows(acls, Operation.READ)
    assert allows(acls, Operation.DESCRIBE)


def test_a_denial_of_every_topic_beats_the_permission_for_one() -> None:
    acls = {topic("*"): (deny(Operation.READ),), topic("t"): (allow(Operation.READ),)}
    assert not allows(acls, Operation.READ)


def test_a_denial_for_one_host_leaves_the_others() -> None:
    acls = {topic("t"): (deny(Operation.READ, host=HERE), allow(Operation.READ))}
    assert not allows(acls, Operation.READ, host=HERE)
    assert allows(acls, Operation.READ, host=THERE)


def test_a_prefixed_star_is_a_plain_character() -> None:
    acls = {topic("*", PREFIXED): (allow(Operation.READ),)}
    assert not allows(acls, Operation.READ, "foo")
    assert allows(acls, Operation.READ, "*foo")


def test_a_prefix_covers_longer_names_and_the_longest_prefix_has_no_priority() -> None:
    acls = {topic("a", PREFIXED): (deny(Operation.READ),), topic("abc", PREFIXED): (allow(Operation.READ),)}
    assert not allows(acls, Operation.READ, "abcd")
    acls = {topic("a", PREFIXED): (allow(Operation.READ),)}
    assert allows(acls, Operation.READ, "a")
    assert allows(acls, Operation.READ, "ab")
    assert not allows(acls, Operation.READ, "b")


def test_a_topic_without_rules_is_open_only_if_configured() -> None:
    assert allows({}, Operation.READ, allow_if_no_acl=True)
    assert not allows({}, Operation.READ)
    for other in (topic("t"), topic("*"), topic("", PREFIXED)):
        acls = {other: (allow(Operation.READ, "User:b"),)}
        assert not allows(acls, Operation.READ, allow_if_no_acl=True)
        assert allows(acls, Operation.READ, principal="User:b", allow_if_no_acl=True)


def test_a_super_user_is_allowed_what_a_rule_denies() -> None:
    assert allows({topic("t"): (deny(Operation.ALL, "User:*"),)}, Operation.READ, principal="User:root")


def test_principals_are_compared_with_their_type_and_case() -> None:
    acls = {topic("t"): (allow(Operation.READ, "User:a"),)}
    assert not allows(acls, Operation.READ, principal="User:A")
    assert not allows(acls, Operation.READ, principal="Group:a")


@pytest.mark.parametrize(
    ("rule", "host", "matches"),
    [
        ("10.1.0.0/16", "10.1.255.3", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.0.7/16", "10.1.0.1", True),
        ("fd00::/8", "fd00:0:0:0:0:0:0:1", True),
        ("fd00::/8", "10.0.0.1", False),
        ("not/a/network", "10.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1", True),
    ],
)
def test_a_host_with_a_slash_is_a_network_and_any_other_is_compared_as_text(
    rule: str, host: str, matches: bool
) -> None:
    assert allows({topic("t"): (allow(Operation.READ, host=rule),)}, Operation.READ, host=host) is matches


def test_kept_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_DECISIONS", 10)
    authorizer = Authorizer()
    for number in range(1000):
        authorizer.decide(f"User:{number % 7}", HERE, Operation.READ, TOPIC, f"t{number}")
        assert sum(len(kept) for kept in authorizer._kept.values()) <= 10


@pytest.mark.parametrize(
    ("length", "kept"), [(module.MAX_KEPT_NAME_LENGTH, 1), (module.MAX_KEPT_NAME_LENGTH + 1, 0)]
)
def test_decisions_about_very_long_names_are_not_kept(length: int, kept: int) -> None:
    name = "g" * length
    authorizer = Authorizer()
    authorizer.follow({topic("g", PREFIXED): (allow(Operation.READ),)})
    for _ in range(2):
        assert authorizer.decide("User:a", HERE, Operation.READ, TOPIC, name).is_allowed
        assert not authorizer.decide("User:b", HERE, Operation.READ, TOPIC, name).is_allowed
    assert [len(questions) for questions in authorizer._kept.values()] == [1, 1] * kept


def test_a_filter_with_match_finds_every_rule_that_applies_to_the_name() -> None:
    rule = (allow(Operation.READ),)
    names = [topic("foo"), topic("*"), topic("f", PREFIXED), topic("foo", PREFIXED)]
    others = [topic("fo"), topic("bar"), topic("fooo", PREFIXED), ResourcePattern(ResourceType.GROUP, "foo")]
    acls = dict.fromkeys([*names, *others], rule)
    found = AclFilter(TOPIC, "foo", PatternType.MATCH).selected(acls)
    assert set(found) == set(names)
    assert set(AclFilter(TOPIC, "foo", PatternType.ANY).selected(acls)) == {
        topic("foo"),
        topic("foo", PREFIXED),
    }
    assert set(AclFilter(TOPIC, "foo", PREFIXED).selected(acls)) == {topic("foo", PREFIXED)}
    assert set(AclFilter(TOPIC, None, PREFIXED).selected(acls)) == {
        topic("f", PREFIXED),
        topic("foo", PREFIXED),
        topic("fooo", PREFIXED),
    }


def test_a_filter_compares_principals_exactly() -> None:
    acls = {topic("t"): (allow(Operation.READ, "User:*"), allow(Operation.READ, "User:a"))}
    found = AclFilter(principal="User:a").selected(acls)
    assert found == {topic("t"): (allow(Operation.READ, "User:a"),)}
