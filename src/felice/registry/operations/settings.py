"""Configurations and modes of subjects, of contexts, and of the default context (None)."""

from __future__ import annotations

from collections.abc import Mapping

from felice.registry import subjects
from felice.registry.errors import (
    config_not_found,
    mode_not_found,
    not_permitted,
    reference_exists,
    subject_not_found,
)
from felice.registry.operations.deletion import check_writable
from felice.registry.records import (
    ClearSubjectKey,
    ClearSubjectValue,
    ConfigKey,
    ConfigValue,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
    config_members,
)
from felice.registry.rules import Json
from felice.registry.state import DEFAULT_MODE, State


def get_config(state: State, name: str | None, *, or_global: bool = False) -> dict[str, Json]:
    """A configuration. Without one: that in scope, if asked for or for the default context, else 40408."""
    own = state.config(name)
    if name is None or or_global:
        found: Mapping[str, Json] = state.config_in_scope(name)
    elif own is None:
        raise config_not_found(name)
    else:
        found = own
    return dict(config_members(dict(found)))


def put_config(state: State, name: str | None, change: Mapping[str, Json]) -> list[Record]:
    """Sets the members of `change`, and removes those that are None; others stay."""
    check_writable(state, name)
    members = config_members({**(state.config(name) or {}), **change})
    return [(ConfigKey(name), ConfigValue(name, members))]


def delete_config(state: State, name: str | None) -> tuple[list[Record], dict[str, Json]]:
    """Removes a configuration, and returns it."""
    if name is not None and state.config(name) is None:
        raise subject_not_found(name)
    check_writable(state, name)
    return [(ConfigKey(name), None)], get_config(state, name)


def get_mode(state: State, name: str | None, *, or_global: bool = False) -> str:
    """A mode. Without one: that in scope, if asked for, else 40409."""
    if name is None or or_global:
        return state.mode_in_scope(name)
    found = state.mode(name)
    if found is None:
        raise mode_not_found(name)
    return found


def put_mode(state: State, name: str | None, mode: str, *, force: bool = False) -> list[Record]:
    """Sets a mode. IMPORT needs subjects without versions, unless it is forced; deleted versions are removed."""
    written: list[Record] = []
    if mode == "IMPORT" and state.mode_in_scope(name) != "IMPORT" and not force:
        written = _emptied(state, name)
    return [*written, (ModeKey(name), ModeValue(name, mode))]


def delete_mode(state: State, name: str | None) -> tuple[list[Record], str]:
    """Removes a mode, and returns it."""
    if name is not None and state.mode(name) is None:
        raise subject_not_found(name)
    return [(ModeKey(name), None)], state.mode(name) or DEFAULT_MODE


def _emptied(state: State, name: str | None) -> list[Record]:
    affected = _affected(state, name)
    if any(state.has(found) for found in affected):
        raise not_permitted("Cannot import since found existing subjects")
    written: list[Record] = []
    for found in affected:
        subject = state.subject(found)
        for version in subject.versions if subject is not None else ():
            if state.referring_ids(found, version.number):
                raise reference_exists(found, version.number)
            written.append((SchemaKey(found, version.number), None))
    return [*written, (ClearSubjectKey(name), ClearSubjectValue(name))]


def _affected(state: State, name: str | None) -> list[str]:
    if name is None:
        return list(state.names(subjects.WILDCARD))
    if subjects.split(name)[1]:
        return [name]
    return list(state.names(name))
