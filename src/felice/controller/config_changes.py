"""Applies the changes of a configuration request to a set of overrides. Pure.

Returns the new overrides, or raises `ApiError` with the reason. The caller checks the values, because it knows what
kind of resource is configured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from felice.config import Kind, Option, shortened
from felice.dataclass import dataclass
from felice.protocol.errors import ApiError, ErrorCode


class ChangeKind(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One entry of an IncrementalAlterConfigs request (KIP-339): option, `ChangeKind`, and the new or listed value."""

    name: str
    kind: int
    value: str | None


def apply_changes(
    overrides: Mapping[str, str],
    effective: Mapping[str, str | None],
    changes: Sequence[ConfigChange],
    options: Mapping[str, Option],
) -> dict[str, str]:
    """The overrides after `changes`. `effective` gives the list that an append starts from."""
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changed = dict(overrides)
    for change in changes:
        _apply_one(changed, effective, change, options)
    return changed


def _apply_one(
    changed: dict[str, str],
    effective: Mapping[str, str | None],
    change: ConfigChange,
    options: Mapping[str, Option],
) -> None:
    if change.kind not in set(ChangeKind):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"unknown operation {change.kind} for {shortened(change.name)}"
        )
    if change.kind == ChangeKind.DELETE:
        changed.pop(change.name, None)
        return
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {shortened(change.name)}")
    if change.kind == ChangeKind.SET:
        changed[change.name] = change.value
        return
    declared = options.get(change.name)
    if declared is None or declared.kafkas_kind is not Kind.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Config value append is not allowed for config key: {shortened(change.name)}",
        )
    current = changed.get(change.name, effective.get(change.name) or "")
    items = [item.strip() for item in change.value.split(",")]
    changed[change.name] = ",".join(_edited(_items(current), items, change.kind))


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _edited(current: list[str], items: list[str], kind: int) -> list[str]:
    if kind == ChangeKind.APPEND:
        # An empty item stays, so that the check of the list refuses it.
        return current + [item for item in dict.fromkeys(items) if item not in current]
    return [item for item in current if item not in items]
