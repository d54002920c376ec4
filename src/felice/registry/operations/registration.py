"""Registering a schema, looking one up, and checking its compatibility.

Keeps true:  a schema that the subject has already gets its id back, and nothing is written.
             A new version is written only if it is compatible at the level in scope, except in the mode IMPORT.
             The same schema has one id under all subjects of a context.
How:         parsing and comparing take long for large schemas and need no state, so they run between two functions of
             the state: `draft` collects what they need, `canonical` and `reasons` use nothing but the draft and may run
             on a thread, `existing` and `registration` answer from the state. Before writing, the caller drafts again:
             if the draft is still equal, what was computed from it still holds.
"""

from __future__ import annotations

from dataclasses import replace

from felice.dataclass import dataclass
from felice.registry.compatibility import is_transitive, relevant
from felice.registry.compatibility import reasons as reasons_at
from felice.registry.content import Content
from felice.registry.errors import (
    incompatible,
    invalid_schema,
    not_permitted,
    schema_not_found,
    subject_not_found,
)
from felice.registry.formats.schema import Reference
from felice.registry.operations.lookups import LATEST, missing, other_names, reference_texts, texts_of
from felice.registry.parsing import Parser, References
from felice.registry.records import ContextKey, ContextValue, Record, SchemaKey, SchemaValue
from felice.registry.requests import NO_ID, NO_VERSION, SchemaRequest
from felice.registry.rules import (
    VERSION_PROPERTY,
    Metadata,
    merged_metadata,
    merged_rules,
    metadata_of,
    rule_set_of,
)
from felice.registry.state import State, Subject, Version
from felice.registry.subjects import DEFAULT_CONTEXT, context_of, within


@dataclass(frozen=True, slots=True)
class Draft:
    """A schema with everything that decides about it. Two drafts are equal if the state between them changed nothing
    that matters to it."""

    subject: str
    request: SchemaRequest
    normalize: bool
    referred: References
    level: str
    group: str | None
    compared: tuple[tuple[Version, References], ...]


def draft(
    state: State,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool = False,
    against: tuple[Version, ...] | None = None,
    for_lookup: bool = False,
) -> Draft:
    """What decides about a schema. `against` are the versions to compare with, instead of those that the level names.

    Raises `RegistryError` (42201) for an empty schema, or a reference to a version that is not there.
    """
    config = state.config_in_scope(subject)
    importing = state.mode_in_scope(subject) in IMPORTING
    request = request if for_lookup or importing else populated(state, subject, request)
    if not request.text.strip():
        raise invalid_schema("Empty schema")
    references, referred = _resolved(state, subject, request, deleted=for_lookup)
    level, group = config["compatibilityLevel"], config.get("compatibilityGroup")
    compared = () if for_lookup else _compared(state, subject, request, level, group, against)
    return Draft(
        subject,
        replace(request, references=references),
        normalize or config.get("normalize") is True,
        referred,
        level,
        group,
        tuple((version, texts_of(state, version)) for version in compared),
    )


IMPORTING = ("IMPORT", "FORWARD")


def canonical(parser: Parser, drafted: Draft) -> str:
    """The text that is stored for the schema. Raises `RegistryError` (42201). May run on a thread."""
    request = drafted.request
    parsed = parser.parse(request.schema_type, request.text, drafted.referred)
    return parsed.normalized() if drafted.normalize else parsed.canonical


def reasons(parser: Parser, drafted: Draft, text: str) -> list[str]:
    """Why the schema (its canonical text) is not compatible; empty if it is. May run on a thread."""
    new = parser.parse(drafted.request.schema_type, text, drafted.referred)
    for version, referred in reversed(drafted.compared):
        content = version.content
        old = parser.parse(content.schema_type, content.text, referred, registered=True)
        found = reasons_at(drafted.level, new, old)
        if found:
            return [
                *found,
                f"{{oldSchemaVersion: {version.number}}}",
                f"{{oldSchema: '{version.content.text}'}}",
                f"{{validateFields: 'false', compatibility: '{drafted.level}'}}",
            ]
    return []


