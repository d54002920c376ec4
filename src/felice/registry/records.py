"""The records of the topic `_schemas`: keys and values as JSON, byte for byte as Confluent's registry writes them.

Keeps true:  the key of a thing (a version of a subject, a configuration …) is always the same bytes. Compaction
             compares bytes, so the order of the members is part of the format.
             A record that cannot be read raises `DamagedRecord`, which says why; it is never read as something else.
How:         `decode` reads a record, `Key.encode` and `encode_value` write one. Unknown members are ignored in keys and
             values, except in configurations, which keep them.
Source:      the classes `SchemaKey`, `SchemaValue`, `ConfigKey` … of Confluent's registry, versions 5 to 8.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from felice.dataclass import dataclass
from felice.registry.content import AVRO, Content
from felice.registry.errors import RegistryError
from felice.registry.formats.schema import Reference
from felice.registry.rules import Json, metadata_of, rule_set_of

DEFAULT_TENANT = "default"
MAX_VERSION = 2**31 - 1


class DamagedRecord(Exception):
    """A record that is none of the registry's, or that is incomplete; the message says what is wrong."""


class UnknownRecord(Exception):
    """A record of a kind that this version does not know. The message is the kind."""


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """A version of a subject."""

    subject: str
    version: int

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode({"keytype": "SCHEMA", "subject": self.subject, "version": self.version, "magic": 1})


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The configuration of a subject or a context, or, without a subject, of the default context."""

    subject: str | None

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode_settings_key("CONFIG", self.subject)


@dataclass(frozen=True, slots=True)
class ModeKey:
    """The mode of a subject or a context, or, without a subject, of the default context."""

    subject: str | None

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode_settings_key("MODE", self.subject)


@dataclass(frozen=True, slots=True)
class DeleteSubjectKey:
    """The soft deletion of a subject's versions."""

    subject: str

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode_settings_key("DELETE_SUBJECT", self.subject)


@dataclass(frozen=True, slots=True)
class ClearSubjectKey:
    """The removal of all deleted versions of a subject or a context, before an import."""

    subject: str | None

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode_settings_key("CLEAR_SUBJECT", self.subject)


@dataclass(frozen=True, slots=True)
class ContextKey:
    """A context."""

    context: str
    tenant: str = DEFAULT_TENANT

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode({"keytype": "CONTEXT", "tenant": self.tenant, "context": self.context, "magic": 0})


@dataclass(frozen=True, slots=True)
class NoopKey:
    """A record without meaning, by which a writer finds the end of the topic."""

    def encode(self) -> bytes:
        """The key's bytes."""
        return _encode({"keytype": "NOOP", "magic": 0})


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


@dataclass(frozen=True, slots=True)
class SchemaValue:
    """A registered version."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False

    def encode(self) -> bytes:
        """The value's bytes."""
        made: dict[str, Json] = {"subject": self.subject, "version": self.version, "id": self.id}
        if self.content.given_md5 is not None:
            made["md5"] = base64.b64encode(self.content.given_md5).decode()
        return _encode({**made, **self.content.members(), "deleted": self.deleted})


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A configuration: the members that are set, in Confluent's order, and unknown ones after them."""

    subject: str | None
    members: tuple[tuple[str, Json], ...]

    def encode(self) -> bytes:
        """The value's bytes."""
        return _encode({**_with_subject(self.subject), **dict(self.members)})


@dataclass(frozen=True, slots=True)
class ModeValue:
    """A mode."""

    subject: str | None
    mode: str

    def encode(self) -> bytes:
        """The value's bytes."""
        return _encode({**_with_subject(self.subject), "mode": self.mode})


@dataclass(frozen=True, slots=True)
class DeleteSubjectValue:
    """All versions of the subject up to `version` are deleted."""

    subject: str
    version: int

    def encode(self) -> bytes:
        """The value's bytes."""
        return _encode({"subject": self.subject, "version": self.version})


@dataclass(frozen=True, slots=True)
class ClearSubjectValue:
    """See `ClearSubjectKey`."""

    subject: str | None

    def encode(self) -> bytes:
        """The value's bytes."""
        return _encode(_with_subject(self.subject))


@dataclass(frozen=True, slots=True)
class ContextValue:
    """See `ContextKey`."""

    context: str
    tenant: str = DEFAULT_TENANT

    def encode(self) -> bytes:
        """The value's bytes."""
        return _encode({"tenant": self.tenant, "context": self.context})


Value = SchemaValue | ConfigValue | ModeValue | DeleteSubjectValue | ClearSubjectValue | ContextValue

Record = tuple[Key, Value | None]
"""A record to write or to apply. A value of None is a tombstone, except for `NoopKey`, which has no value."""

