"""Associations of resources, such as topics, with subjects: the values of the registry's `associations` requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from felice.client.schema_registry.model import Schema, present
from felice.dataclass import dataclass


def _schema(given: Mapping[str, Any] | None) -> Schema | None:
    return Schema.from_dict(given) if given else None


def _schema_dict(schema: Schema | None) -> dict[str, Any] | None:
    return None if schema is None else schema.to_dict()


@dataclass(frozen=True, slots=True)
class Association:
    """A resource's subject. `association_type` is `key` or `value` for a topic."""

    subject: str | None
    guid: str | None
    resource_name: str | None
    resource_namespace: str | None
    resource_id: str | None
    resource_type: str | None
    association_type: str | None
    frozen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        members: dict[str, object] = {"subject": self.subject, "guid": self.guid}
        members |= {"resourceName": self.resource_name, "resourceNamespace": self.resource_namespace}
        members |= {"resourceId": self.resource_id, "resourceType": self.resource_type}
        return present(members | {"associationType": self.association_type, "frozen": self.frozen})

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        return cls(
            get("subject"),
            get("guid"),
            get("resourceName"),
            get("resourceNamespace"),
            get("resourceId"),
            get("resourceType"),
            get("associationType"),
            get("frozen", False),
        )


@dataclass(slots=True)
class AssociationInfo:
    """One association in the answer to a request that created it."""

    subject: str | None = None
    association_type: str | None = None
    lifecycle: str | None = None
    frozen: bool = False
    schema: Schema | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        members: dict[str, object] = {"subject": self.subject, "associationType": self.association_type}
        members |= {"lifecycle": self.lifecycle, "frozen": self.frozen}
        return present(members | {"schema": _schema_dict(self.schema)})

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        frozen = get("frozen", False)
        return cls(get("subject"), get("associationType"), get("lifecycle"), frozen, _schema(get("schema")))


@dataclass(slots=True)
class AssociationCreateOrUpdateInfo:
    """One association to create or change."""

    subject: str | None = None
    association_type: str | None = None
    lifecycle: str | None = None
    frozen: bool | None = None
    schema: Schema | None = None
    normalize: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        members: dict[str, object] = {"subject": self.subject, "associationType": self.association_type}
        members |= {"lifecycle": self.lifecycle, "frozen": self.frozen}
        return present(members | {"schema": _schema_dict(self.schema), "normalize": self.normalize})

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        schema = _schema(get("schema"))
        return cls(
            get("subject"), get("associationType"), get("lifecycle"), get("frozen"), schema, get("normalize")
        )


def _resource(value: AssociationCreateOrUpdateRequest | AssociationResponse) -> dict[str, Any]:
    members: dict[str, object] = {"resourceName": value.resource_name}
    members |= {"resourceNamespace": value.resource_namespace, "resourceId": value.resource_id}
    members |= {"resourceType": value.resource_type}
    parts = None if value.associations is None else [part.to_dict() for part in value.associations]
    return present(members | {"associations": parts})


@dataclass(slots=True)
class AssociationCreateOrUpdateRequest:
    """A resource, and the associations that it shall have."""

    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    associations: list[AssociationCreateOrUpdateInfo] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return _resource(self)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        parts = [AssociationCreateOrUpdateInfo.from_dict(part) for part in get("associations") or ()]
        resource = (get("resourceName"), get("resourceNamespace"), get("resourceId"), get("resourceType"))
        return cls(*resource, parts or None)


@dataclass(slots=True)
class AssociationResponse:
    """A resource, and the associations that it has now."""

    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    associations: list[AssociationInfo] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return _resource(self)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        parts = [AssociationInfo.from_dict(part) for part in get("associations") or ()]
        resource = (get("resourceName"), get("resourceNamespace"), get("resourceId"), get("resourceType"))
        return cls(*resource, parts or None)