def existing(state: State, drafted: Draft, text: str, *, deleted: bool = False) -> Version | None:
    """The version of the subject that is this schema already."""
    content = _content(drafted, text)
    found = _use(state, drafted.subject, content, deleted=deleted)
    if found is not None:
        return found
    # A schema without metadata or rules is also the one that would get them at its registration.
    completed = populated(state, drafted.subject, drafted.request, for_lookup=True)
    if completed.metadata == content.metadata and completed.rules == content.rules:
        return None
    content = replace(content, metadata=completed.metadata, rules=completed.rules)
    return _use(state, drafted.subject, content, deleted=deleted)


def look_up(state: State, drafted: Draft, text: str, *, deleted: bool = False) -> Version:
    """The version for POST /subjects/{subject}. Raises `RegistryError` (40401, 40403)."""
    found = existing(state, drafted, text, deleted=deleted)
    names = other_names(state, drafted.subject)
    for name in names if found is None else ():
        found = found or existing(state, replace(drafted, subject=name), text, deleted=deleted)
    if found is not None:
        return found
    if not any(state.has(name, deleted=deleted) for name in (drafted.subject, *names)):
        raise subject_not_found(drafted.subject)
    raise schema_not_found()


def answers_at_once(state: State, subject: str, request: SchemaRequest) -> bool:
    """Whether a registry that is not the leader, or that may not write, may answer with a version that exists."""
    config = state.config_in_scope(subject)
    changes = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
    return request.version == NO_VERSION and not any(name in config for name in changes)


def check_mode(state: State, subject: str, request: SchemaRequest) -> None:
    """Raises `RegistryError` (42205) if the subject's mode does not allow the registration."""
    mode, context = state.mode_in_scope(subject), context_of(subject)
    where = f"Subject {subject} in context {context}"
    if mode in ("READONLY", "READONLY_OVERRIDE"):
        raise not_permitted(f"{where} is in read-only mode")
    if request.id >= 0 and mode not in IMPORTING:
        raise not_permitted(f"{where} is not in import mode")
    if request.id < 0 and mode != "READWRITE":
        raise not_permitted(f"{where} is not in read-write mode")


def registration(
    state: State, drafted: Draft, text: str, found_reasons: list[str]
) -> tuple[list[Record], SchemaValue]:
    """The records of a registration, and the version as it will be. No records: the subject has the schema already."""
    subject_name, request = drafted.subject, drafted.request
    check_mode(state, subject_name, request)
    content = _content(drafted, text)
    context = state.context(context_of(subject_name))
    known_id = context.id_of(content)
    if request.version == NO_VERSION and request.id in (NO_ID, known_id):
        version = _use(state, subject_name, content, deleted=False)
        if version is not None:
            return [], SchemaValue(subject_name, version.number, version.id, version.content)
    importing = state.mode_in_scope(subject_name) in IMPORTING
    if found_reasons and not importing:
        raise incompatible(subject_name, found_reasons)
    subject = state.subject(subject_name)
    number = _number(subject, request, importing=importing)
    schema_id = _id(state, drafted, content, known_id)
    value = SchemaValue(subject_name, number, schema_id, content)
    return [
        *_new_context(state, subject_name),
        *_superseded(subject, value),
        (SchemaKey(subject_name, number), value),
    ], value


def check_against(state: State, subject: str, number: int) -> tuple[Version, ...]:
    """The version for /compatibility/…/versions/{version}. A subject without versions is compatible with anything."""
    found = state.version(subject, number)
    if found is None and number != LATEST:
        raise missing(state, subject, number, deleted=False)
    return () if found is None else (found,)


def populated(
    state: State, subject: str, request: SchemaRequest, *, for_lookup: bool = False
) -> SchemaRequest:
    """The request with what the configuration in scope and the latest version add to it."""
    config, latest = state.config_in_scope(subject), state.version(subject, LATEST)
    metadata, rules = request.metadata, request.rules
    if latest is not None:
        metadata = latest.content.metadata if metadata is None else metadata
        rules = latest.content.rules if rules is None else rules
    metadata = merged_metadata(metadata_of(config.get("defaultMetadata")), metadata)
    metadata = merged_metadata(metadata, metadata_of(config.get("overrideMetadata")))
    rules = merged_rules(rule_set_of(config.get("defaultRuleSet")), rules)
    rules = merged_rules(rules, rule_set_of(config.get("overrideRuleSet")))
    if not for_lookup:
        metadata = _with_version(state, subject, request, metadata)
    filled = replace(request, metadata=metadata, rules=rules)
    if request.text.strip() or latest is None or for_lookup:
        return filled
    content = latest.content
    return replace(filled, text=content.text, schema_type=content.schema_type, references=content.references)


