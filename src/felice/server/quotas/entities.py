"""Entities of quotas in requests: their types, names and filters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from felice.config import shortened
from felice.dataclass import dataclass
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_client_quotas import ComponentData, EntityData, MatchType

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES = (USER, CLIENT_ID, IP)
# A name of this size fills a node's name in ZooKeeper when every character is encoded.
MAX_NAME_LENGTH = 1_000
# No entity has this name: what an empty name in a filter stands for.
_NO_NAME = "\0"


def rows_of(entity: ClientEntity) -> Iterator[tuple[str, str | None]]:
    """The types and names of an entity's parts; the default has no name."""
    for kind, name in zip(_TYPES, entity, strict=True):
        if name is not None:
            yield kind, name if name != DEFAULT else None


def entity_of(parts: Sequence[EntityData]) -> ClientEntity:
    """The entity that a request names; of a type named twice the last name counts. Raises `ApiError`."""
    names: dict[str, str] = {}
    for part in parts:
        if part.entity_type not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {shortened(part.entity_type)}")
        names[part.entity_type] = _name_of(part)
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if IP in names and len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    return ClientEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _name_of(part: EntityData) -> str:
    if part.entity_name is None:
        return DEFAULT
    if not part.entity_name:
        raise _invalid(f"Empty {part.entity_type} not supported")
    if len(part.entity_name) > MAX_NAME_LENGTH:
        name = shortened(part.entity_name)
        raise _invalid(f"{part.entity_type} {name} is longer than {MAX_NAME_LENGTH} characters")
    return part.entity_name


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """A filter of entities: for each of its types a name, DEFAULT, or None for any name."""

    names: Mapping[str, str | None]
    is_strict: bool

    @classmethod
    def of(cls, components: Sequence[ComponentData], *, strict: bool) -> EntityFilter:
        """Reads the components of a request. Raises `ApiError`."""
        names: dict[str, str | None] = {}
        for component in components:
            _check_type(component.entity_type, names)
            names[component.entity_type] = _matched(component)
        if IP in names and len(names) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
        return cls(names, strict)

    def matches(self, entity: ClientEntity) -> bool:
        """Whether the entity has every type of the filter, with a matching name; if strict, no other type."""
        found = dict(zip(_TYPES, entity, strict=True))
        if self.is_strict and any(
            name is not None and kind not in self.names for kind, name in found.items()
        ):
            return False
        return all(
            found[kind] is not None and wanted in (None, found[kind]) for kind, wanted in self.names.items()
        )


def _check_type(kind: str, seen: Mapping[str, object]) -> None:
    if not kind:
        raise _invalid("Invalid empty entity type.")
    if kind not in _TYPES:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {shortened(kind)}")
    if kind in seen:
        raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")


def _matched(component: ComponentData) -> str | None:
    kind, name = component.match_type, component.match
    if kind not in set(MatchType):
        raise _invalid(f"Unknown match type {kind}")
    if kind == MatchType.EXACT and name is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if kind != MatchType.EXACT and name is not None:
        raise _invalid(
            f"Request specified MATCH_TYPE_{MatchType(kind).name}, but also specified a match string."
        )
    if kind == MatchType.EXACT:
        return name or _NO_NAME
    return DEFAULT if kind == MatchType.DEFAULT else None
