"""A schema registry, as the formats of rows use it: the last schema of a subject, one by its id, and a new one.

Keeps true:  the schema of an id never changes, so each process asks the registry for it only once.
             A registry that fails or does not answer raises `OutsideError`; bytes that cannot be read raise ValueError.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Protocol

from felice.dataclass import dataclass
from felice.pipelines.registry_clients import RegistryAddress, read_with, write_with

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
"""Types of schemas."""
References = tuple[tuple[str, str], ...]
"""Names of schemas that a schema refers to, with their texts; each stands after those that it refers to itself."""

_MOST_IDS = 10_000
_known: dict[tuple[int, RegistryAddress, int], RegisteredText] = {}


class RegisteredText(NamedTuple):
    """A schema of a registry. A schema of type PROTOBUF is a .proto text, or a file descriptor in base64."""

    id: int
    type: str
    text: str
    references: References = ()


class Registry(Protocol):
    """Where schemas are. It travels to other processes with `pickle`."""

    def latest(self, subject: str) -> RegisteredText | None:
        """The last version of a subject; None if there is none."""

    def by_id(self, id: int) -> RegisteredText:
        """The schema of an id. Raises ValueError if there is none."""

    def register(self, subject: str, type: str, text: str, references: References = ()) -> int:
        """The id of a schema, which becomes a version of the subject unless it is one."""

    def subjects_of(self, id: int) -> list[str]:
        """The subjects that have a version with this id; none if there is no such schema."""

    def forget(self, subject: str) -> None:
        """Delete a subject, if it exists. Its schemas can still be read by their ids."""


class MemoryRegistry:
    """A registry of one process, for tests. One schema has one id under all subjects."""

    def __init__(self) -> None:
        self._schemas: dict[int, RegisteredText] = {}
        self._subjects: dict[str, list[int]] = {}

    def latest(self, subject: str) -> RegisteredText | None:
        """The last version of a subject; None if there is none."""
        versions = self._subjects.get(subject)
        return self._schemas[versions[-1]] if versions else None

    def subjects_of(self, id: int) -> list[str]:
        """The subjects that have a version with this id."""
        return [subject for subject, ids in self._subjects.items() if id in ids]

    def by_id(self, id: int) -> RegisteredText:
        """The schema of an id. Raises ValueError if there is none."""
        if id not in self._schemas:
            raise ValueError(f"the registry has no schema with the id {id}")
        return self._schemas[id]

    def register(
        self, subject: str, type: str, text: str, references: References = (), *, id: int | None = None
    ) -> int:
        """The id of a schema; `id` chooses that of a new one. Raises ValueError if another schema has it."""
        known = next((one for one in self._schemas.values() if one[1:] == (type, text, references)), None)
        if id is None:
            id = known.id if known is not None else max(self._schemas, default=0) + 1
        found = self._schemas.setdefault(id, RegisteredText(id, type, text, references))
        if found[1:] != (type, text, references):
            raise ValueError(f"another schema has the id {id}")
        versions = self._subjects.setdefault(subject, [])
        if id not in versions:
            versions.append(id)
        return id

    def forget(self, subject: str) -> None:
        """Delete a subject, if it exists."""
        self._subjects.pop(subject, None)


@dataclass(frozen=True, slots=True)
class RemoteRegistry:
    """A registry with an address. The client's configuration limits how long a request takes (`timeout`)."""

    address: RegistryAddress

    def latest(self, subject: str) -> RegisteredText | None:
        """The last version of a subject; None if there is none. Raises `OutsideError` if the registry does not say."""
        from felice.client.schema_registry.error import SchemaRegistryError

        def ask() -> RegisteredText | None:
            try:
                # Not `get_latest_version`, whose answer the client keeps.
                found = self.address.client().get_version(subject, "latest")
            except SchemaRegistryError as error:
                if error.error_code in _NO_SUBJECT:
                    return None
                raise
            return self._by_id(found.schema_id)

        return write_with(self.address, ask)

    def by_id(self, id: int) -> RegisteredText:
        """The schema of an id. Raises ValueError if there is none, `OutsideError` if the registry does not say."""
        return read_with(self.address, lambda: self._by_id(id))

    def register(self, subject: str, type: str, text: str, references: References = ()) -> int:
        """Registers a schema, and returns its id. A schema that it refers to becomes a version of the subject with that
        schema's name. Raises `OutsideError` if the registry refuses a schema, or does not answer.
        """
        from felice.client.schema_registry.model import Schema, SchemaReference

        def ask() -> int:
            client = self.address.client()
            used: list[SchemaReference] = []
            for name, one in references:
                # A schema can refer only to the schemas before it.
                schema = Schema(one, type, list(used))
                client.register_schema(name, schema)
                used.append(SchemaReference(name, name, client.lookup_schema(name, schema).version))
            number: int = client.register_schema(subject, Schema(text, type, used))
            return number

        return write_with(self.address, ask)

    def subjects_of(self, id: int) -> list[str]:
        """The subjects that have a version with this id. Raises `OutsideError` if the registry does not answer."""
        from felice.client.schema_registry.error import SchemaRegistryError

        def ask() -> list[str]:
            try:
                return list(self.address.client().get_subjects_by_schema_id(id))
            except SchemaRegistryError as error:
                if error.error_code == _NO_SCHEMA:
                    return []
                raise

        return write_with(self.address, ask)

    def forget(self, subject: str) -> None:
        """Delete a subject, if it exists. Raises `OutsideError` if the registry refuses it, or does not answer."""
        from felice.client.schema_registry.error import SchemaRegistryError

        def ask() -> None:
            try:
                self.address.client().delete_subject(subject)
            except SchemaRegistryError as error:
                if error.error_code not in (*_NO_SUBJECT, _DELETED_SUBJECT):
                    raise

        write_with(self.address, ask)

    def _by_id(self, id: int) -> RegisteredText:
        key = os.getpid(), self.address, id
        found = _known.get(key)
        if found is None:
            found = self._asked(id)
            if self.address.is_shared and len(_known) < _MOST_IDS:
                _known[key] = found
        return found

    def _asked(self, id: int) -> RegisteredText:
        from felice.client.schema_registry.caches import SERIALIZED

        client = self.address.client()
        schema = client.get_schema(id)
        form = None
        if schema.schema_type == PROTOBUF:
            # A descriptor says everything; a text has to be parsed here.
            schema, form = client.get_schema(id, None, SERIALIZED), SERIALIZED
        references: dict[str, str] = {}
        self._collect(client, schema, form, references)
        return RegisteredText(
            id, schema.schema_type or AVRO, schema.schema_str or "", tuple(references.items())
        )

    def _collect(self, client: Any, schema: Any, form: str | None, found: dict[str, str]) -> None:
        for reference in schema.references or ():
            if reference.name in found:
                continue
            if len(found) >= _MOST_REFERENCES:
                raise ValueError(f"a schema refers to more than {_MOST_REFERENCES} schemas")
            found[reference.name] = ""  # A schema that refers to itself ends here.
            used = client.get_version(reference.subject, reference.version, True, form).schema
            self._collect(client, used, form, found)
            found[reference.name] = found.pop(reference.name) or used.schema_str or ""


_NO_SUBJECT = (40401, 40402)
_DELETED_SUBJECT = 40404
_NO_SCHEMA = 40403
_MOST_REFERENCES = 1000
