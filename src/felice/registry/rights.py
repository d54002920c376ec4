"""Who may do what with which subjects: rules by user, operation and subject, read from a file. Pure.

    # effect  user   operations                subjects
    allow     alice  read,write,compatibility  orders-*
    allow     *      read                      *
    deny      bob    delete                    orders-value

Keeps true:  a rule that denies goes before those that allow, and what no rule allows is refused.
How:         a subject ends with `*` for a prefix. Operations are read, write, delete, compatibility, config, mode, or
             `*` for all. `__GLOBAL` is what belongs to no subject: global configuration and mode, and contexts.
"""

from __future__ import annotations

from enum import Enum

from felice.dataclass import dataclass

GLOBAL = "__GLOBAL"
ANYONE = "*"
MAX_RULES = 100_000


class BadRules(Exception):
    """A file of rules that cannot be read; the message names the line."""


class Operation(Enum):
    """What a request does with a subject."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    COMPATIBILITY = "compatibility"
    CONFIG = "config"
    MODE = "mode"


@dataclass(frozen=True, slots=True)
class Rule:
    """Allows or denies operations of a user on a subject, or on all subjects that begin with it."""

    allows: bool
    user: str
    operations: frozenset[Operation]
    subject: str
    is_prefix: bool

    def applies(self, user: str, operation: Operation, subject: str) -> bool:
        """Whether the rule says anything about this request."""
        return (
            operation in self.operations
            and self.user in (ANYONE, user)
            and (subject.startswith(self.subject) if self.is_prefix else subject == self.subject)
        )


class Rights:
    """The rules of a registry."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._of_anyone = tuple(rule for rule in rules if rule.user == ANYONE)
        self._by_user: dict[str, tuple[Rule, ...]] = {}
        for rule in rules:
            if rule.user != ANYONE:
                self._by_user[rule.user] = (*self._by_user.get(rule.user, ()), rule)

    def allow(self, user: str, operation: Operation, subject: str) -> bool:
        """Whether `user` may do this. `subject` is a qualified name, or `GLOBAL`."""
        rules = (*self._of_anyone, *self._by_user.get(user, ()))
        found = [rule.allows for rule in rules if rule.applies(user, operation, subject)]
        return bool(found) and all(found)


def parse_rules(text: str) -> Rights:
    """Reads a file of rules. Raises `BadRules` with the number of the line."""
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            rules.append(_rule(words, number))
    if len(rules) > MAX_RULES:
        raise BadRules(f"there are {len(rules)} rules; at most {MAX_RULES} are possible")
    return Rights(tuple(rules))


def _rule(words: list[str], number: int) -> Rule:
    if len(words) != 4:
        raise BadRules(
            f"line {number}: expected effect, user, operations and subject, got {len(words)} words"
        )
    effect, user, operations, subject = words
    if effect not in ("allow", "deny"):
        raise BadRules(f"line {number}: expected allow or deny, got {effect}")
    return Rule(
        effect == "allow",
        user,
        _operations(operations, number),
        subject.removesuffix("*"),
        subject.endswith("*"),
    )


def _operations(text: str, number: int) -> frozenset[Operation]:
    if text == "*":
        return frozenset(Operation)
    try:
        return frozenset(Operation(word) for word in text.split(","))
    except ValueError:
        known = ", ".join(operation.value for operation in Operation)
        raise BadRules(f"line {number}: {text} has an unknown operation; there are {known}, and *") from None
