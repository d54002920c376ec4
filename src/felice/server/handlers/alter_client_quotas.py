"""AlterClientQuotas (key 49): sets and removes quotas; each entity succeeds or fails alone.

An entity has one row. If it occurs twice, its first changes count, and its row has INVALID_REQUEST, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from felice.protocol.api import API
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    EntryData,
)
from felice.security.acl import Operation
from felice.server.access.guards import cluster_permission, request_needs
from felice.server.flow.pace import paced
from felice.server.quotas.changes import changed_quotas
from felice.server.quotas.entities import entity_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = request_needs(API.ALTER_CLIENT_QUOTAS, cluster_permission(Operation.ALTER_CONFIGS))


async def handle(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    """Changes one entity after the other."""
    rows: dict[frozenset[tuple[str, str | None]], AlteredEntry] = {}
    async for entry in paced(request.entries, context.services.env.clock):
        key = frozenset((part.entity_type, part.entity_name) for part in entry.entity)
        is_first = key not in rows
        row = rows.setdefault(key, AlteredEntry(entity=entry.entity, error_message=None))
        try:
            if not is_first:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity")
            await _alter(entry, request.validate_only, context)
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
    return AlterClientQuotasResponse(entries=list(rows.values()))


async def _alter(entry: EntryData, validate_only: bool, context: RequestContext) -> None:
    entity = entity_of(entry.entity)
    keys = [change.key for change in entry.ops]
    if len(set(keys)) != len(keys):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A quota appears twice among the changes of one entity")

    def edit(current: Mapping[str, str]) -> Mapping[str, str]:
        return changed_quotas(entity, current, entry.ops)

    await context.services.changes.cluster.change_client_config(entity, edit, validate_only=validate_only)
