"""DeleteGroups (key 42): deletes groups without members, and their offsets. Each group has its own result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from felice.coordinator.group.coordinator import gather
from felice.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from felice.server.group_client import client_of
from felice.server.pace import each

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_Answer: TypeAlias = DeletableGroupResult | Awaitable[DeletableGroupResult]


def handle(
    request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    """One result for each distinct group; the response waits until the deletions are committed to the log."""
    groups, client = context.services.coordinators.groups, client_of(context)

    def build(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=results)

    names = dict.fromkeys(request.groups_names)
    clock = context.services.env.clock
    answers = each(names, lambda group_id: groups.delete(group_id, client), _rows, clock)
    return gather(answers, build) if isinstance(answers, list) else _later(answers, build)


def _rows(answers: list[_Answer]) -> list[_Answer]:
    return answers


async def _later(
    answers: Awaitable[list[_Answer]], build: Callable[[list[DeletableGroupResult]], DeleteGroupsResponse]
) -> DeleteGroupsResponse:
    response = gather(await answers, build)
    return await response if isinstance(response, Awaitable) else response
