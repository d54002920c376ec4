"""Client quotas: limits of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.client.admin.results import Results, outcome
from felice.client.error import failure
from felice.client.net.cluster import Cluster
from felice.dataclass import dataclass
from felice.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from felice.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    MatchType,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """What quotas apply to: names by type, which are `user`, `client-id` or `ip`. None is the default of all names."""

    entries: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> ClientQuotaEntity:
        """The entity of these names; the order of the types does not matter."""
        return cls(tuple(sorted(names.items())))

    def __str__(self) -> str:
        return ", ".join(
            f"default {kind}" if name is None else f"{kind} {name}" for kind, name in self.entries
        )

    @property
    def names(self) -> dict[str, str | None]:
        """The names by type."""
        return dict(self.entries)


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Selects entities. `names` has a name by type, or None for the default.

    `any_name` has types whose name may be any. `is_strict` leaves out entities that have further types.
    """

    names: tuple[tuple[str, str | None], ...] = ()
    any_name: tuple[str, ...] = ()
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """Changes of an entity's quotas: values by key; None removes a quota."""

    entity: ClientQuotaEntity
    changes: Mapping[str, float | None]


async def describe_client_quotas(
    cluster: Cluster, wanted: ClientQuotaFilter
) -> dict[ClientQuotaEntity, dict[str, float]]:
    """Return the quotas of the entities that match, by key."""
    components = [
        ComponentData(
            entity_type=kind,
            match_type=MatchType.DEFAULT if name is None else MatchType.EXACT,
            match=name,
        )
        for kind, name in wanted.names
    ]
    components += [
        ComponentData(entity_type=kind, match_type=MatchType.SPECIFIED, match=None)
        for kind in wanted.any_name
    ]
    response = await cluster.call_any(
        DescribeClientQuotasRequest(components=components, strict=wanted.is_strict)
    )
    if response.error_code:
        raise failure(response.error_code, response.error_message)
    return {
        ClientQuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


async def alter_client_quotas(
    cluster: Cluster, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool
) -> Results:
    """Change quotas. Returns None or the error by entity."""
    wanted = list(alterations)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one.entity.entries],
            ops=[
                OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in one.changes.items()
            ],
        )
        for one in wanted
    ]
    response = await cluster.call_controller(
        AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    )
    return {
        one.entity: outcome(row.error_code, row.error_message, str(one.entity))
        for one, row in zip(wanted, response.entries, strict=True)
    }
