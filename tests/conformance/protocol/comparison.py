"""Converts a declaration of ours and a definition of Kafka's to one form, and compares them version by version."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from felice.protocol.primitives import ZERO_UUID
from felice.protocol.schema import EMPTY, FIRST_OWN_TAG, Field, FieldType, Schema, Versions, schema_of

_NO_DEFAULT = {"string": "", "bytes": b"", "uuid": ZERO_UUID, "bool": False, "records": None}

# Names of structs do not travel. Where Kafka has two equal structs we may have one, and where Kafka has two different
# structs of one name in a request and its response, or in two records of a topic, ours have two names. Kafka's
# `TopicPartition` is a topic with several partitions; with us that is the name of a topic and one partition
# (`felice.protocol.topic_partition`).
_ONE_NAME = {
    "AlteredEntry": "EntryData",
    "AssignedTopic": "TopicPartitions",
    "CurrentTaskIds": "TaskIds",
    "CurrentTopicPartitions": "TopicPartitions",
    "LastAssignmentConfig": "KeyValue",
    "TopicConfig": "KeyValue",
    "TopicPartition": "TopicPartitions",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One field in one version: its bytes, and what happens if it cannot be sent."""

    path: str
    type: str
    nullable: bool
    tag: int | None
    default: object
    ignorable: bool


def differences(schema: Schema, definition: dict[str, Any]) -> list[str]:
    """The differences between the declaration and the definition, as text."""
    found = []
    valid = Versions.parse(definition["validVersions"])
    heads = {
        "name": (schema.name, definition["name"]),
        "kind": (schema.kind, definition["type"].removeprefix("coordinator-")),
        "api key": (schema.api_key, definition.get("apiKey", -1)),
        "versions": (str(schema.versions), str(valid)),
    }
    found += [
        f"{what}: {ours!r}, expected {theirs!r}" for what, (ours, theirs) in heads.items() if ours != theirs
    ]
    flexible = Versions.parse(definition["flexibleVersions"])
    for version in valid:
        if (version in schema.flexible) != (version in flexible):
            found.append(f"v{version}: flexible {version in schema.flexible}")
        ours = list(_our_rows(schema, version, ""))
        theirs = list(_their_rows(definition, definition["fields"], version, ""))
        found += [f"v{version}: {row} is not Kafka's" for row in ours if row not in theirs]
        found += [f"v{version}: {row} is missing" for row in theirs if row not in ours]
        if not found and ours != theirs:
            found.append(f"v{version}: order {[row.path for row in ours]}")
    return found


def _our_rows(schema: Schema, version: int, path: str) -> Iterator[Row]:
    for field in schema.fields:
        if version not in field.versions or (field.tag or 0) >= FIRST_OWN_TAG:
            continue
        place = f"{path}{field.name}"
        nullable = version in field.nullable
        yield Row(
            place, _our_type(field.type), nullable, field.tag, _our_default(field, nullable), field.ignorable
        )
        inner = field.type.element or field.type
        if inner.struct is not None:
            yield from _our_rows(schema_of(inner.struct), version, place + ".")


def _our_type(kind: FieldType) -> str:
    if kind.element is not None:
        return "[]" + _our_type(kind.element)
    if kind.struct is None:
        return kind.kind
    return _name(kind.struct.__name__)


def _name(struct: str) -> str:
    return _ONE_NAME.get(struct, struct)


def _their_type(name: str) -> str:
    return "[]" + _name(name[2:]) if name.startswith("[]") else _name(name)


def _our_default(field: Field, nullable: bool) -> object:
    # A tagged struct that is absent is None with us; Kafka has an object of defaults, which travels the same.
    if field.type.kind == "struct" and not nullable:
        return EMPTY
    return field.default


def _their_rows(
    definition: dict[str, Any], fields: list[dict[str, Any]], version: int, path: str
) -> Iterator[Row]:
    for field in fields:
        if version not in Versions.parse(field.get("versions") or field["taggedVersions"]):
            continue
        place = f"{path}{_snake(field['name'])}"
        nullable = version in Versions.parse(field.get("nullableVersions", "none"))
        tagged = version in Versions.parse(field.get("taggedVersions", "none"))
        yield Row(
            place,
            _their_type(field["type"]),
            nullable,
            field["tag"] if tagged else None,
            _their_default(field),
            field.get("ignorable", False),
        )
        inner = field.get("fields") or _shared_struct(definition, field["type"].removeprefix("[]"))
        yield from _their_rows(definition, inner, version, place + ".")


def _shared_struct(definition: dict[str, Any], name: str) -> list[dict[str, Any]]:
    for struct in definition.get("commonStructs", []):
        if struct["name"] == name:
            fields: list[dict[str, Any]] = struct["fields"]
            return fields
    return []


def _their_default(field: dict[str, Any]) -> object:
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind.startswith("[]") or kind[0].isupper():
        return EMPTY
    if kind in _NO_DEFAULT:
        return _NO_DEFAULT[kind] if text is None else {"true": True, "false": False}.get(text, text)
    return int(str(text or 0), 0)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
