"""Every call of a registry's client as steps: the cache that may answer it, its request, and what the answer is.

Both clients run these steps, so that each call is written once. Names, arguments and results are confluent_kafka's.
Caches answer without a request: ids, schemas and versions never change; the latest version of a subject does, and stays
in its cache for `cache.latest.ttl.sec`, or until the cache is cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote

from felice.client.schema_registry.associations import (
    Association,
    AssociationCreateOrUpdateRequest,
    AssociationResponse,
)
from felice.client.schema_registry.caches import Cache, SchemaCaches, form_of
from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.exchange import Request, encoded_query, exchange
from felice.client.schema_registry.model import RegisteredSchema, Schema, SchemaVersion, ServerConfig
from felice.client.schema_registry.settings import Settings
from felice.client.schema_registry.steps import Steps


def _part(text: str) -> str:
    return quote(text, safe="")


def _config_path(subject: str | None) -> str:
    return "config" if subject is None else f"config/{_part(subject)}"


class Operations:
    """The calls of one client, with its caches. `clock` is in seconds and `random` is in [0, 1)."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float], random: Callable[[], float], agent: str
    ) -> None:
        self._settings, self._random, self._agent = settings, random, agent
        self.caches = SchemaCaches(settings.cache_capacity)
        limits = (settings.cache_capacity, settings.latest_life_s, clock)
        self._latest: Cache[tuple[str, str | None], RegisteredSchema] = Cache(*limits)
        self._latest_with: Cache[tuple[object, ...], RegisteredSchema] = Cache(*limits)

    def _send(
        self, method: str, path: str, query: dict[str, Any] | None = None, body: dict[str, Any] | None = None
    ) -> Steps[Any]:
        request = Request(method, path, encoded_query(query), body)
        return exchange(self._settings, request, self._random, self._agent)

    def _get(self, path: str, query: dict[str, Any] | None = None) -> Steps[Any]:
        return self._send("GET", path, query)

    def _post(self, path: str, query: dict[str, Any], body: dict[str, Any]) -> Steps[Any]:
        # The booleans of these queries are written as Python writes them.
        texts = {name: str(value) for name, value in query.items()}
        return self._send("POST", path, texts, body)

    def register_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> Steps[int]:
        """Register a schema under a subject, and return its id; the known id if it is registered already."""
        found = yield from self.register_schema_full_response(subject_name, schema, normalize_schemas)
        assert found.schema_id is not None
        return found.schema_id

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> Steps[RegisteredSchema]:
        """Register a schema under a subject. Return its id and GUID, and its version if the registry tells it."""
        schema_id = self.caches.ids.get((subject_name, schema))
        known = (
            None if schema_id is None else self.caches.by_id.get((subject_name, schema_id, form_of(schema)))
        )
        if known is not None:
            return RegisteredSchema(subject_name, None, schema_id, *known)
        path, query = f"subjects/{_part(subject_name)}/versions", {"normalize": normalize_schemas}
        answer = _registered((yield from self._post(path, query, schema.to_dict())))
        found = RegisteredSchema(
            answer.subject or subject_name, answer.version, answer.schema_id, answer.guid, answer.schema
        )
        stored = schema if answer.schema.schema_str is None else answer.schema
        self.caches.put_schema(subject_name, answer.schema_id, answer.guid, stored, form_of(stored))
        return found

    def get_schema(
        self,
        schema_id: int,
        subject_name: str | None = None,
        fmt: str | None = None,
        reference_format: str | None = None,
    ) -> Steps[Schema]:
        """Return the schema of an id. Within a subject of another context, that context's schema."""
        form = fmt if reference_format is None else f"{fmt}/{reference_format}"
        known = self.caches.by_id.get((subject_name, schema_id, form))
        if known is not None:
            return known[1]
        query = {"subject": subject_name, "format": fmt, "reference_format": reference_format}
        given = {name: value for name, value in query.items() if value is not None}
        found = _registered((yield from self._get(f"schemas/ids/{schema_id}", given)))
        self.caches.put_schema(subject_name, schema_id, found.guid, found.schema, form)
        if subject_name is not None:
            self.caches.put_registered(found.schema, found, form)
        return found.schema

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Steps[Schema]:
        """Return the schema of a GUID."""
        known = self.caches.by_guid.get((guid, fmt))
        if known is not None:
            return known
        answer = yield from self._get(f"schemas/guids/{guid}", {} if fmt is None else {"format": fmt})
        found = _registered(answer)
        self.caches.put_schema(None, found.schema_id, found.guid, found.schema, fmt)
        return found.schema

    def get_schema_types(self) -> Steps[list[str]]:
        """Return the types of schemas that the registry knows."""
        answer: list[str] = yield from self._get("schemas/types")
        return answer

    def get_subjects_by_schema_id(
        self,
        schema_id: int,
        subject_name: str | None = None,
        deleted: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> Steps[list[str]]:
        """Return the subjects that have the schema of an id."""
        query = _selection(subject_name, deleted, offset, limit)
        answer: list[str] = yield from self._get(f"schemas/ids/{schema_id}/subjects", query)
        return answer

    def get_schema_versions(
        self,
        schema_id: int,
        subject_name: str | None = None,
        deleted: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> Steps[list[SchemaVersion]]:
        """Return the subjects and versions that have the schema of an id."""
        query = _selection(subject_name, deleted, offset, limit)
        answer = yield from self._get(f"schemas/ids/{schema_id}/versions", query)
        return [SchemaVersion.from_dict(item) for item in _list(answer)]

    def lookup_schema(
        self,
        subject_name: str,
        schema: Schema,
        normalize_schemas: bool = False,
        fmt: str | None = None,
        deleted: bool = False,
    ) -> Steps[RegisteredSchema]:
        """Return the version under which a subject has this schema. Raises `SchemaRegistryError` if it has not."""
        known = self.caches.registered.get((subject_name, schema))
        if known is not None:
            return known
        query: dict[str, Any] = {"normalize": normalize_schemas, "deleted": deleted}
        if fmt is not None:
            query["format"] = fmt
        answer = yield from self._post(f"subjects/{_part(subject_name)}", query, schema.to_dict())
        told = _registered(answer)
        found = RegisteredSchema(told.subject, told.version, told.schema_id, told.guid, schema)
        self.caches.put_registered(schema, found, form_of(schema))
        return found

    def get_subjects(
        self,
        subject_prefix: str | None = None,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> Steps[list[str]]:
        """Return the names of the subjects, optionally with those that are deleted."""
        query: dict[str, Any] = {"deleted": deleted, "deleted_only": deleted_only}
        query |= {"offset": offset, "limit": limit}
        if subject_prefix is not None:
            query["subjectPrefix"] = subject_prefix
        answer: list[str] = yield from self._get("subjects", query)
        return answer

    def delete_subject(self, subject_name: str, permanent: bool = False) -> Steps[list[int]]:
        """Delete a subject, and return its versions. Only a deleted subject can be deleted permanently."""
        query = {"permanent": True} if permanent else None
        versions: list[int] = yield from self._send("DELETE", f"subjects/{_part(subject_name)}", query)
        if permanent:
            self.caches.forget_subject(subject_name)
        return versions

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> Steps[RegisteredSchema]:
        """Return the latest version of a subject."""
        known = self._latest.get((subject_name, fmt))
        if known is not None:
            return known
        query = None if fmt is None else {"format": fmt}
        answer = yield from self._get(f"subjects/{_part(subject_name)}/versions/latest", query)
        found = _registered(answer)
        self._latest.put((subject_name, fmt), found)
        return found

    def get_latest_with_metadata(
        self, subject_name: str, metadata: dict[str, str], deleted: bool = False, fmt: str | None = None
    ) -> Steps[RegisteredSchema]:
        """Return the latest version of a subject whose schema has all these properties."""
        key = (subject_name, frozenset(metadata.items()), deleted, fmt)
        known = self._latest_with.get(key)
        if known is not None:
            return known
        query: dict[str, Any] = {"deleted": deleted}
        if fmt is not None:
            query["format"] = fmt
        if metadata:
            query |= {"key": list(metadata), "value": list(metadata.values())}
        answer = yield from self._get(f"subjects/{_part(subject_name)}/metadata", query)
        found = _registered(answer)
        self._latest_with.put(key, found)
        return found

    def get_version(
        self,
        subject_name: str,
        version: int | Literal["latest"] = "latest",
        deleted: bool = False,
        fmt: str | None = None,
    ) -> Steps[RegisteredSchema]:
        """Return a version of a subject."""
        known = None if version == "latest" else self.caches.versions.get((subject_name, version, fmt))
        if known is not None:
            return known
        query: dict[str, Any] = {"deleted": deleted}
        if fmt is not None:
            query["format"] = fmt
        answer = yield from self._get(f"subjects/{_part(subject_name)}/versions/{version}", query)
        found = _registered(answer)
        self.caches.put_registered(found.schema, found, fmt)
        return found

    def get_referenced_by(
        self,
        subject_name: str,
        version: int | Literal["latest"] = "latest",
        offset: int = 0,
        limit: int = -1,
    ) -> Steps[list[int]]:
        """Return the ids of the schemas that refer to a version of a subject."""
        path = f"subjects/{_part(subject_name)}/versions/{version}/referencedby"
        answer: list[int] = yield from self._get(path, {"offset": offset, "limit": limit})
        return answer

    def get_versions(
        self,
        subject_name: str,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> Steps[list[int]]:
        """Return the versions of a subject."""
        query: dict[str, Any] = {"deleted": deleted, "deleted_only": deleted_only}
        query |= {"offset": offset, "limit": limit}
        answer: list[int] = yield from self._get(f"subjects/{_part(subject_name)}/versions", query)
        return answer

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> Steps[int]:
        """Delete a version of a subject, and return it. Only a deleted version can be deleted permanently."""
        query = {"permanent": True} if permanent else None
        path = f"subjects/{_part(subject_name)}/versions/{version}"
        deleted: int = yield from self._send("DELETE", path, query)
        self.caches.forget_version(subject_name, version)
        return deleted

    def set_compatibility(
        self, subject_name: str | None = None, level: str | None = None
    ) -> Steps[dict[str, Any]]:
        """Set the compatibility level of a subject, or of the registry. Return the answer's JSON object."""
        if level is None:
            raise ValueError("level is missing: the compatibility level to set")
        body = {"compatibility": level.upper()}
        answer: dict[str, Any] = yield from self._send("PUT", _config_path(subject_name), body=body)
        return answer

    def get_compatibility(self, subject_name: str | None = None) -> Steps[str]:
        """Return the compatibility level of a subject, or of the registry."""
        answer = yield from self._get(_config_path(subject_name))
        return str(_member(answer, "compatibilityLevel"))

    def test_compatibility(
        self,
        subject_name: str,
        schema: Schema,
        version: int | str = "latest",
        normalize: bool = False,
        verbose: bool = False,
    ) -> Steps[bool]:
        """Whether a schema is compatible with one version of a subject."""
        path = f"compatibility/subjects/{_part(subject_name)}/versions/{version}"
        query = {"normalize": normalize, "verbose": verbose}
        answer = yield from self._post(path, query, schema.to_dict())
        return bool(_member(answer, "is_compatible"))

    def test_compatibility_all_versions(
        self, subject_name: str, schema: Schema, normalize: bool = False, verbose: bool = False
    ) -> Steps[bool]:
        """Whether a schema is compatible with the versions of a subject that its level names."""
        path = f"compatibility/subjects/{_part(subject_name)}/versions"
        query = {"normalize": normalize, "verbose": verbose}
        answer = yield from self._post(path, query, schema.to_dict())
        return bool(_member(answer, "is_compatible"))

    def set_config(
        self, subject_name: str | None = None, config: ServerConfig | None = None
    ) -> Steps[dict[str, Any]]:
        """Set the configuration of a subject, or of the registry. Return the answer's JSON object."""
        if config is None:
            raise ValueError("config is missing: the configuration to set")
        answer: dict[str, Any] = yield from self._send(
            "PUT", _config_path(subject_name), body=config.to_dict()
        )
        return answer

    def delete_config(self, subject_name: str | None = None) -> Steps[ServerConfig]:
        """Delete the configuration of a subject, or of the registry, and return what it was."""
        return ServerConfig.from_dict(_checked((yield from self._send("DELETE", _config_path(subject_name)))))

    def get_config(self, subject_name: str | None = None) -> Steps[ServerConfig]:
        """Return the configuration of a subject, or of the registry."""
        return ServerConfig.from_dict(_checked((yield from self._get(_config_path(subject_name)))))

    def get_mode(self, subject_name: str) -> Steps[str]:
        """Return the mode of a subject."""
        return str(_member((yield from self._get(f"mode/{_part(subject_name)}")), "mode"))

    def update_mode(self, subject_name: str, mode: str, force: bool = False) -> Steps[str]:
        """Set the mode of a subject, and return it."""
        path, query = f"mode/{_part(subject_name)}", {"force": str(force)}
        return str(_member((yield from self._send("PUT", path, query, {"mode": mode})), "mode"))

    def delete_mode(self, subject_name: str) -> Steps[str]:
        """Delete the mode of a subject, and return what it was."""
        return str(_member((yield from self._send("DELETE", f"mode/{_part(subject_name)}")), "mode"))

    def get_global_mode(self) -> Steps[str]:
        """Return the mode of the registry."""
        return str(_member((yield from self._get("mode")), "mode"))

    def update_global_mode(self, mode: str, force: bool = False) -> Steps[str]:
        """Set the mode of the registry, and return it."""
        return str(
            _member((yield from self._send("PUT", "mode", {"force": str(force)}, {"mode": mode})), "mode")
        )

    def get_contexts(self, offset: int = 0, limit: int = -1) -> Steps[list[str]]:
        """Return the names of the contexts."""
        answer: list[str] = yield from self._get("contexts", {"offset": offset, "limit": limit})
        return answer

    def get_associations_by_resource_name(
        self,
        resource_name: str,
        resource_namespace: str,
        resource_type: str | None = None,
        association_types: list[str] | None = None,
        offset: int = 0,
        limit: int = -1,
    ) -> Steps[list[Association]]:
        """Return the associations of a resource, such as a topic of the cluster `resource_namespace`."""
        query = _associated(resource_type, association_types)
        if offset > 0:
            query["offset"] = offset
        if limit >= 1:
            query["limit"] = limit
        path = f"associations/resources/{_part(resource_namespace)}/{_part(resource_name)}"
        return [Association.from_dict(item) for item in _list((yield from self._get(path, query)))]

    def create_association(self, request: AssociationCreateOrUpdateRequest) -> Steps[AssociationResponse]:
        """Create associations of a resource."""
        answer = yield from self._send("POST", "associations", body=request.to_dict())
        return AssociationResponse.from_dict(_checked(answer))

    def delete_associations(
        self,
        resource_id: str,
        resource_type: str | None = None,
        association_types: list[str] | None = None,
        cascade_lifecycle: bool = False,
    ) -> Steps[None]:
        """Delete associations of a resource."""
        query = {"cascadeLifecycle": cascade_lifecycle} | _associated(resource_type, association_types)
        yield from self._send("DELETE", f"associations/resources/{_part(resource_id)}", query)

    def clear_latest_caches(self) -> None:
        """Forget the latest versions."""
        self._latest.clear()
        self._latest_with.clear()

    def clear_caches(self) -> None:
        """Forget everything."""
        self.clear_latest_caches()
        self.caches.clear()


def _selection(subject: str | None, deleted: bool, offset: int, limit: int) -> dict[str, Any]:
    query: dict[str, Any] = {"offset": offset, "limit": limit}
    if subject is not None:
        query["subject"] = subject
    if deleted:
        query["deleted"] = deleted
    return query


def _associated(resource_type: str | None, association_types: list[str] | None) -> dict[str, Any]:
    query: dict[str, Any] = {}
    if resource_type is not None:
        query["resourceType"] = resource_type
    if association_types is not None:
        query["associationType"] = association_types
    return query


def _unexpected(answer: object, expected: str) -> SchemaRegistryError:
    shown = repr(answer)[:200]
    return SchemaRegistryError(200, SchemaRegistryError.UNKNOWN, f"the answer is not {expected}: {shown}")


def _checked(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise _unexpected(answer, "a JSON object")
    return answer


def _list(answer: Any) -> list[dict[str, Any]]:
    if not isinstance(answer, list) or not all(isinstance(item, dict) for item in answer):
        raise _unexpected(answer, "a list of JSON objects")
    return answer


def _member(answer: Any, name: str) -> Any:
    if name not in _checked(answer):
        raise _unexpected(answer, f"an object with {name}")
    return answer[name]


def _registered(answer: Any) -> RegisteredSchema:
    try:
        return RegisteredSchema.from_dict(_checked(answer))
    except (AttributeError, TypeError, ValueError) as error:
        raise _unexpected(answer, f"a schema ({error})") from error
