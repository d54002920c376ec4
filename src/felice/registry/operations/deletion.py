"""Deleting versions, subjects and contexts.

Keeps true:  what was not deleted softly is never removed for good, and no version is deleted while another one refers
             to it. With the last version of a subject its own configuration and mode go.
"""

from __future__ import annotations

from felice.registry import subjects
from felice.registry.errors import (
    context_not_empty,
    context_not_found,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_soft_deleted,
    version_soft_deleted,
)
from felice.registry.operations.lookups import missing
from felice.registry.records import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    Record,
    SchemaKey,
    SchemaValue,
)
from felice.registry.state import State, Version

Written = tuple[list[Record], list[int]]
"""The records, and the numbers of the deleted versions."""


def delete_subject(state: State, name: str, *, permanent: bool) -> Written:
    """Deletes the versions of a subject that are there or, for good, all of its deleted ones."""
    subject = state.subject(name)
    if subject is None:
        raise subject_not_found(name)
    if not permanent and subject.active == 0:
        raise subject_soft_deleted(name)
    check_writable(state, name)
    chosen = [version for version in subject.versions if permanent or not version.deleted]
    for version in chosen:
        _check_unreferenced(state, version)
    numbers = [version.number for version in chosen]
    if permanent:
        if subject.active:
            raise subject_not_soft_deleted(name)
        return [(SchemaKey(name, number), None) for number in numbers], numbers
    deleted: list[Record] = [(DeleteSubjectKey(name), DeleteSubjectValue(name, numbers[-1]))]
    return deleted + _without_settings(state, name), numbers


def delete_version(
    state: State, name: str, number: int, *, permanent: bool, asked: str
) -> tuple[list[Record], int]:
    """Deletes one version; -1 is the latest. `asked` is the version as the client wrote it."""
    version = state.version(name, number, deleted=True)
    if version is None:
        raise missing(state, name, number, deleted=True)
    if version.deleted and not permanent:
        raise version_soft_deleted(name, asked)
    check_writable(state, name)
    _check_unreferenced(state, version)
    key = SchemaKey(name, version.number)
    if permanent:
        if not version.deleted:
            raise version_not_soft_deleted(name, version.number)
        return [(key, None)], version.number
    value = SchemaValue(version.subject, version.number, version.id, version.content, deleted=True)
    written: list[Record] = [(key, value)]
    subject = state.subject(name)
    if subject is not None and subject.active == 1:
        written += _without_settings(state, name)
    return written, version.number


def delete_context(state: State, name: str) -> list[Record]:
    """Removes a context that has no subjects, not even deleted ones."""
    if name not in state.context_names():
        raise context_not_found(name)
    if name == subjects.DEFAULT_CONTEXT:
        raise not_permitted("The default context cannot be deleted")
    qualified = subjects.joined(name, "")
    if state.has(qualified, deleted=True):
        raise context_not_empty(name)
    return [(ContextKey(name), None), *_without_settings(state, qualified)]


def check_writable(state: State, name: str | None) -> None:
    """Raises `RegistryError` (42205) in a mode that only reads."""
    if state.mode_in_scope(name) in ("READONLY", "READONLY_OVERRIDE"):
        raise not_permitted(f"Subject {name} is in read-only mode")


def _check_unreferenced(state: State, version: Version) -> None:
    if state.referring_ids(version.subject, version.number):
        raise reference_exists(version.subject, version.number)


def _without_settings(state: State, name: str) -> list[Record]:
    written: list[Record] = []
    if state.mode(name) is not None:
        written.append((ModeKey(name), None))
    if state.config(name) is not None:
        written.append((ConfigKey(name), None))
    return written
