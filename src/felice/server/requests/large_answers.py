"""Large answers to small requests, built in slices: a connection's later requests wait for them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from felice.server.flow.pace import MAX_ITEMS_WITHOUT_PAUSE, each, held

if TYPE_CHECKING:
    from felice.server.context import RequestContext

T = TypeVar("T")
Row = TypeVar("Row")


async def each_alone(items: Collection[T], row: Callable[[T], Row], context: RequestContext) -> list[Row]:
    """As `each`, for small requests with large answers: during the pauses the connection's later requests wait.

    Otherwise a client that sends hundreds of them and reads nothing would have all answers built at the same time.
    """
    if len(items) <= MAX_ITEMS_WITHOUT_PAUSE:
        return [row(item) for item in items]
    with held(context.session):
        return await each(items, row, context.services.env.clock)
