"""The compatibility levels: which registered versions a new schema is compared with, and in which direction.

Keeps true:  BACKWARD: the new schema reads data of the old one; FORWARD: the old one reads data of the new one; FULL:
             both. Without `_TRANSITIVE` only the last version counts.
Source:      the levels of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from felice.registry.formats.schema import OLD_READS_NEW, ParsedSchema

T = TypeVar("T")


def is_transitive(level: str) -> bool:
    """Whether all versions count at this level, not only the last one."""
    return level.endswith("_TRANSITIVE")


def relevant(level: str, versions: Sequence[T]) -> Sequence[T]:
    """The versions, of all in ascending order, with which a new schema must be compatible."""
    if level == "NONE":
        return ()
    return versions if is_transitive(level) else versions[-1:]


def reasons(level: str, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    """Why `new` is not compatible with `old` at this level; empty if it is."""
    direction = level.removesuffix("_TRANSITIVE")
    found: list[str] = []
    if direction in ("BACKWARD", "FULL"):
        found += new.incompatibilities(old)
    if direction in ("FORWARD", "FULL"):
        found += old.incompatibilities(new, OLD_READS_NEW)
    return found
