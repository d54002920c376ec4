"""Large answers to small requests, built in slices: a connection's later requests wait for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from felice.server.pace import each

if TYPE_CHECKING:
    from felice.server.context import RequestContext

T = TypeVar("T")
Row = TypeVar("Row")
Answer = TypeVar("Answer")


def each_alone(
    items: Collection[T],
    row: Callable[[T], Row],
    answer: Callable[[list[Row]], Answer],
    context: RequestContext,
) -> Answer | Awaitable[Answer]:
    """As `each`, for small requests with large answers: during the pauses the connection's later requests wait.

    Otherwise a client that sends hundreds of them and reads nothing would have all answers built at the same time.
    """
    found = each(items, row, answer, context.services.env.clock)
    if not isinstance(found, Awaitable):
        return found
    context.session.hold()
    return _while_held(found, context)


async def _while_held(answer: Awaitable[Answer], context: RequestContext) -> Answer:
    try:
        return await answer
    finally:
        context.session.release()
