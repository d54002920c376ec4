"""OffsetCommit (key 8): stores offsets. The response is sent when they are committed to the log."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from felice.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from felice.server.group_client import client_of

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """The group checks member and generation; the awaitable ends when the offsets are replicated."""
    return context.services.coordinators.groups.commit(request, client_of(context))
