"""DescribeClientQuotas (key 48): quotas of users, clients and addresses that match a filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from felice.metadata.client_entity import ClientEntity
from felice.protocol.api import API
from felice.protocol.errors import ApiError
from felice.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.quotas.entities import EntityFilter, rows_of
from felice.server.quotas.limits import QuotaKind, number
from felice.server.requests.large_answers import each_alone

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(
    API.DESCRIBE_CLIENT_QUOTAS, cluster_permission(Operation.DESCRIBE_CONFIGS), fields={"entries": None}
)


async def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Returns entities that have quotas; users that only have credentials are left out."""
    try:
        wanted = EntityFilter.of(request.components, strict=request.strict)
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)

    def entry(configured: tuple[ClientEntity, Mapping[str, str]]) -> EntryData | None:
        entity, config = configured
        values = dict(_values(config)) if wanted.matches(entity) else {}
        return _entry(entity, values) if values else None

    entries = await each_alone(context.services.image.client_configs.items(), entry, context)
    return DescribeClientQuotasResponse(entries=[one for one in entries if one is not None])


def _values(config: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for kind in QuotaKind:
        value = number(config.get(kind.value))
        if value is not None:
            yield kind.value, value


def _entry(entity: ClientEntity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in rows_of(entity)],
        values=[ValueData(key=key, value=value) for key, value in values.items()],
    )
