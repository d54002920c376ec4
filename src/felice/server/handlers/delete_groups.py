"""DeleteGroups (key 42): deletes groups without members, and their offsets. Each group has its own result."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.coordinator.group.coordinator import gather
from felice.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from felice.server.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(
    request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    """One result for each distinct group; the response waits until the deletions are committed to the log."""
    groups, client = context.services.coordinators.groups, client_of(context)
    answers = [groups.delete(group_id, client) for group_id in dict.fromkeys(request.groups_names)]

    def build(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=results)

    return gather(answers, build)
