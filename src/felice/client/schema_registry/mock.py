"""A registry in memory for tests, as confluent_kafka has one for `mock://` addresses.

Leaves out:  compatibility, deletions, configurations and everything else that serializers do not call.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any, Literal

from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.model import RegisteredSchema, Schema

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403


class MockSchemaRegistryClient:
    """Keeps the schemas of this process. One schema has one id under all subjects. Several threads may use it."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._schemas: dict[int, Schema] = {}
        self._versions: dict[str, list[RegisteredSchema]] = {}
        self._lock = threading.Lock()

    def register_schema(self, subject_name: str, schema: Schema, normalize_schemas: bool = False) -> int:
        """The id of the schema, which becomes a version of the subject unless it is one."""
        found = self.register_schema_full_response(subject_name, schema, normalize_schemas)
        assert found.schema_id is not None
        return found.schema_id

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """As `register_schema`, with the version."""
        text = repr(schema.to_dict())
        with self._lock:
            number = self._ids.setdefault(text, len(self._ids) + 1)
            self._schemas[number] = schema
            versions = self._versions.setdefault(subject_name, [])
            for version in versions:
                if version.schema_id == number:
                    return version
            guid = str(uuid.uuid5(uuid.NAMESPACE_URL, text))
            versions.append(RegisteredSchema(subject_name, len(versions) + 1, number, guid, schema))
            return versions[-1]

    def lookup_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """The version of the subject that has this schema. Raises `SchemaRegistryError` if there is none."""
        with self._lock:
            number = self._ids.get(repr(schema.to_dict()))
            for version in self._versions.get(subject_name, ()):
                if version.schema_id == number:
                    return version
        raise _missing(_NO_SCHEMA, "Schema not found")

    def get_schema(self, schema_id: int, subject_name: str | None = None, fmt: str | None = None) -> Schema:
        """The schema of an id. Raises `SchemaRegistryError` if there is none."""
        with self._lock:
            found = self._schemas.get(schema_id)
        if found is None:
            raise _missing(_NO_SCHEMA, f"Schema {schema_id} not found")
        return found

    def get_subjects_by_schema_id(self, schema_id: int) -> list[str]:
        """The subjects that have the schema of an id. Raises `SchemaRegistryError` if there is no such schema."""
        self.get_schema(schema_id)
        with self._lock:
            return [
                subject
                for subject, versions in self._versions.items()
                if any(one.schema_id == schema_id for one in versions)
            ]

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """The schema of a GUID. Raises `SchemaRegistryError` if there is none."""
        with self._lock:
            for versions in self._versions.values():
                for version in versions:
                    if version.guid == guid:
                        return version.schema
        raise _missing(_NO_SCHEMA, "Schema not found")

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> RegisteredSchema:
        """The last version of a subject. Raises `SchemaRegistryError` if there is none."""
        with self._lock:
            versions = self._versions.get(subject_name)
        if not versions:
            raise _missing(_NO_SUBJECT, f"Subject '{subject_name}' not found.")
        return versions[-1]

    def get_version(
        self,
        subject_name: str,
        version: int | Literal["latest"] = "latest",
        deleted: bool = False,
        fmt: str | None = None,
    ) -> RegisteredSchema:
        """A version of a subject. Raises `SchemaRegistryError` if there is none."""
        if version == "latest":
            return self.get_latest_version(subject_name, fmt)
        with self._lock:
            versions = self._versions.get(subject_name, [])
        if not 0 < version <= len(versions):
            raise _missing(_NO_VERSION, f"Version {version} not found.")
        return versions[version - 1]

    def __enter__(self) -> MockSchemaRegistryClient:
        return self

    def __exit__(self, *args: Any) -> None: ...


def _missing(code: int, text: str) -> SchemaRegistryError:
    return SchemaRegistryError(404, code, text)
