"""JoinGroup (key 11): a member joins or rejoins a group. The response waits until the join phase ends."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from felice.server.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext

_NULL_NAME_SINCE = 7


def handle(
    request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Passes the request to the group. Before version 7 a protocol name cannot be null, so it is empty then."""
    answer = context.services.coordinators.groups.join(request, client_of(context))
    if context.version >= _NULL_NAME_SINCE:
        return answer
    return (
        _without_protocol(answer) if isinstance(answer, JoinGroupResponse) else _wait_without_protocol(answer)
    )


def _without_protocol(answer: JoinGroupResponse) -> JoinGroupResponse:
    """Replaces a null protocol name, which errors have, by an empty one: old versions cannot encode null."""
    answer.protocol_name = answer.protocol_name or ""
    return answer


async def _wait_without_protocol(answer: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    return _without_protocol(await answer)
