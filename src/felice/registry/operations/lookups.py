"""Reading versions, ids, guids, and who refers to a version.

An unqualified subject that the default context does not have is looked for in all contexts, as in Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Iterable

from felice.registry import subjects
from felice.registry.content import guid_of, md5_of_guid
from felice.registry.errors import (
    invalid_schema,
    invalid_version,
    not_found,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from felice.registry.formats.schema import Reference
from felice.registry.parsing import References
from felice.registry.records import MAX_VERSION
from felice.registry.rules import Json
from felice.registry.state import State, Version
from felice.registry.subjects import DEFAULT_CONTEXT, within

LATEST = -1
MAX_REFERRED_CHARACTERS = 20_000_000
"""Limit of the text of all schemas to which one schema refers."""


def version_number(text: str) -> int:
    """The version that a path names; -1 for `latest`. Raises `RegistryError` (42202) for others than 1 to 2^31-1."""
    word = text.strip()
    if word.lower() == "latest":
        return LATEST
    try:
        number = int(word) if word.removeprefix("-").isascii() and word.removeprefix("-").isdigit() else 0
    except ValueError:  # thousands of digits
        number = 0
    if number != LATEST and not 1 <= number <= MAX_VERSION:
        raise invalid_version(text)
    return number


def id_number(text: str) -> int:
    """The id that a path names. Raises `RegistryError` (404) for what is no number."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_VERSION):
        raise not_found()
    return int(text)


def get_version(state: State, subject: str, number: int, *, deleted: bool = False) -> Version:
    """A version of a subject, by the rule of the module."""
    found = state.version(subject, number, deleted=deleted) or _elsewhere(
        state, subject, number, deleted=deleted
    )
    if found is None:
        raise missing(state, subject, number, deleted=deleted)
    return found


def missing(state: State, subject: str, number: int, *, deleted: bool) -> Exception:
    """The error for a version that is not there."""
    if not state.has(subject, deleted=deleted):
        return subject_not_found(subject)
    return version_not_found(number)


def _elsewhere(state: State, subject: str, number: int, *, deleted: bool) -> Version | None:
    for name in other_names(state, subject):
        found = state.version(name, number, deleted=deleted)
        if found is not None:
            return found
    return None


def other_names(state: State, subject: str) -> list[str]:
    """The names of an unqualified subject in all contexts but the default one; none for a qualified name."""
    context, name = subjects.split(subject)
    if context != DEFAULT_CONTEXT or not name:
        return []
    return [subjects.joined(found, name) for found in state.context_names()[1:]]


def latest_with_metadata(
    state: State, subject: str, properties: dict[str, str], *, deleted: bool = False
) -> Version:
    """The highest version whose metadata has these properties."""
    found = state.subject(subject)
    if found is None or not state.has(subject, deleted=deleted):
        raise subject_not_found(subject)
    for version in reversed(found.versions):
        metadata = version.content.metadata
        if (deleted or not version.deleted) and metadata is not None:
            own = dict(metadata.properties)
            if all(own.get(name) == value for name, value in properties.items()):
                return version
    raise schema_not_found()


def get_id(state: State, schema_id: int, subject: str | None) -> Version:
    """A version with this id, deleted or not. `subject` names the subject that the client expects, or its context."""
    found = _use_of(state, schema_id, subject)
    if found is None:
        raise schema_not_found(schema_id)
    return found


def _use_of(state: State, schema_id: int, subject: str | None) -> Version | None:
    context, name = subjects.split(subject or "")
    uses = state.context(context).uses(schema_id)
    if not name:
        return next(iter(uses.values()), None)
    found = uses.get(subjects.joined(context, name))
    if found is not None or context != DEFAULT_CONTEXT:
        return found
    for other in state.context_names()[1:]:
        found = state.context(other).uses(schema_id).get(subjects.joined(other, name))
        if found is not None:
            return found
    return next(iter(uses.values()), None)


def versions_of_id(
    state: State, schema_id: int, subject: str | None, *, deleted: bool = False
) -> list[Version]:
    """The versions with this id, one of each subject, by subject."""
    uses = state.context(subjects.context_of(get_id(state, schema_id, subject).subject)).uses(schema_id)
    return [uses[name] for name in sorted(uses) if deleted or not uses[name].deleted]


def highest_id(state: State, subject: str | None) -> int:
    """The highest id of the context of `subject`."""
    return state.context(subjects.context_of(subject or "")).highest_id


def get_guid(state: State, guid: str) -> Version:
    """A version whose schema has this guid, in the first context that has one."""
    for _, version in _guid_uses(state, guid):
        return version
    raise schema_not_found(guid)


def ids_of_guid(state: State, guid: str) -> list[dict[str, Json]]:
    """The id of the schema in each context that has it."""
    found = [{"context": context, "id": version.id} for context, version in _guid_uses(state, guid)]
    if not found:
        raise schema_not_found(guid)
    return found


def _guid_uses(state: State, guid: str) -> list[tuple[str, Version]]:
    md5 = md5_of_guid(guid)
    if md5 is None or guid_of(md5) != guid.lower():
        return []
    made = []
    for context in state.context_names():
        known = state.context(context)
        for suffix in (b"", b"JSON", b"PROTOBUF"):
            schema_id = known.by_identity.get(md5 + suffix)
            if schema_id is not None and (version := known.any_use(schema_id)) is not None:
                made.append((context, version))
                break
    return made


def texts_of(state: State, version: Version) -> References:
    """The texts of the schemas to which a version refers: see `reference_texts`."""
    references = version.content.references
    return reference_texts(state, version.subject, references) if references else ()


def reference_texts(state: State, subject: str, references: Iterable[Reference]) -> References:
    """The texts of all schemas that these references of a schema of `subject` need, each after those that it needs.

    A referenced version that is gone is left out; the parser says then which name it does not know. Raises
    `RegistryError` (42201) if the texts are too long together.
    """
    made: dict[str, str] = {}
    seen: set[tuple[str, tuple[str, int]]] = set()
    # A stack of its own instead of recursion: a topic that others wrote may hold chains of any length, and cycles.
    stack = [(subject, iter(references), "", "")]
    characters = 0
    while stack:
        owner, remaining, name, text = stack[-1]
        reference = next(remaining, None)
        if reference is None:
            stack.pop()
            if name:
                made.setdefault(name, text)
            continue
        target = within(owner, reference.subject), reference.version
        found = None if (reference.name, target) in seen else state.version(*target, deleted=True)
        seen.add((reference.name, target))
        if found is not None:
            characters += len(found.content.text)
            if characters > MAX_REFERRED_CHARACTERS:
                raise invalid_schema(
                    f"the schemas to which it refers have over {MAX_REFERRED_CHARACTERS} characters together"
                )
            stack.append((found.subject, iter(found.content.references), reference.name, found.content.text))
    return tuple(made.items())