CONFIG_MEMBERS = (
    "alias",
    "normalize",
    "validateFields",
    "validateNames",
    "compatibilityLevel",
    "compatibilityPolicy",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""The members of a configuration in the order in which they are written."""

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The bytes of a record's key and value."""
    key, value = record
    return key.encode(), None if value is None else value.encode()


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Reads a record. Raises `DamagedRecord` or `UnknownRecord`."""
    members = _object(key, "key")
    kind = members.get("keytype")
    if not isinstance(kind, str):
        raise DamagedRecord("the key has no keytype")
    if kind == "NOOP":
        return NoopKey(), None
    try:
        read_key, read_value = _KINDS[kind]
    except KeyError:
        raise UnknownRecord(kind) from None
    found: Key = read_key(members)
    if value is None:
        return found, None
    try:
        read: Value = read_value(found, _object(value, "value"))
    except RegistryError as error:  # of metadata and rules, which requests have too
        raise DamagedRecord(str(error)) from None
    return found, read


def _read_schema_key(members: dict[str, Json]) -> SchemaKey:
    return SchemaKey(_text(members, "subject"), _integer(members, "version", 1))


def _read_schema(key: Any, members: dict[str, Json]) -> SchemaValue:
    subject, version = _text(members, "subject"), _integer(members, "version", 1)
    if (subject, version) != (key.subject, key.version):
        raise DamagedRecord(f"the value is of {subject} version {version}, the key of another")
    md5 = members.get("md5")
    content = Content(
        _text({"schemaType": AVRO, **_without_null(members)}, "schemaType"),
        _text(members, "schema"),
        tuple(_reference(given) for given in _array(members, "references")),
        metadata_of(members.get("metadata")),
        rule_set_of(members.get("ruleSet")),
        None if md5 is None else _md5(md5),
    )
    return SchemaValue(subject, version, _integer(members, "id", 0), content, members.get("deleted") is True)


def _reference(given: Json) -> Reference:
    if not isinstance(given, dict):
        raise DamagedRecord("a reference is not an object")
    return Reference(_text(given, "name"), _text(given, "subject"), _integer(given, "version", -1))


def _md5(given: Json) -> bytes:
    try:
        found = base64.b64decode(given, validate=True)
    except (ValueError, TypeError):
        found = b""
    if len(found) != 16:
        raise DamagedRecord("md5 is not the base64 of 16 bytes")
    return found


def _read_config(key: Any, members: dict[str, Json]) -> ConfigValue:
    level = members.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise DamagedRecord(f"unknown compatibilityLevel {level!r}")
    for name in ("defaultMetadata", "overrideMetadata"):
        metadata_of(members.get(name))
    for name in ("defaultRuleSet", "overrideRuleSet"):
        rule_set_of(members.get(name))
    for name in ("alias", "compatibilityGroup"):
        if members.get(name) is not None:
            _text(members, name)
    return ConfigValue(key.subject, config_members(members))


def config_members(members: dict[str, Json]) -> tuple[tuple[str, Json], ...]:
    """The members of a configuration that have a value, in the order in which they are written."""
    others = (name for name in members if name not in CONFIG_MEMBERS and name not in _NOT_OF_CONFIG)
    return tuple(
        (name, members[name]) for name in (*CONFIG_MEMBERS, *others) if members.get(name) is not None
    )


# The subject is in the key as well; offset and ts are what a registry adds to a record that it has read.
_NOT_OF_CONFIG = ("subject", "offset", "ts")


def _read_mode(key: Any, members: dict[str, Json]) -> ModeValue:
    mode = members.get("mode")
    if mode not in MODES:
        raise DamagedRecord(f"unknown mode {mode!r}")
    return ModeValue(key.subject, mode)


def _read_delete_subject(key: Any, members: dict[str, Json]) -> DeleteSubjectValue:
    # A subject whose versions were all deleted before has the version 0.
    return DeleteSubjectValue(key.subject, _integer(members, "version", 0))


def _read_context_key(members: dict[str, Json]) -> ContextKey:
    return ContextKey(_text(members, "context"), _text({"tenant": DEFAULT_TENANT, **members}, "tenant"))


_KINDS: dict[str, tuple[Any, Any]] = {
    "SCHEMA": (_read_schema_key, _read_schema),
    "CONFIG": (lambda members: ConfigKey(_subject_or_none(members)), _read_config),
    "MODE": (lambda members: ModeKey(_subject_or_none(members)), _read_mode),
    "DELETE_SUBJECT": (lambda members: DeleteSubjectKey(_text(members, "subject")), _read_delete_subject),
    "CLEAR_SUBJECT": (
        lambda members: ClearSubjectKey(_subject_or_none(members)),
        lambda key, _: ClearSubjectValue(key.subject),
    ),
    "CONTEXT": (_read_context_key, lambda key, _: ContextValue(key.context, key.tenant)),
}


def _subject_or_none(members: dict[str, Json]) -> str | None:
    return None if members.get("subject") is None else _text(members, "subject")


def _with_subject(subject: str | None) -> dict[str, Json]:
    return {} if subject is None else {"subject": subject}


def _encode_settings_key(kind: str, subject: str | None) -> bytes:
    return _encode({"keytype": kind, **_with_subject(subject), "magic": 0})


def _without_null(members: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in members.items() if value is not None}


def _text(members: dict[str, Json], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise DamagedRecord(f"{name} is not a text")
    return value


def _integer(members: dict[str, Json], name: str, least: int) -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_VERSION:
        raise DamagedRecord(f"{name} is not a number from {least} to {MAX_VERSION}")
    return value


def _array(members: dict[str, Json], name: str) -> list[Json]:
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise DamagedRecord(f"{name} is not an array")
    return value


def _object(data: bytes | None, part: str) -> dict[str, Json]:
    if data is None:
        raise DamagedRecord(f"the {part} is null")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise DamagedRecord(f"the {part} is not JSON") from None
    if not isinstance(found, dict):
        raise DamagedRecord(f"the {part} is not a JSON object")
    return found


# Jackson writes the hexadecimal digits of control characters in capitals.
_ESCAPE = re.compile(r"\\u00[01][0-9a-f]|\\.")


def _encode(members: dict[str, Json]) -> bytes:
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    if "\\u00" in text:
        text = _ESCAPE.sub(_capital_digits, text)
    return text.encode("utf-8", "replace")


def _capital_digits(found: re.Match[str]) -> str:
    escape = found[0]
    return escape[:2] + escape[2:].upper() if escape.startswith("\\u00") else escape
