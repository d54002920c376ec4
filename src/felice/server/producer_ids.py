"""Producer ids for this broker, a block at a time.

Keeps true: an id is given once in the life of the cluster; what is left of a block when the
            broker stops is never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = iter(range(0))
        self._allocating = asyncio.Lock()

    async def next_id(self) -> int:
        async with self._allocating:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate_block())
                producer_id = next(self._block)
        return producer_id
