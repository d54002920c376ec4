"""The state of a registry: what the records of `_schemas` say, in memory.

Keeps true:  the state follows from the applied records and their order alone; two registries that read the same topic
             have the same state.
             Within a context an id belongs to one schema for as long as any version has that id.
             A version that refers to others is counted at them while it is not deleted.
How:         `apply` takes one record; everything else only reads. One version takes about 0.5 KB and its text, with a
             subject of its own 0.7 KB; contents are shared by the versions of one id.
Leaves to others:  what may be written (`operations`), and the topic (`service`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from felice.registry import records, subjects
from felice.registry.content import Content
from felice.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    ConfigValue,
    ContextKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    Key,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
    SchemaValue,
)
from felice.registry.rules import Json
from felice.registry.subjects import DEFAULT_CONTEXT, context_of, within

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"
_NOTHING: Mapping[str, Json] = MappingProxyType({})


class Version:
    """A registered version. Only `State.apply` changes `deleted`."""

    __slots__ = ("content", "deleted", "id", "number", "subject", "timestamp_ms")

    def __init__(self, value: SchemaValue, content: Content, subject: str, timestamp_ms: int) -> None:
        self.subject = subject
        self.number = value.version
        self.id = value.id
        self.content = content
        self.deleted = value.deleted
        self.timestamp_ms = timestamp_ms


class Subject:
    """The versions of one subject, ascending."""

    __slots__ = ("active", "repeats_ids", "versions")

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.active = 0
        """The number of versions that are not deleted."""
        self.repeats_ids = False
        """Whether two versions may have one id: an import can do that."""

    def get(self, number: int) -> Version | None:
        """The version with this number, deleted or not."""
        at = self._position(number)
        if at < len(self.versions) and self.versions[at].number == number:
            return self.versions[at]
        return None

    def latest(self) -> Version | None:
        """The highest version that is not deleted."""
        return next((found for found in reversed(self.versions) if not found.deleted), None)

    def put(self, version: Version) -> None:
        """Adds a version that is not there yet."""
        insort(self.versions, version, key=_number)
        self.active += not version.deleted

    def remove(self, version: Version) -> None:
        """Removes a version."""
        del self.versions[self._position(version.number)]
        self.active -= not version.deleted

    def _position(self, number: int) -> int:
        return bisect_left(self.versions, number, key=_number)


def _number(version: Version) -> int:
    return version.number


class Context:
    """The ids of a context."""

    __slots__ = ("by_identity", "highest_id", "ids")

    def __init__(self) -> None:
        # Nearly every id has one version, which needs no dictionary of subjects.
        self.ids: dict[int, Version | dict[str, Version]] = {}
        self.by_identity: dict[bytes, int] = {}
        self.highest_id = 0

    def uses(self, schema_id: int) -> Mapping[str, Version]:
        """For each subject that has this id, the version with it, in the order in which they were registered."""
        found = self.ids.get(schema_id)
        if found is None:
            return {}
        return {found.subject: found} if isinstance(found, Version) else found

    def any_use(self, schema_id: int) -> Version | None:
        """A version with this id."""
        return next(iter(self.uses(schema_id).values()), None)

    def id_of(self, content: Content) -> int | None:
        """The id of a schema that some version still has."""
        return self.by_identity.get(content.identity())

    def add(self, version: Version) -> None:
        """Counts a version at its id."""
        found = self.ids.get(version.id)
        if found is None or (isinstance(found, Version) and found.subject == version.subject):
            self.ids[version.id] = version
        elif isinstance(found, Version):
            self.ids[version.id] = {found.subject: found, version.subject: version}
        else:
            found[version.subject] = version
        self.by_identity[version.content.identity()] = version.id
        self.highest_id = max(self.highest_id, version.id)

    def discard(self, version: Version, successor: Version | None) -> None:
        """No longer counts a version at its id. `successor` is another version of its subject with the id, if any."""
        found = self.ids.get(version.id)
        if self.uses(version.id).get(version.subject) is not version:
            return
        if successor is not None:
            self.add(successor)
        elif isinstance(found, dict) and len(found) > 1:
            del found[version.subject]
        else:
            del self.ids[version.id]
            identity = version.content.identity()
            if self.by_identity.get(identity) == version.id:
                del self.by_identity[identity]


class State:
    """See the module. `default_level` holds where no configuration says anything."""

    def __init__(self, default_level: str = DEFAULT_LEVEL) -> None:
        self.default_level = default_level
        self._subjects: dict[str, Subject] = {}
        self._names: list[str] = []
        self._contexts: dict[str, Context] = {}
        self._known_contexts: set[str] = set()
        self._configs: dict[str | None, Mapping[str, Json]] = {}
        self._modes: dict[str | None, str] = {}
        self._references: dict[tuple[str, int], dict[int, int]] = {}
        self._spellings: dict[Key, set[bytes]] = {}

    # Reading ----------------------------------------------------------------------------------------------------

    def subject(self, name: str) -> Subject | None:
        """The subject with any versions, deleted ones too."""
        return self._subjects.get(name)

    def has(self, name: str, *, deleted: bool = False) -> bool:
        """Whether a subject, or any subject of the context that `name` names, has versions (`deleted`: deleted ones
        too)."""
        if name.startswith(":.") and not subjects.split(name)[1]:
            return any(deleted or self._subjects[found].active for found in self.names(name))
        found_subject = self._subjects.get(name)
        return found_subject is not None and (deleted or found_subject.active > 0)

    def version(self, name: str, number: int, *, deleted: bool = False) -> Version | None:
        """A version of a subject; -1 is the latest."""
        subject = self._subjects.get(name)
        if subject is None:
            return None
        found = subject.latest() if number == -1 else subject.get(number)
        return None if found is None or (found.deleted and not deleted) else found

    def names(self, prefix: str) -> Iterator[str]:
        """The subjects whose names begin with `prefix`, sorted. A prefix is within one context, `:*:` is in all."""
        if prefix.startswith(subjects.WILDCARD):
            rest = prefix.removeprefix(subjects.WILDCARD)
            yield from (name for name in self._names if subjects.split(name)[1].startswith(rest))
            return
        context, start = subjects.split(prefix)
        beginning = subjects.joined(context, start)
        for at in range(bisect_left(self._names, beginning), len(self._names)):
            name = self._names[at]
            if not name.startswith(beginning):
                return
            if context_of(name) == context:
                yield name

    def context(self, name: str) -> Context:
        """The ids of a context, none for an unknown one."""
        return self._contexts.get(name) or Context()

    def context_names(self) -> list[str]:
        """All contexts, the default one first."""
        return [DEFAULT_CONTEXT, *sorted(self._known_contexts - {DEFAULT_CONTEXT})]

    def referring_ids(self, name: str, number: int) -> list[int]:
        """The ids of the schemas that refer to a version and are not deleted, ascending."""
        return sorted(self._references.get((name, number), ()))

    def config(self, name: str | None) -> Mapping[str, Json] | None:
        """The configuration that was set for exactly this subject or context; None: for the default context."""
        return self._configs.get(name)

    def config_in_scope(self, name: str | None) -> Mapping[str, Json]:
        """The configuration that holds for a subject: its own, its context's, or that of all contexts.

        A configuration without a level leaves the level to the next of these.
        """
        chain = [found for scope in _scopes(name) if (found := self._configs.get(scope)) is not None]
        nearest = chain[0] if chain else _NOTHING
        level = next(
            (found["compatibilityLevel"] for found in chain if "compatibilityLevel" in found),
            self.default_level,
        )
        return {**nearest, "compatibilityLevel": level}

    def alias_target(self, name: str) -> str:
        """The subject for which an alias stands, in the alias's context; the subject itself if it is no alias."""
        alias = (self._configs.get(name) or _NOTHING).get("alias")
        return name if alias is None else within(name, alias)

    def aliases(self) -> Iterator[tuple[str, str]]:
        """The aliases, sorted, with the subjects for which they stand."""
        for name in sorted(found for found in self._configs if found is not None):
            if (target := self.alias_target(name)) != name:
                yield name, target

    def mode(self, name: str | None) -> str | None:
        """The mode that was set for exactly this subject or context; None: for the default context."""
        return self._modes.get(name)

    def mode_in_scope(self, name: str | None) -> str:
        """The mode that holds for a subject. READONLY_OVERRIDE of all subjects goes before a subject's own."""
        for scope in (None, subjects.GLOBAL_CONTEXT):
            if self._modes.get(scope) == "READONLY_OVERRIDE":
                return "READONLY_OVERRIDE"
        return next(
            (found for scope in _scopes(name) if (found := self._modes.get(scope)) is not None), DEFAULT_MODE
        )

    def encode(self, written: Iterable[Record]) -> list[tuple[bytes, bytes | None]]:
        """The bytes of records to write. A tombstone is written for each spelling of its key that the topic has:
        an old registry's key would bring the thing back when compaction has removed the tombstone."""
        made = []
        for key, value in written:
            data = records.encode((key, value))
            made.append(data)
            if data[1] is None:
                made += [(spelling, None) for spelling in sorted(self._spellings.get(key, ()))]
        return made

    # Applying ---------------------------------------------------------------------------------------------------

    def apply(self, record: Record, raw_key: bytes, timestamp_ms: int) -> str | None:
        """Applies the next record of the topic. Returns why it has no effect, or None."""
        key, value = record
        self._note_spelling(key, raw_key, value is None)
        match key:
            case SchemaKey():
                assert value is None or isinstance(value, SchemaValue)
                return self._apply_schema(key, value, timestamp_ms)
            case DeleteSubjectKey() if isinstance(value, DeleteSubjectValue):
                self._mark_deleted(key.subject, value.version)
            case ClearSubjectKey() if value is not None:
                self._clear(key.subject)
            case ConfigKey():
                if isinstance(value, ConfigValue):
                    self._configs[key.subject] = dict(value.members)
                else:
                    self._configs.pop(key.subject, None)
            case ModeKey():
                if isinstance(value, ModeValue):
                    self._modes[key.subject] = value.mode
                else:
                    self._modes.pop(key.subject, None)
            case ContextKey():
                self._apply_context(key, present=value is not None)
        return None

    def _note_spelling(self, key: Key, raw_key: bytes, is_tombstone: bool) -> None:
        if raw_key == key.encode():
            return
        spellings = self._spellings.setdefault(key, set())
        if not is_tombstone:
            spellings.add(raw_key)
            return
        spellings.discard(raw_key)
        if not spellings:
            del self._spellings[key]

    def _apply_schema(self, key: SchemaKey, value: SchemaValue | None, timestamp_ms: int) -> str | None:
        if value is not None and (fault := self._fault_of(value)) is not None:
            return fault
        old = self.version(key.subject, key.version, deleted=True)
        if old is not None:
            self._remove(old)
        if value is not None:
            self._add(value, old, timestamp_ms)
        return None

    def _fault_of(self, value: SchemaValue) -> str | None:
        holder = self.context(context_of(value.subject)).any_use(value.id)
        if holder is None or holder.content.text == value.content.text:
            return None
        return f"its id {value.id} belongs to the schema of {holder.subject} version {holder.number}"

    def _add(self, value: SchemaValue, old: Version | None, timestamp_ms: int) -> None:
        name = value.subject
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._subjects[name] = Subject()
            insort(self._names, name)
        context_name = context_of(name)
        self._known_contexts.add(context_name)
        context = self._contexts.setdefault(context_name, Context())
        holder = context.any_use(value.id) or old
        content = holder.content if holder is not None and holder.content == value.content else value.content
        version = Version(
            value, content, subject.versions[0].subject if subject.versions else name, timestamp_ms
        )
        subject.repeats_ids |= name in context.uses(value.id)
        subject.put(version)
        context.add(version)
        if not version.deleted:
            self._count_references(version, 1)

    def _remove(self, version: Version) -> None:
        name = version.subject
        subject = self._subjects[name]
        subject.remove(version)
        if not version.deleted:
            self._count_references(version, -1)
        candidates = subject.versions if subject.repeats_ids else ()
        successor = next((found for found in candidates if found.id == version.id), None)
        self._contexts[context_of(name)].discard(version, successor)
        if not subject.versions:
            del self._subjects[name]
            del self._names[bisect_left(self._names, name)]

    def _count_references(self, version: Version, change: int) -> None:
        for reference in version.content.references:
            target = within(version.subject, reference.subject), reference.version
            counts = self._references.setdefault(target, {})
            counts[version.id] = counts.get(version.id, 0) + change
            if counts[version.id] == 0:
                del counts[version.id]
            if not counts:
                del self._references[target]

    def _mark_deleted(self, name: str, up_to: int) -> None:
        subject = self._subjects.get(name)
        for version in subject.versions if subject else ():
            if version.number <= up_to and not version.deleted:
                version.deleted = True
                subject.active -= 1  # type: ignore[union-attr]
                self._count_references(version, -1)

    def _clear(self, name: str | None) -> None:
        """Removes the deleted versions of a subject, of the subjects of a context, or, for None, of all subjects."""
        if name is None:
            cleared = list(self._names)
        elif subjects.split(name)[1]:
            cleared = [name] if name in self._subjects else []
        else:
            cleared = list(self.names(name))
        for found in cleared:
            for version in list(self._subjects[found].versions):
                if version.deleted:
                    self._remove(version)

    def _apply_context(self, key: ContextKey, *, present: bool) -> None:
        if key.tenant != records.DEFAULT_TENANT:
            return
        if present:
            self._known_contexts.add(key.context)
        else:
            self._known_contexts.discard(key.context)


def _scopes(name: str | None) -> Iterator[str | None]:
    """Where a configuration or mode of a subject may stand, the nearest first."""
    if name is not None:
        yield name
        context = context_of(name)
        own = None if context == DEFAULT_CONTEXT else subjects.joined(context, "")
        if own != name:
            yield own
    else:
        yield None
    yield subjects.GLOBAL_CONTEXT
