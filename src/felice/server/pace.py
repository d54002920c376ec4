"""Long loops of handlers, with pauses in which other connections have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from typing import TypeVar

from felice.env import Clock

T = TypeVar("T")
Row = TypeVar("Row")
Answer = TypeVar("Answer")

_WORK_S = 0.005
_MAX_ITEMS_WITHOUT_PAUSE = 1000


async def paced(items: Iterable[T], clock: Clock) -> AsyncIterator[T]:
    """The items; after each few milliseconds of work on them the event loop serves others."""
    began = clock.monotonic()
    for item in items:
        yield item
        if clock.monotonic() - began >= _WORK_S:
            await asyncio.sleep(0)
            began = clock.monotonic()


def each(
    items: Collection[T], row: Callable[[T], Row], answer: Callable[[list[Row]], Answer], clock: Clock
) -> Answer | Awaitable[Answer]:
    """The answer that has a row for each item: at once, or for thousands of items with pauses."""
    if len(items) <= _MAX_ITEMS_WITHOUT_PAUSE:
        return answer([row(item) for item in items])
    return _each_paced(items, row, answer, clock)


async def _each_paced(
    items: Iterable[T], row: Callable[[T], Row], answer: Callable[[list[Row]], Answer], clock: Clock
) -> Answer:
    return answer([row(item) async for item in paced(items, clock)])