def _with_version(
    state: State, subject: str, request: SchemaRequest, metadata: Metadata | None
) -> Metadata | None:
    """Metadata with the number of the new version, if the client gave one or the metadata has one already."""
    if request.version == NO_VERSION and (metadata is None or metadata.property(VERSION_PROPERTY) is None):
        return metadata
    number = str(_next_number(state.subject(subject)))
    return merged_metadata(metadata, Metadata(properties=((VERSION_PROPERTY, number),)))


def _resolved(
    state: State, subject: str, request: SchemaRequest, *, deleted: bool
) -> tuple[tuple[Reference, ...], References]:
    """The references with the number of the latest version in place of -1, and the texts of all that they need."""
    made: list[Reference] = []
    for reference in request.references:
        target = within(subject, reference.subject)
        found = state.version(target, reference.version, deleted=deleted)
        if found is None:
            raise invalid_schema(
                f"Invalid schema of type {request.schema_type}, details: No schema reference found for "
                f'subject "{target}" and version {reference.version}'
            )
        made.append(replace(reference, version=found.number))
    return tuple(made), reference_texts(state, subject, made)


def _compared(
    state: State,
    subject: str,
    request: SchemaRequest,
    level: str,
    group: str | None,
    against: tuple[Version, ...] | None,
) -> tuple[Version, ...]:
    found = state.subject(subject)
    if against is None:
        against = (
            () if found is None else _active(found, all_of_them=group is not None or is_transitive(level))
        )
    if group is not None:
        own = _property(request.metadata, group)
        against = tuple(version for version in against if _property(version.content.metadata, group) == own)
    return tuple(relevant(level, against))


def _active(subject: Subject, *, all_of_them: bool) -> tuple[Version, ...]:
    """The versions that are not deleted, or the latest of them: a subject may have 100,000."""
    if all_of_them:
        return tuple(version for version in subject.versions if not version.deleted)
    latest = subject.latest()
    return () if latest is None else (latest,)


def _property(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else metadata.property(name)


def _content(drafted: Draft, text: str) -> Content:
    request = drafted.request
    return Content(request.schema_type, text, request.references, request.metadata, request.rules)


def _use(state: State, subject: str, content: Content, *, deleted: bool) -> Version | None:
    context = state.context(context_of(subject))
    schema_id = context.id_of(content)
    found = None if schema_id is None else context.uses(schema_id).get(subject)
    return None if found is None or (found.deleted and not deleted) else found


def _next_number(subject: Subject | None) -> int:
    return subject.versions[-1].number + 1 if subject is not None and subject.versions else 1


def _number(subject: Subject | None, request: SchemaRequest, *, importing: bool) -> int:
    following = _next_number(subject)
    if request.version <= 0:
        return following
    if request.version != following and not importing:
        raise invalid_schema("Version is not one more than previous version")
    return request.version


def _id(state: State, drafted: Draft, content: Content, known_id: int | None) -> int:
    context = state.context(context_of(drafted.subject))
    if drafted.request.id < 0:
        return context.highest_id + 1 if known_id is None else known_id
    holder = context.any_use(drafted.request.id)
    if holder is not None and holder.content != content:
        raise not_permitted(
            f"Overwrite new schema with id {drafted.request.id} in context {context_of(drafted.subject)} "
            "is not permitted."
        )
    return drafted.request.id


def _new_context(state: State, subject: str) -> list[Record]:
    context = context_of(subject)
    if context == DEFAULT_CONTEXT or context in state.context_names():
        return []
    return [(ContextKey(context), ContextValue(context))]


def _superseded(subject: Subject | None, value: SchemaValue) -> list[Record]:
    """Deleted versions of the same schema: the new version replaces them."""
    if subject is None or subject.active == len(subject.versions):
        return []
    return [
        (SchemaKey(old.subject, old.number), None)
        for old in subject.versions
        if old.deleted and old.id == value.id and old.number < value.version
    ]
