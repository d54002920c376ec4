"""Valid names of topics. Pure. (Kafka's `Topic`.)"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME_LENGTH = 249
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))

_LEGAL = r"[a-zA-Z0-9._-]+"


def fault_of(name: str) -> str | None:
    """The reason why `name` is no valid topic name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name cannot be '.' or '..'"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not re.fullmatch(_LEGAL, name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collision_of(name: str, existing: Iterable[str]) -> str | None:
    """An existing topic with the same name in metrics, where `.` and `_` are equal, or None."""
    if "." not in name and "_" not in name:
        return None
    merged = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == merged), None)
