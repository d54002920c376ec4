"""Splits long loops of handlers into slices, so that other connections are served between them."""

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
    """Yields the items. After `_WORK_S` seconds of work on them it lets the event loop serve other connections."""
    began = clock.monotonic()
    for item in items:
        yield item
        if clock.monotonic() - began >= _WORK_S:
            await asyncio.sleep(0)
            began = clock.monotonic()


def each(
    items: Collection[T], row: Callable[[T], Row], answer: Callable[[list[Row]], Answer], clock: Clock
) -> Answer | Awaitable[Answer]:
    """Builds a response with one row per item: at once for few items, with pauses for thousands."""
    if len(items) <= _MAX_ITEMS_WITHOUT_PAUSE:
        return answer([row(item) for item in items])
    return _each_paced(items, row, answer, clock)


async def _each_paced(
    items: Iterable[T], row: Callable[[T], Row], answer: Callable[[list[Row]], Answer], clock: Clock
) -> Answer:
    return answer([row(item) async for item in paced(items, clock)])
