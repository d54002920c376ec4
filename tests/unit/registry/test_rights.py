"""The rules of who may do what."""

from __future__ import annotations

import pytest

from felice.registry.rights import GLOBAL, BadRules, Operation, parse_rules

RULES = """
# effect user operations subjects
allow  alice  read,write       orders-*
allow  *      read             public
allow  admin  *                *
deny   alice  write            orders-secret
  deny bob    read             public

allow  carol  config           __GLOBAL
"""


@pytest.mark.parametrize(
    ("user", "operation", "subject", "allowed"),
    [
        ("alice", "read", "orders-value", True),
        ("alice", "write", "orders-value", True),
        ("alice", "delete", "orders-value", False),
        ("alice", "read", "order", False),
        ("alice", "read", "orders-secret", True),
        ("alice", "write", "orders-secret", False),
        ("dave", "read", "public", True),
        ("dave", "read", "public2", False),
        ("bob", "read", "public", False),
        ("admin", "mode", "anything", True),
        ("admin", "config", GLOBAL, True),
        ("carol", "config", GLOBAL, True),
        ("carol", "config", "s", False),
        ("alice", "config", GLOBAL, False),
    ],
)
def test_a_denial_goes_first_and_nothing_is_allowed_without_a_rule(
    user: str, operation: str, subject: str, allowed: bool
) -> None:
    assert parse_rules(RULES).allow(user, Operation(operation), subject) is allowed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("allow alice read", "line 1: expected effect, user, operations and subject, got 3 words"),
        ("\npermit alice read *", "line 2: expected allow or deny, got permit"),
        ("allow alice red *", "line 1: red has an unknown operation"),
        ("allow alice read, *", "line 1: read, has an unknown operation"),
    ],
)
def test_a_wrong_line_is_named(text: str, reason: str) -> None:
    with pytest.raises(BadRules, match=reason):
        parse_rules(text)
