"""Checks of the lists that an application passes to `AdminClient`.

Keeps true:  a list that no broker could answer item by item (empty, or with an item twice) is refused at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from felice.client.admin.acls import AclBinding
from felice.client.error import KafkaError, failure

H = TypeVar("H", bound=Hashable)
R = TypeVar("R", bound=AclBinding)


def repeated(items: Iterable[H]) -> list[H]:
    """The items that occur more than once."""
    return [item for item, count in Counter(items).items() if count > 1]


def distinct(names: Iterable[str], kind: str) -> list[str]:
    """Return the names. `kind` says in errors what they name, such as "topic"."""
    found = list(names)
    if not found:
        raise ValueError(f"expected at least one {kind}")
    if twice := repeated(found):
        raise failure(KafkaError._INVALID_ARG, f"the {kind} {twice[0]!r} is named twice")
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"expected each {kind} as a string")
    return found


def distinct_rules(rules: Iterable[R], kind: type[R]) -> list[R]:
    """Return the access rules or filters, which all have the type `kind`."""
    found = list(rules)
    if not found:
        raise ValueError("expected at least one rule")
    if twice := repeated(found):
        raise ValueError(f"the rule {twice[0]!r} is named twice")
    if not all(type(rule) is kind for rule in found):
        raise TypeError(f"expected {kind.__name__}")
    return found
