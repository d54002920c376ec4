"""Long loops of handlers, with pauses in which other connections have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from felice.env import Clock

T = TypeVar("T")

_WORK_S = 0.005


async def paced(items: Iterable[T], clock: Clock) -> AsyncIterator[T]:
    """The items; after each few milliseconds of work on them the event loop serves others."""
    began = clock.monotonic()
    for item in items:
        yield item
        if clock.monotonic() - began >= _WORK_S:
            await asyncio.sleep(0)
            began = clock.monotonic()
